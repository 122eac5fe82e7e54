// The two ends of what is on the page. More messages come when the reader gets near one, and those far behind them go:
// the page is as quick in the middle of a hundred thousand messages as at its first fifty.
import { fetchPart } from "./api.js";
import { goToEnd, goToMessage, isAtEnd, keepingPlace } from "./scrolling.js";

const MOST = 300; // messages on the page
const SLACK = 50; // more of them, before some go
const OTHER = { older: "newer", newer: "older" };

export class Edges {
  #isLoading = false;

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

  // The messages around a place ("?at=120"), or the newest ("").
  async show(query) {
    const part = await fetchPart(this.path + query);
    this.transcript.replaceAll(part);
    this.#changed();
  }

  async showNewest() {
    if (!this.transcript.hasTail) await this.show("");
    goToEnd();
  }

  // By number, by the id of a message, part or turn, or by a time; the server says which message is meant.
  async goTo(place) {
    const found = document.getElementById(`msg-${place}`);
    if (!found) await this.show(`?at=${encodeURIComponent(place)}`);
    const message = found ?? this.transcript.root.querySelector("[data-here]");
    if (message) goToMessage(message);
    return message;
  }

  // What came at the end by itself. Who reads further up loses nothing that they see.
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
      const part = await fetchPart(button.dataset.load);
      if (edge.isConnected) keepingPlace(() => this.#extend(edge, part));
      this.#isLoading = false;
      this.#changed();
    } catch {
      this.#isLoading = false;
      button.disabled = false;
      button.textContent = "That could not be loaded. Try again.";
    }
  }

  #extend(edge, part) {
    this.transcript.extend(edge, part);
    this.#trim(edge.dataset.more);
  }

  #changed() {
    // Anew, or an edge that is near still would not be told of again.
    this.observer.disconnect();
    this.watch();
    if (this.transcript.hasTail) this.transcript.lookForNew();
    this.onChange();
  }

  // One side grew: what is too much goes on the other.
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
