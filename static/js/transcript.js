// The messages on the page. HTML comes from the server alone; here it is put in its place, once, in order by seq.
import { fetchPart } from "./api.js";
import { enhance } from "./enhance.js";
import { LiveTexts } from "./live.js";
import { keepingPlace } from "./scrolling.js";

const GATHER = 30; // milliseconds: events come in bursts, one look is enough for all of them
const DRAW = 600; // milliseconds between two drawings of a running answer, and one more for each LETTERS of it
const LETTERS = 20;

// Which element of a message has the focus, in words that hold for a newer version of the message: nothing but what is
// named has an identity of its own, and a link is the one that leads to the same place.
function focusIn(message) {
  const element = document.activeElement;
  if (element === message || !message.contains(element)) return null;
  const named = element.closest("[id]");
  const href = element.getAttribute("href");
  const selector = href ? `${element.localName}[href="${CSS.escape(href)}"]` : element.localName;
  return { id: named.id, selector, index: [...named.querySelectorAll(selector)].indexOf(element) };
}

// What is gone hands the focus to its message, so that Tab goes on from there and not from the top of the page.
function focusAgain(message, { id, selector, index }) {
  const named = document.getElementById(id);
  const place = index < 0 ? named : named?.querySelectorAll(selector)[index];
  if (!place) message.tabIndex = -1;
  (place ?? message).focus({ preventScroll: true });
}

const BLOCKS = "p, ul, ol, li, blockquote, h3, h4, h5, h6, figure:not(.math), pre, pre > code";

function newLive({ index, type }) {
  const place = document.createElement("div");
  place.className = type === "reasoning" ? "live live-reasoning" : "live prose";
  place.dataset.live = index;
  place.dir = "auto";
  return place;
}

// The words after those that are drawn stand where the drawing ends, in its last paragraph or item. The drawing may also be
// ahead of the words that have come by the socket: there are none to show then.
function showTail(place, part) {
  if (part.length < Number(place.dataset.length ?? 0)) return;
  const tail = place.querySelector(".live-tail") ?? newTail(place, part);
  tail.firstChild.appendData(part.text.slice(Number(tail.dataset.from) + tail.firstChild.length));
}

function newTail(place, part) {
  const tail = document.createElement("span");
  tail.className = "live-tail";
  tail.dataset.from = Array.from(part.text).slice(0, Number(place.dataset.length ?? 0)).join("").length;
  tail.append(document.createTextNode(""));
  let end = place;
  while (end.lastElementChild?.matches(BLOCKS)) end = end.lastElementChild;
  end.append(tail);
  return tail;
}

// Blocks that are drawn as they were stay: a person may have selected text in them.
function redraw(place, drawn, part) {
  place.querySelector(".live-tail")?.remove();
  const [old, fresh] = [[...place.children], [...drawn.children]];
  const changed = fresh.findIndex((block, at) => block.outerHTML !== old[at]?.outerHTML);
  const kept = changed < 0 ? fresh.length : changed;
  for (const block of old.slice(kept)) block.remove();
  place.append(...fresh.slice(kept));
  place.dataset.length = drawn.dataset.length;
  showTail(place, part);
}

export class Transcript {
  #dirty = new Set();
  #wantsNew = false;
  #timer = 0;
  #busy = false;
  #final = new Set();
  #drawing = 0;
  texts = new LiveTexts();

  // onGrown(): new messages came at the end
  constructor(root, { path, onChange, onGrown }) {
    Object.assign(this, { root, path, onChange, onGrown });
  }

  get messages() {
    return [...this.root.querySelectorAll(":scope > .message")];
  }

  get firstSeq() {
    return Number(this.root.querySelector(":scope > .message")?.dataset.seq ?? 0);
  }

  get lastSeq() {
    return Number(this.messages.at(-1)?.dataset.seq ?? 0);
  }

  // False while the page shows an older stretch, with messages between it and the newest.
  get hasTail() {
    return !this.edge("newer");
  }

  edge(side) {
    return this.root.querySelector(`:scope > [data-more="${side}"]`);
  }

  message(id) {
    return this.root.querySelector(`:scope > [data-message="${CSS.escape(id)}"]`);
  }

  lastOfTurn(turnId) {
    return [...this.root.querySelectorAll(`:scope > [data-turn="${CSS.escape(turnId)}"]`)].at(-1);
  }

  // A message was created: whatever is newer than what is here is asked for, in one go.
  lookForNew() {
    this.#wantsNew = true;
    this.#soon();
  }

  // A message has changed.
  refresh(id) {
    this.#dirty.add(id);
    this.#soon();
  }

  finalize(id) {
    this.#final.add(id);
    this.refresh(id);
  }

