// The messages on the page, which are those of one branch. The server renders all HTML but that of a running answer; this
// inserts each message once, in order of seq.
import { LiveTexts } from "../session/live.js";
import { fetchPart } from "../support/api.js";
import { enhance } from "../support/enhance.js";
import { released } from "../support/press.js";
import { LiveDrawing } from "./live-drawing.js";
import { keepingPlace } from "./scrolling.js";
import { selectAgain, selectionIn } from "./selection.js";

const GATHER = 30; // milliseconds: events come in bursts, and one request serves them all

// Describes the focused element of a message so that it can be found in a newer version: by the nearest element with an
// id and, within that, by position. Links are matched by their address.
function focusIn(message) {
  const element = document.activeElement;
  if (element === message || !message.contains(element)) return null;
  const named = element.closest("[id]");
  const href = element.getAttribute("href");
  const selector = href ? `${element.localName}[href="${CSS.escape(href)}"]` : element.localName;
  return { id: named.id, selector, index: [...named.querySelectorAll(selector)].indexOf(element) };
}

// Restores the focus. If the element is gone, its message gets the focus, so that Tab does not restart at the top.
function focusAgain(message, { id, selector, index }) {
  const named = document.getElementById(id);
  const place = index < 0 ? named : named?.querySelectorAll(selector)[index];
  if (!place) message.tabIndex = -1;
  (place ?? message).focus({ preventScroll: true });
}

const bodyOf = (message) => message.querySelector("[data-body]");

function newLive({ index, type }) {
  const place = document.createElement("div");
  place.className = type === "reasoning" ? "live live-reasoning" : "live prose";
  place.dataset.live = index;
  place.dir = "auto";
  return place;
}

export class Transcript {
  #dirty = new Set();
  #wantsNew = false;
  #timer = 0;
  #busy = false;
  #final = new Set();
  texts = new LiveTexts();
  drawing = new LiveDrawing();

  // onGrown() is called after new messages were added at the end.
  constructor(root, { path, branch, onChange, onGrown }) {
    Object.assign(this, { root, path, branch, onChange, onGrown });
  }

  // Returns the address of something of the branch that is shown.
  onBranch(path) {
    return `${path}${path.includes("?") ? "&" : "?"}branch=${this.branch}`;
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

  // False while the page shows an older stretch that does not reach the newest message.
  get hasTail() {
    return !this.edge("newer");
  }

  // True where nothing has been said on the branch yet.
  get hasEmptyEnd() {
    return Boolean(this.root.querySelector(":scope > [data-branch-end]"));
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

  // A message was created: fetch everything newer than the last message on the page.
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

  // Takes more text of a running answer; returns false if text before it is missing.
  takeDelta(delta) {
    if (this.#final.has(delta.message_id)) return true;
    const part = this.texts.take(delta);
    if (part === undefined) return false;
    if (part === null) return true;
    const message = this.message(delta.message_id);
    if (message) this.#showLive(message, part);
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

  // Schedules a failed request again, unless the server rejected it (4xx).
  #again(error, wish) {
    if (error.status >= 400 && error.status < 500) return;
    wish();
    throw error;
  }

  async #fetchNew() {
    if (!this.hasTail) return;
    const { branch } = this;
    const part = await fetchPart(this.onBranch(`${this.path}?after=${this.lastSeq}`));
    await released();
    if (branch !== this.branch) return; // another one is shown by now, with what is new on it
    if (part.querySelector('[data-more="newer"]')) this.#wantsNew = true;
    keepingPlace(() => {
      for (const message of part.querySelectorAll(".message")) this.#put(message);
      this.onGrown();
    });
  }

  async #fetchMessage(id) {
    const part = await fetchPart(this.onBranch(`${this.path}${encodeURIComponent(id)}/`));
    await released();
    if (this.message(id)) keepingPlace(() => this.#put(part.querySelector(".message")));
  }

  // Replaces the whole page with another stretch of messages.
  replaceAll(part) {
    const messages = [...part.querySelectorAll(".message")];
    this.root.replaceChildren(...part.children);
    for (const message of messages) this.#settle(message);
  }

  // Replaces an edge of the page with more messages.
  extend(edge, part) {
    const messages = [...part.querySelectorAll(".message")].filter((message) => !document.getElementById(message.id));
    edge.replaceWith(...[...part.children].filter((child) => child.matches("[data-more]") || messages.includes(child)));
    for (const message of messages) this.#settle(message);
  }

  #put(message) {
    const old = document.getElementById(message.id);
    enhance(message); // before inserting it, so that the focus can return to the same button
    const selected = old && selectionIn(bodyOf(old));
    if (old) this.#replace(old, message);
    else this.#insert(message);
    this.#settle(message);
    if (selected) selectAgain(bodyOf(message), selected);
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
    // What a person has entered for a call that waits stays: the form itself is moved into the newer message.
    for (const form of old.querySelectorAll(".approval")) message.querySelector(`#${CSS.escape(form.id)}`)?.replaceWith(form);
    old.replaceWith(message);
    for (const id of open) document.getElementById(id)?.setAttribute("open", "");
    if (focused) focusAgain(message, focused);
  }

  #insert(message) {
    const seq = Number(message.dataset.seq);
    const next = this.messages.find((other) => Number(other.dataset.seq) > seq);
    this.root.querySelector(":scope > [data-branch-end]")?.remove(); // now something is said there
    this.root.insertBefore(message, next ?? this.edge("newer"));
  }

  #showLive(message, part) {
    const body = bodyOf(message);
    // The server has already rendered this part in full.
    if (body.querySelector(`:scope > [data-part="${part.index}"]`)) return;
    const place = body.querySelector(`:scope > [data-live="${part.index}"]`) ?? body.appendChild(newLive(part));
    this.drawing.draw(place, part);
  }
}
