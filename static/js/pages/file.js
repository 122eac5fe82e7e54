// A viewer for texts of any length: only the visible lines are on the page, but the scroll bar covers the whole text.
import { call, fetchPart } from "../support/api.js";
import { formatPercent, gettext, ngettext } from "../support/i18n.js";

const TALLEST = 12_000_000; // pixels: browsers clip elements that are much taller
const KEPT = 3; // blocks kept above and below the visible ones
const PAGE_OF_HITS = 200;
const MOST_HITS = 5_000;
const SETTLE = 60; // milliseconds: dragging the bar across a file loads nothing on the way

class Viewer {
  #blocks = new Map();
  #marked = 0;
  #timer = 0;

  constructor(root, status) {
    Object.assign(this, { root, status });
    this.total = Number(root.dataset.total) || root.children.length;
    this.step = Number(root.dataset.step);
    const lines = [...root.children]; // never empty: an empty file has no viewer
    this.height = lines[0].getBoundingClientRect().height;
    this.sheet = document.createElement("div");
    this.sheet.className = "viewer-sheet";
    const first = Number(lines[0].dataset.line);
    root.replaceChildren(this.sheet);
    root.classList.add("viewer-live");
    this.#stretch();
    if ((first - 1) % this.step === 0) this.#put((first - 1) / this.step, lines);
    root.addEventListener("scroll", () => this.draw(), { passive: true });
    addEventListener("resize", () => this.draw());
    this.goTo(first);
    if (!root.dataset.total) this.#count();
  }

  #stretch() {
    this.sheet.style.height = `${Math.min(this.total * this.height, TALLEST)}px`;
  }

  // For very long texts: each request counts lines for a moment, so repeat until all are counted.
  async #count() {
    try {
      for (let answer = { total: null }; answer.total === null; ) {
        answer = await call("GET", this.root.dataset.count);
        this.total = answer.total ?? this.total;
      }
      this.#stretch();
      this.draw();
    } catch (error) {
      this.status.textContent = gettext("The lines could not be counted. %(reason)s", { reason: error.message });
    }
  }

  get #range() {
    return Math.max(1, this.sheet.offsetHeight - this.root.clientHeight);
  }

  // Lines above the top edge, with a fraction. In a very long text one pixel of the bar stands for several lines.
  get #above() {
    const hidden = Math.max(0, this.total - this.root.clientHeight / this.height);
    return Math.min(1, this.root.scrollTop / this.#range) * hidden;
  }

  // Scrolls so that a line is a third of the way down.
  goTo(number) {
    const seen = this.root.clientHeight / this.height;
    const hidden = Math.max(1, this.total - seen);
    this.root.scrollTop = (Math.max(0, number - 1 - Math.floor(seen / 3)) / hidden) * this.#range;
    this.draw();
  }

  mark(number) {
    this.#marked = number;
    this.#showMark();
    this.goTo(number);
    this.root.scrollIntoView({ block: "nearest" });
  }

  draw() {
    const above = this.#above;
    const first = Math.floor(above / this.step);
    const last = Math.floor(Math.min(this.total - 1, above + this.root.clientHeight / this.height) / this.step);
    for (const [index, block] of this.#blocks) {
      if (index < first - KEPT || index > last + KEPT) {
        block.remove();
        this.#blocks.delete(index);
      } else this.#place(index, block, above);
    }
    clearTimeout(this.#timer);
    const missing = [];
    for (let index = first; index <= last; index += 1) if (!this.#blocks.has(index)) missing.push(index);
    if (missing.length) this.#timer = setTimeout(() => missing.forEach((index) => this.#fetch(index)), SETTLE);
  }

  #place(index, block, above) {
    block.style.top = `${this.root.scrollTop + (index * this.step - above) * this.height}px`;
  }

  #put(index, lines) {
    const block = document.createElement("div");
    block.className = "viewer-block";
    block.append(...lines);
    this.#blocks.set(index, block);
    this.sheet.append(block);
    this.#place(index, block, this.#above);
    this.#showMark();
  }

  async #fetch(index) {
    if (this.#blocks.has(index)) return;
    try {
      const part = await fetchPart(`${this.root.dataset.lines}?first=${index * this.step + 1}`);
      if (part.children.length && !this.#blocks.has(index)) this.#put(index, [...part.children]);
    } catch (error) {
      this.status.textContent = gettext("%(reason)s Scroll to try again.", { reason: error.message });
    }
  }

  #showMark() {
    this.root.querySelector(".line-hit")?.classList.remove("line-hit");
    if (this.#marked) this.root.querySelector(`[data-line="${this.#marked}"]`)?.classList.add("line-hit");
  }
}

