// The table of summaries beside the conversation: pointing at one, or at a sentence of it, lights up its messages there.
import { fetchPart } from "../support/api.js";
import { enhance } from "../support/enhance.js";
import { formatNumber, gettext, ngettext } from "../support/i18n.js";

const HINT = gettext("Point at a summary to highlight its messages in the conversation. Select it to go there.");
const spanOf = ([first, last]) => (first === last ? formatNumber(first) : `${formatNumber(first)}–${formatNumber(last)}`);
const sourceAt = (target) => target.closest?.("[data-messages]");

// "3-14 20" as runs of numbers
function runsIn(text) {
  const runs = text.split(" ").filter(Boolean).map((run) => run.split("-").map(Number));
  return runs.map(([first, last = first]) => [first, last]);
}

export class Summaries {
  #held = null; // what was chosen stays lit
  #text = "";
  #runs = [];
  #isLoaded = false;
  #watch = new MutationObserver(() => this.#show()); // more messages may have come

  constructor(panel, { page, transcript, onError, goTo }) {
    Object.assign(this, { panel, page, transcript, onError, goTo });
    this.said = panel.querySelector(".lens-said");
    this.body = panel.querySelector("[data-body]");
    panel.addEventListener("pointerover", ({ target }) => this.#light(sourceAt(target) ?? this.#held));
    panel.addEventListener("pointerleave", () => this.#light(this.#held));
    panel.addEventListener("focusin", ({ target }) => sourceAt(target) && this.#light(sourceAt(target)));
    panel.addEventListener("focusout", () => this.#light(this.#held));
    panel.addEventListener("click", ({ target }) => target.closest("[data-expand], [data-load]") || this.#choose(sourceAt(target)));
    panel.addEventListener("keydown", ({ key, target }) => key === "Enter" && this.#choose(sourceAt(target)));
  }

  async show({ id, seq }) {
    this.#watch.observe(this.transcript.root, { childList: true });
    if (this.#isLoaded) return this.#light(this.#held);
    const query = new URLSearchParams({ view: "table", ...(id && { id }), ...(seq && { seq }) });
    const part = await fetchPart(this.transcript.onBranch(`${this.page}?${query}`));
    this.body.replaceChildren(...part.querySelectorAll("#dag-head, #dag, #inspect > .empty"));
    const head = this.body.querySelector("#dag-head");
    head.querySelector(".dag-toggle")?.remove();
    delete head.dataset.own; // this page is told of events already
    window.htmx.process(this.body);
    enhance(this.body);
    this.#isLoaded = Boolean(this.body.querySelector("#tree"));
    if (this.#isLoaded) await import("../summaries/table.js");
    return this.#show();
  }

  hide() {
    this.#watch.disconnect();
    this.#light(null);
  }

  take(type) {
    if (!/^(summary\.|branch\.chosen)/.test(type)) return;
    if (!this.#isLoaded) this.show({}).catch(this.onError);
    else this.body.querySelector("#tree-news").hidden = false;
  }

  #choose(source) {
    if (!source) return;
    this.#held = source;
    this.#light(source);
    this.transcript.root.querySelector("[data-lit]")?.scrollIntoView({ block: "center" });
  }

  #light(source) {
    const text = source?.isConnected ? source.dataset.messages : "";
    if (text === this.#text) return; // a link in the words that is being clicked stays
    this.#text = text;
    this.#runs = runsIn(text);
    this.#show();
  }

  #show() {
    for (const message of this.transcript.messages) {
      const seq = Number(message.dataset.seq);
      message.toggleAttribute("data-lit", this.#runs.some(([first, last]) => first <= seq && seq <= last));
    }
    this.said.replaceChildren(...(this.#runs.length ? this.#words(this.#runs) : [this.#isLoaded ? HINT : ""]));
  }

  // Which messages they are, with the way to the first one where not all are on the page.
  #words(runs) {
    const { firstSeq, lastSeq } = this.transcript;
    const [first, last] = [runs[0][0], runs.at(-1)[1]];
    const [width, values] = [last - first + 1, { messages: runs.map(spanOf).join(", ") }];
    if (firstSeq <= first && last <= lastSeq) return [ngettext("Message %(messages)s: highlighted in the conversation.", "Messages %(messages)s: highlighted in the conversation.", width, values)];
    const words = gettext("Go to message %(number)s", { number: formatNumber(first) });
    const link = Object.assign(document.createElement("a"), { href: `?at=${first}`, textContent: words });
    const isNone = last < firstSeq || lastSeq < first;
    const none = ngettext("Message %(messages)s: not loaded in the conversation.", "Messages %(messages)s: not loaded in the conversation.", width, values);
    return [isNone ? none : gettext("Messages %(messages)s: not all of them are loaded in the conversation.", values), " ", link];
  }
}
