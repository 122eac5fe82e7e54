// Draws answers as they are written. What has been said never changes, and a block of Markdown is complete once another one
// has begun, so only the last block of a text is drawn again when the text grows.
import { keepingPlace } from "./scrolling.js";

const SHARE = 4; // drawing takes at most one part in so many of the time
const LONGEST = 500; // milliseconds: a text that takes longer is shown as it is, until the server draws it
const BLOCKS = "p, ul, ol, li, blockquote, h3, h4, h5, h6, figure:not(.math), pre, pre > code";
// A line that has only begun with what may become a heading, a list or a fence.
const MARK = /(?<=^|\n)[ \t]*(?:[-*+=#`~>|]+|\d{1,9}[.)]?)[ \t]*$/;
// The names of a table's columns, and what there is of the line below them, by which they are a table.
const NAMES = /(?<=^|(?<!\|[ \t]*)\n)( {0,3}\|[^\n]*)(?:\n[ \t|:-]*)?$/;

function withTable(source) {
  return source.replace(NAMES, (_, names) => {
    const columns = names.trim().replace(/^\||(?<!\\)\|$/g, "").split(/(?<!\\)\|/).length;
    return `${names}\n${"|-".repeat(columns)}|`;
  });
}

// Makes the children of a node, from one on, those that are wanted. What is the same stays in place, because the user may
// have selected text in it.
function morph(node, wanted, from = 0) {
  let at = 0;
  while (at < wanted.length && node.childNodes[from + at]?.isEqualNode(wanted[at])) at += 1;
  const old = node.childNodes[from + at];
  if (at < wanted.length && old?.nodeType === Node.ELEMENT_NODE && old.cloneNode().isEqualNode(wanted[at].cloneNode())) {
    morph(old, [...wanted[at].childNodes]);
    at += 1;
  }
  while (node.childNodes.length > from + at) node.lastChild.remove();
  node.append(...wanted.slice(at));
}

const offsetOf = (text, line) => {
  let at = 0;
  for (; line > 0; line -= 1) at = text.indexOf("\n", at) + 1;
  return at;
};

// Returns the last paragraph, list item or line of code of a place, where the next word will stand.
function deepest(place) {
  let end = place;
  while (end.lastElementChild?.matches(BLOCKS)) end = end.lastElementChild;
  return end;
}

export class Drawing {
  #settled = 0; // characters whose blocks are complete
  #kept = 0; // their elements
  #plain = null; // the text node of what is shown as it is

  constructor(place, isPlain = false) {
    Object.assign(this, { place, isPlain });
  }

  draw(text, blocksOf) {
    const rest = text.slice(this.#settled);
    if (this.isPlain) this.#append(rest);
    else this.#drawBlocks(rest, blocksOf);
  }

  #append(rest) {
    if (!this.#plain) {
      this.#show([], () => this.place);
      this.#plain = this.place.lastElementChild.appendChild(document.createTextNode(""));
    }
    this.#plain.appendData(rest.slice(this.#plain.length));
  }

  #drawBlocks(rest, blocksOf) {
    const source = rest.replace(MARK, "");
    let blocks = blocksOf(source);
    const guess = blocks.at(-1)?.kind === "paragraph_open" ? withTable(source) : source;
    if (guess !== source) blocks = blocksOf(guess);
    const elements = blocks.map((block) => block.draw());
    this.#show(elements.flat(), deepest);
    if (guess !== source || blocks.length < 2) return;
    this.#settled += offsetOf(rest, blocks.at(-1).line);
    this.#kept += elements.slice(0, -1).flat().length;
  }

  #show(elements, endOf) {
    this.place.querySelector(".live-tail")?.remove();
    morph(this.place, elements, this.#kept);
    const tail = document.createElement("span"); // with the cursor
    tail.className = "live-tail";
    endOf(this.place).append(tail);
  }
}

export class LiveDrawing {
  #drawings = new WeakMap();
  #grown = new Map();
  #frame = 0;
  #notBefore = 0;
  #library = null;

  // Loads the library, which the first answer needs.
  prepare() {
    return (this.#library ??= import("../blocks/markdown.js").catch(() => ({})));
  }

  draw(place, part) {
    this.#grown.set(place, part);
    this.#frame ||= requestAnimationFrame(() => this.#drawGrown());
  }

  async #drawGrown() {
    const { blocksOf } = await this.prepare();
    const began = performance.now();
    if (began < this.#notBefore) {
      this.#frame = requestAnimationFrame(() => this.#drawGrown());
      return;
    }
    this.#frame = 0;
    const grown = [...this.#grown];
    this.#grown.clear();
    keepingPlace(() => {
      for (const [place, { text, type }] of grown) {
        if (!this.#drawings.has(place)) this.#drawings.set(place, new Drawing(place, type !== "text" || !blocksOf));
        this.#drawings.get(place).draw(text, blocksOf);
      }
    });
    const took = performance.now() - began;
    this.#notBefore = began + SHARE * took;
    if (took > LONGEST) for (const [place] of grown) this.#drawings.get(place).isPlain = true;
  }
}
