// Navigation in a session: to the newest message, to a place given by the address or the user, and from message to message.
import { goToEnd, goToMessage, isAtEnd, stayAtEndBelow, topmost } from "./scrolling.js";

const HASH = /^#msg-(\d+)$/;
// What an address says of the lens: it stays while the reader moves.
export const LENS = ["lens", "call", "section", "id", "seq"];

const placeInAddress = () => `${new URLSearchParams(location.search).get("at") ?? ""}${location.hash}`;

export class Reading {
  #place = placeInAddress();

  // jump: the button that leads to the newest message
  // looking: whether the page shows another branch than the chosen one, so that its address names it
  constructor({ transcript, edges, jump, looking, onError }) {
    Object.assign(this, { transcript, edges, jump, looking, onError });
  }

  // The server has already rendered the place given by the address.
  begin() {
    const { root } = this.transcript;
    const named = root.querySelector("[data-here]") ?? (location.hash && document.getElementById(location.hash.slice(1)));
    if (named) goToMessage(named);
    else goToEnd();
    if (!named && HASH.test(location.hash)) this.#showPlace();
    stayAtEndBelow(this.jump.closest(".dock"));
    addEventListener("scroll", () => this.showJump(), { passive: true });
    addEventListener("resize", () => this.showJump());
    this.jump.addEventListener("click", () => this.showNewest());
    // Back, forward, and a link to a message that is not on the page.
    addEventListener("popstate", () => {
      if (placeInAddress() !== this.#place) this.#showPlace();
      this.#place = placeInAddress();
    });
  }

  showJump() {
    this.jump.hidden = this.transcript.hasTail && isAtEnd();
  }

  // place: a number, id or time
  async goTo(place) {
    const message = await this.edges.goTo(place);
    if (message) this.#push({ at: message.dataset.seq });
  }

  async showNewest() {
    try {
      await this.edges.showNewest();
      if (new URLSearchParams(location.search).has("at")) this.#push({});
    } catch (error) {
      this.onError(error);
    }
  }

  // Moves `by` messages from the focused one, or to the topmost visible message if none has the focus.
  step(by) {
    const { messages } = this.transcript;
    const focused = document.activeElement.closest(".message");
    const next = focused ? messages[messages.indexOf(focused) + by] : topmost(".message");
    if (next) goToMessage(next);
  }

  // Returns whether there was an answer to copy.
  copyLast() {
    const last = this.transcript.messages.findLast(({ dataset }) => dataset.role === "assistant");
    const button = last?.querySelector("[data-act=copy]");
    button?.click();
    return Boolean(button);
  }

  #showPlace() {
    const place = HASH.exec(location.hash)?.[1] ?? new URLSearchParams(location.search).get("at");
    const shown = place ? this.edges.goTo(place) : this.edges.showNewest();
    shown.catch(this.onError);
  }

  #push(query) {
    const named = new URLSearchParams({ ...(this.looking && { branch: this.transcript.branch }), ...query });
    for (const [name, value] of new URLSearchParams(location.search)) if (LENS.includes(name)) named.set(name, value);
    history.pushState({}, "", `${location.pathname}${named.size ? `?${named}` : ""}`);
    this.#place = placeInAddress();
  }
}
