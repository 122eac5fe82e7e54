// Where the conversation was compacted: dividers come from the app that knows, and are put between the messages.
import { fetchPart } from "./api.js";
import { dress } from "./dress.js";
import { keepingPlace } from "./scrolling.js";

const GATHER = 60;

export class Dividers {
  #timer = 0;

  constructor(transcript, tail, path) {
    Object.assign(this, { transcript, tail, path });
  }

  refresh() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#fetch().catch(() => {}), GATHER);
  }

  async #fetch() {
    const { firstSeq, lastSeq, hasTail } = this.transcript;
    const first = firstSeq <= 1 ? 0 : firstSeq;
    const part = await fetchPart(`${this.path}?first=${first}${hasTail ? "" : `&last=${lastSeq}`}`);
    const dividers = [...part.querySelectorAll(".divider")];
    keepingPlace(() => this.#show(dividers));
  }

  #show(dividers) {
    this.tail.replaceChildren(...dividers.filter((divider) => "live" in divider.dataset));
    for (const divider of dividers) {
      if ("live" in divider.dataset || document.getElementById(divider.id)) continue;
      this.#insert(divider);
      window.htmx.process(divider);
      dress(divider);
    }
  }

  #insert(divider) {
    const after = Number(divider.dataset.after);
    const next = this.transcript.messages.find((message) => Number(message.dataset.seq) > after);
    this.transcript.root.insertBefore(divider, next ?? null);
  }
}
