// Marks where the conversation was compacted: compaction_app renders the dividers, and this puts them between the messages.
import { fetchPart } from "../support/api.js";
import { enhance } from "../support/enhance.js";
import { gettext } from "../support/i18n.js";
import { released } from "../support/press.js";
import { keepingPlace } from "./scrolling.js";

const GATHER = 60;

function outMark() {
  const mark = document.createElement("span");
  mark.className = "message-out small";
  mark.textContent = gettext("no longer sent as written");
  return mark;
}

// A click that has begun must end on the same element, so the divider itself stays.
function replaceParts(shown, divider) {
  shown.dataset.measured = divider.dataset.measured;
  for (const part of [".divider-line", ".divider-body"]) shown.querySelector(part).replaceWith(divider.querySelector(part));
}

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
    const { branch } = this.transcript;
    const part = await fetchPart(this.transcript.onBranch(`${this.path}?first=${first}${hasTail ? "" : `&last=${lastSeq}`}`));
    await released();
    if (branch !== this.transcript.branch) return;
    const dividers = [...part.querySelectorAll(".divider")];
    const spans = part.querySelector(".out-of-context").dataset.spans.split(" ").filter(Boolean);
    keepingPlace(() => {
      this.#show(dividers);
      this.#mark(spans.map((span) => span.split("-").map(Number)));
    });
  }

  #show(dividers) {
    this.tail.replaceChildren(...dividers.filter((divider) => "live" in divider.dataset));
    for (const divider of dividers) {
      if ("live" in divider.dataset) continue;
      const shown = document.getElementById(divider.id);
      // What a compaction has kept is measured after its end, one summary after the other.
      if (shown && (shown.open || shown.dataset.measured === divider.dataset.measured)) continue;
      if (shown) replaceParts(shown, divider);
      else this.#insert(divider);
      window.htmx.process(shown ?? divider);
      enhance(shown ?? divider);
    }
  }

  // Dims and labels the messages that a summary has replaced in the context.
  #mark(spans) {
    let at = 0;
    for (const message of this.transcript.messages) {
      const seq = Number(message.dataset.seq);
      while (at < spans.length && spans[at][1] < seq) at += 1;
      const isOut = at < spans.length && spans[at][0] <= seq;
      if (isOut === "out" in message.dataset) continue;
      message.toggleAttribute("data-out", isOut);
      message.querySelector(".message-out")?.remove();
      if (isOut) message.querySelector(".message-head")?.append(outMark());
    }
  }

  #insert(divider) {
    const after = Number(divider.dataset.after);
    const next = this.transcript.messages.find((message) => Number(message.dataset.seq) > after);
    this.transcript.root.insertBefore(divider, next ?? this.transcript.edge("newer"));
  }
}