  // More text of a running answer; false if text before it is missing.
  takeDelta(delta) {
    if (this.#final.has(delta.message_id)) return true;
    const part = this.texts.take(delta);
    if (part === undefined) return false;
    if (part === null) return true;
    const message = this.message(delta.message_id);
    if (message) keepingPlace(() => this.#showLive(message, part));
    if (message && part.type === "text") this.#drawSoon(delta.message_id, part.length);
    this.onChange();
    return true;
  }

  #soon() {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#flush(), GATHER);
  }

  async #flush() {
    if (this.#busy) return;
    this.#busy = true;
    try {
      while (this.#wantsNew || this.#dirty.size) await this.#fetchOnce();
    } catch {
      this.#timer = setTimeout(() => this.#flush(), 2_000);
    } finally {
      this.#busy = false;
    }
    this.onChange();
  }

  async #fetchOnce() {
    if (this.#wantsNew) {
      this.#wantsNew = false;
      await this.#fetchNew().catch((error) => this.#again(error, () => (this.#wantsNew = true)));
      return;
    }
    const [id] = this.#dirty;
    this.#dirty.delete(id);
    if (!this.message(id)) return;
    await this.#fetchMessage(id).catch((error) => this.#again(error, () => this.#dirty.add(id)));
  }

  // What could not be loaded is wanted still, except where the server says that there is no such thing.
  #again(error, wish) {
    if (error.status >= 400 && error.status < 500) return;
    wish();
    throw error;
  }

  async #fetchNew() {
    if (!this.hasTail) return;
    const part = await fetchPart(`${this.path}?after=${this.lastSeq}`);
    if (part.querySelector('[data-more="newer"]')) this.#wantsNew = true;
    keepingPlace(() => {
      for (const message of part.querySelectorAll(".message")) this.#put(message);
      this.onGrown();
    });
  }

  async #fetchMessage(id) {
    const part = await fetchPart(`${this.path}${encodeURIComponent(id)}/`);
    keepingPlace(() => this.#put(part.querySelector(".message")));
  }

  // Everything on the page makes place for another stretch.
  replaceAll(part) {
    const messages = [...part.querySelectorAll(".message")];
    this.root.replaceChildren(...part.children);
    for (const message of messages) this.#settle(message);
  }

  // More messages stand where an edge of the page was.
  extend(edge, part) {
    const messages = [...part.querySelectorAll(".message")].filter((message) => !document.getElementById(message.id));
    edge.replaceWith(...[...part.children].filter((child) => child.matches("[data-more]") || messages.includes(child)));
    for (const message of messages) this.#settle(message);
  }

  #put(message) {
    const old = document.getElementById(message.id);
    enhance(message); // before it is there, so that a focus finds the button it had
    if (old) this.#replace(old, message);
    else this.#insert(message);
    this.#settle(message);
  }

  #settle(message) {
    if (!("running" in message.dataset)) this.texts.drop(message.dataset.message);
    for (const part of this.texts.of(message.dataset.message).values()) this.#showLive(message, part);
    window.htmx.process(message);
    enhance(message);
  }

  #replace(old, message) {
    const open = [...old.querySelectorAll("details[open][id]")].map((fold) => fold.id);
    const focused = focusIn(old);
    const typed = [...old.querySelectorAll("input[id]")].map((input) => [input.id, input.value]);
    old.replaceWith(message);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    for (const [id, value] of typed) document.getElementById(id)?.setAttribute("value", value);
    if (focused) focusAgain(message, focused);
  }

  #insert(message) {
    const seq = Number(message.dataset.seq);
    const next = this.messages.find((other) => Number(other.dataset.seq) > seq);
    this.root.insertBefore(message, next ?? this.edge("newer"));
  }

  #showLive(message, part) {
    const body = message.querySelector("[data-body]");
    // The server has this part already, whole.
    if (body.querySelector(`:scope > [data-part="${part.index}"]`)) return;
    const place = body.querySelector(`:scope > [data-live="${part.index}"]`) ?? body.appendChild(newLive(part));
    showTail(place, part);
  }

  // A running answer is drawn by the server, as it will be when it is whole; what came since goes on behind it.
  #drawSoon(id, length) {
    this.#drawing ||= setTimeout(async () => {
      await this.#drawLive(id).catch(() => {}); // the next words try again
      this.#drawing = 0;
    }, DRAW + length / LETTERS);
  }

  async #drawLive(id) {
    const drawn = await fetchPart(`${this.path}${encodeURIComponent(id)}/`);
    const message = this.message(id);
    keepingPlace(() => {
      for (const fresh of drawn.querySelectorAll("[data-live]")) {
        const place = message?.querySelector(`[data-live="${fresh.dataset.live}"]`);
        const part = this.texts.of(id).get(Number(fresh.dataset.live));
        if (place && part) redraw(place, fresh, part);
      }
    });
  }
}
