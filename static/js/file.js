// A text of any length: only the lines that are seen are on the page; the scroll bar is that of the whole.
import { fetchPart } from "./api.js";

const TALLEST = 12_000_000; // pixels: browsers cut off what is much taller
const KEPT = 3; // stretches above and below what is seen
const SETTLE = 60; // milliseconds: who drags the bar across a file asks for nothing on the way

class Viewer {
  #blocks = new Map();
  #marked = 0;
  #timer = 0;

  constructor(root, status) {
    Object.assign(this, { root, status });
    this.total = Number(root.dataset.total);
    this.step = Number(root.dataset.step);
    const lines = [...root.children];
    this.height = lines[0].getBoundingClientRect().height;
    this.sheet = document.createElement("div");
    this.sheet.className = "viewer-sheet";
    this.sheet.style.height = `${Math.min(this.total * this.height, TALLEST)}px`;
    const first = Number(lines[0].dataset.line);
    root.replaceChildren(this.sheet);
    root.classList.add("viewer-live");
    if ((first - 1) % this.step === 0) this.#put((first - 1) / this.step, lines);
    root.addEventListener("scroll", () => this.draw(), { passive: true });
    addEventListener("resize", () => this.draw());
    this.goTo(first);
  }

  get #range() {
    return Math.max(1, this.sheet.offsetHeight - this.root.clientHeight);
  }

  // Lines above the top edge, as a fraction. The bar of a very long text is coarser than its lines.
  get #above() {
    const hidden = Math.max(0, this.total - this.root.clientHeight / this.height);
    return Math.min(1, this.root.scrollTop / this.#range) * hidden;
  }

  // Show a line a little below the upper edge.
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
      if (!this.#blocks.has(index)) this.#put(index, [...part.children]);
      this.draw();
    } catch (error) {
      this.status.textContent = `${error.message} Scroll to try again.`;
    }
  }

  #showMark() {
    this.root.querySelector(".line-hit")?.classList.remove("line-hit");
    if (this.#marked) this.root.querySelector(`[data-line="${this.#marked}"]`)?.classList.add("line-hit");
  }
}

class Search {
  #query = "";
  #hits = [];
  #at = -1;

  constructor(form, viewer, status) {
    Object.assign(this, { form, viewer, status });
    this.input = form.elements.q;
    this.before = document.getElementById("hit-before");
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.go(1);
    });
    this.before.addEventListener("click", () => this.go(-1));
    this.input.addEventListener("keydown", (event) => {
      if (event.key !== "Enter" || !event.shiftKey) return;
      event.preventDefault();
      this.go(-1);
    });
  }

  async go(step) {
    const query = this.input.value;
    if (!query.trim()) return;
    if (query !== this.#query) await this.#find(query);
    if (!this.#hits.length) return;
    this.#at = (this.#at + step + this.#hits.length) % this.#hits.length;
    const hit = this.#hits[this.#at];
    this.viewer.mark(hit.line);
    const many = this.#hits.length >= 1_000 ? "the first 1000 lines" : `${this.#hits.length} line${this.#hits.length === 1 ? "" : "s"}`;
    this.status.textContent = `${this.#at + 1} of ${many} with it: line ${hit.line}`;
  }

  async #find(query) {
    this.status.textContent = "Searching…";
    this.#hits = [];
    this.#at = -1;
    try {
      const answer = await fetch(`${this.form.dataset.search}?q=${encodeURIComponent(query)}`, { headers: { "HX-Request": "true" } });
      if (!answer.ok) throw new Error(`status ${answer.status}`);
      this.#hits = (await answer.json()).items;
      this.#query = query;
      this.status.textContent = this.#hits.length ? "" : "Nothing was found.";
    } catch {
      this.status.textContent = "The search gave no answer. Try again.";
    }
    this.before.disabled = !this.#hits.length;
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