class Search {
  #asked = "";
  #hits = [];
  #at = -1;
  #isWhole = true;

  constructor(form, viewer, status) {
    Object.assign(this, { form, viewer, status });
    this.before = document.getElementById("hit-before");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.go(1);
    });
    this.before.addEventListener("click", () => this.go(-1));
    form.elements.q.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !event.shiftKey) return;
      event.preventDefault();
      this.go(-1);
    });
  }

  async go(step) {
    const { q, regex } = this.form.elements;
    if (!q.value.trim()) return;
    const asked = new URLSearchParams({ q: q.value, mode: regex.checked ? "regex" : "text", limit: PAGE_OF_HITS }).toString();
    if (asked !== this.#asked && !(await this.#begin(asked))) return;
    if (!this.#hits.length) return;
    this.#at = (this.#at + step + this.#hits.length) % this.#hits.length;
    this.viewer.mark(this.#hits[this.#at].number);
    this.#say();
  }

  // Searches until the first hit or the end of the file. Further hits are gathered in the background.
  async #begin(asked) {
    this.#asked = asked;
    this.#hits = [];
    this.#at = -1;
    this.#isWhole = false;
    this.before.disabled = true;
    this.status.textContent = gettext("Searching…");
    const pages = this.#pages(asked);
    try {
      while (!this.#hits.length && !(await pages.next()).done);
    } catch (error) {
      this.#asked = "";
      this.status.textContent = error.message;
      return false;
    }
    this.before.disabled = !this.#hits.length;
    if (!this.#hits.length) this.status.textContent = gettext("No results.");
    else this.#gather(pages);
    return true;
  }

  async *#pages(asked) {
    let cursor = "";
    do {
      const page = await call("GET", `${this.form.dataset.search}?${asked}${cursor}`);
      if (asked !== this.#asked) return;
      this.#hits.push(...page.items);
      cursor = page.next_cursor && `&cursor=${encodeURIComponent(page.next_cursor)}`;
      this.#isWhole = !cursor;
      const share = formatPercent(Math.floor((100 * page.searched_bytes) / Math.max(1, page.size)));
      if (!this.#hits.length) this.status.textContent = gettext("Searching… %(share)s", { share });
      yield;
    } while (cursor && this.#hits.length < MOST_HITS);
  }

  async #gather(pages) {
    try {
      while (!(await pages.next()).done) if (this.#at >= 0) this.#say();
    } catch {
      // the hits found so far stay usable
    }
  }

  #say() {
    const { length: hits } = this.#hits;
    const values = { place: this.#at + 1, hits, line: this.#hits[this.#at].number };
    this.status.textContent = this.#isWhole
      ? ngettext("%(place)s of %(hits)s hit: line %(line)s", "%(place)s of %(hits)s hits: line %(line)s", hits, values)
      : gettext("%(place)s of %(hits)s+ hits: line %(line)s", values);
  }
}

const root = document.getElementById("viewer");
const status = document.getElementById("content-status");
document.getElementById("viewer-pages").hidden = true;
const viewer = new Viewer(root, status);
new Search(document.getElementById("content-search"), viewer, status);
const goToHash = () => {
  const number = Number(/^#L(\d+)$/.exec(location.hash)?.[1] ?? 0);
  if (number) viewer.mark(Math.min(number, viewer.total));
};
addEventListener("hashchange", goToHash);
goToHash();
