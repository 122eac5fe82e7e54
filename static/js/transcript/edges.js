// The two edges of the loaded messages. More load when the reader comes near an edge, and messages far away on the other
// side are removed, so that the page stays fast in sessions with a hundred thousand messages.
import { fetchPart } from "../support/api.js";
import { gettext } from "../support/i18n.js";
import { released } from "../support/press.js";
import { goToEnd, goToMessage, isAtEnd, keepingPlace, topmost } from "./scrolling.js";

const MOST = 300; // messages on the page
const SLACK = 50; // messages above MOST before any are removed
const OTHER = { older: "newer", newer: "older" };

export class Edges {
  #isLoading = false;
  #asked = 0; // requests for another stretch: only the last one counts

  constructor(transcript, { path, onChange }) {
    Object.assign(this, { transcript, path, onChange });
    this.observer = new IntersectionObserver((entries) => this.#near(entries), { rootMargin: "600px 0px" });
    transcript.root.addEventListener("click", (event) => {
      const edge = event.target.closest("[data-load]")?.closest("[data-more]");
      if (edge) this.#load(edge);
    });
  }

  watch() {
    for (const edge of this.transcript.root.querySelectorAll(":scope > [data-more]")) this.observer.observe(edge);
  }

  // Shows the messages around a place ("?at=120"), or the newest (""); returns whether it did. A place on another branch
  // has a page of its own.
  async show(query) {
    const asked = ++this.#asked;
    const part = await fetchPart(this.transcript.onBranch(this.path + query));
    await released();
    if (asked !== this.#asked) return false;
    if (part.querySelector("[data-elsewhere]")) {
      location.assign(location.pathname + query);
      return false;
    }
    keepingPlace(() => this.transcript.replaceAll(part));
    this.#changed();
    return true;
  }

  // Shows another branch at the reader's place, or near a message.
  async showBranch(branch, near = isAtEnd() ? "" : topmost(".message")?.dataset.seq) {
    this.transcript.branch = branch;
    return this.show(near ? `?near=${near}` : "");
  }

  async showNewest() {
    if (!this.transcript.hasTail) await this.show("");
    goToEnd();
  }

  // Takes a number, the id of a message, part or turn, or a time. The server resolves it to a message.
  async goTo(place) {
    const found = document.getElementById(`msg-${place}`);
    if (!found && !(await this.show(`?at=${encodeURIComponent(place)}`))) return null;
    const message = found ?? this.transcript.root.querySelector("[data-here]");
    if (message) goToMessage(message);
    return message;
  }

  // Called after new messages arrived at the end. Never removes the messages being read.
  trimGrown() {
    this.#trim(isAtEnd() ? "newer" : "older");
  }

  #near(entries) {
    for (const { isIntersecting, target } of entries) if (isIntersecting) this.#load(target);
  }

  async #load(edge) {
    if (this.#isLoading || !edge.isConnected) return;
    this.#isLoading = true;
    const button = edge.querySelector("button");
    button.disabled = true;
    try {
      const part = await fetchPart(this.transcript.onBranch(button.dataset.load));
      if (edge.isConnected) keepingPlace(() => this.#extend(edge, part));
      this.#isLoading = false;
      this.#changed();
    } catch {
      this.#isLoading = false;
      button.disabled = false;
      button.textContent = gettext("That could not be loaded. Try again.");
    }
  }

  #extend(edge, part) {
    this.transcript.extend(edge, part);
    this.#trim(edge.dataset.more);
  }

  #changed() {
    // Observe again: an edge that is still near would not be reported a second time.
    this.observer.disconnect();
    this.watch();
    if (this.transcript.hasTail) this.transcript.lookForNew();
    this.onChange();
  }

  // One side grew, so the excess is removed from the other.
  #trim(grown) {
    const { messages, root } = this.transcript;
    if (messages.length <= MOST + SLACK) return;
    const side = OTHER[grown];
    const [last, far] = side === "newer" ? [messages[MOST - 1], "nextSibling"] : [messages.at(-MOST), "previousSibling"];
    while (last[far]) last[far].remove();
    const edge = document.getElementById(`edge-${side}`).content.firstElementChild.cloneNode(true);
    edge.querySelector("button").dataset.load += `?${side === "newer" ? "after" : "before"}=${last.dataset.seq}`;
    if (side === "newer") root.append(edge);
    else root.prepend(edge);
    this.watch();
  }
}
