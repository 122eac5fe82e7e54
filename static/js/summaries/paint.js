// Paints a summary DAG on a canvas: one row per depth, with the messages as the base line. A summary is placed by its
// depth and its messages. Summaries too narrow to see are merged with their neighbours into a block.
import { formatNumber, gettext } from "../support/i18n.js";
import { ACTIVE, CONDENSED, STALE } from "./graph.js";

const ROW = { height: 64, label: 17, bar: 32, old: 5 };
const BASE = 46;
const TOP = 6;
const SIDE = 10;
const LEAST = 4; // pixels: narrower summaries become blocks
const BLOCK = 22; // pixels: approximate width of a block
const READABLE = 16; // pixels: wider summaries are drawn as cards with a band
const FONT = "12px system-ui, sans-serif";

export class Painter {
  constructor(canvas, graph) {
    Object.assign(this, { canvas, graph, inks: {}, patterns: {} });
    this.pen = canvas.getContext("2d");
    this.size = { width: 0, height: 0 };
  }

  get contentHeight() {
    return TOP + this.graph.rows.length * ROW.height + BASE;
  }

  // How far the rows can scroll, in pixels.
  get overflow() {
    return Math.max(0, this.contentHeight - this.size.height);
  }

  get innerWidth() {
    return Math.max(1, this.size.width - 2 * SIDE);
  }

  resize(width, height) {
    const ratio = window.devicePixelRatio || 1;
    this.size = { width, height };
    this.canvas.width = Math.round(width * ratio);
    this.canvas.height = Math.round(height * ratio);
    this.pen.setTransform(ratio, 0, 0, ratio, 0, 0);
  }

  // Reads the colours from the legend, so they follow the theme.
  readInks(root) {
    for (const element of root.querySelectorAll("[data-ink]")) this.inks[element.dataset.ink] = getComputedStyle(element).color;
    this.patterns = { 2: this.#pattern(this.inks["level-2"], 2), 3: this.#pattern(this.inks["level-3"], 3) };
  }

  x(seq, view) {
    return SIDE + ((seq - view.from) * this.innerWidth) / (view.to - view.from);
  }

  seq(x, view) {
    return view.from + ((x - SIDE) * (view.to - view.from)) / this.innerWidth;
  }

  rowTop(index, view) {
    return TOP + index * ROW.height - view.top;
  }

  paint(view, marked) {
    const { pen, size } = this;
    this.marked = marked;
    pen.clearRect(0, 0, size.width, size.height);
    pen.font = FONT;
    pen.textBaseline = "middle";
    pen.save();
    pen.beginPath();
    pen.rect(0, 0, size.width, size.height - BASE);
    pen.clip();
    const drawn = this.graph.rows.map((row, index) => [row, this.rowTop(index, view)]);
    const shown = drawn.filter(([, top]) => top > -ROW.height && top < size.height - BASE);
    const segments = shown.map(([row, top]) => [row, top, [...this.#segments(row, view)]]);
    for (const [, top, parts] of segments) this.#paintEdges(parts, top, view);
    for (const [row, top, parts] of segments) this.#paintRow(row, top, parts, view);
    pen.restore();
    this.#paintBase(view);
  }

  // Returns the thing at a point: {place}, {block: {first, last, count}}, {seq} or null.
  hit(x, y, view) {
    if (y > this.size.height - BASE) {
      const seq = Math.round(this.seq(x, view));
      return seq >= 1 && seq <= this.graph.messages ? { seq } : null;
    }
    const index = Math.floor((y + view.top - TOP) / ROW.height);
    const row = this.graph.rows[index];
    if (!row) return null;
    const within = y - this.rowTop(index, view);
    if (within >= ROW.label + ROW.bar && row.old.length) return this.#hitOld(row, x, view);
    for (const part of this.#segments(row, view)) {
      if (x < part.left || x > Math.max(part.right, part.left + 2)) continue;
      return part.places.length === 1 ? { place: part.places[0] } : { block: this.#spanOf(part.places) };
    }
    return null;
  }

  #hitOld(row, x, view) {
    const seq = this.seq(x, view);
    // The latest superseded revision at this point.
    const place = row.old.findLast((one) => this.graph.firsts[one] - 0.5 <= seq && this.graph.lasts[one] + 0.5 >= seq);
    return place === undefined ? null : { place };
  }

  #spanOf(places) {
    return { first: this.graph.firsts[places[0]], last: Math.max(...places.map((place) => this.graph.lasts[place])), count: places.length };
  }

  // The visible summaries of a row from left to right; narrow neighbours are merged.
  *#segments(row, view) {
    const { graph } = this;
    let block = null;
    for (let at = graph.firstFrom(row.nodes, view.from - 1); at < row.nodes.length; at += 1) {
      const place = row.nodes[at];
      if (graph.firsts[place] > view.to + 1) break;
      const left = this.x(graph.firsts[place] - 0.5, view);
      const right = this.x(graph.lasts[place] + 0.5, view);
      if (block && (right - left >= LEAST || right - block.left > BLOCK || left - block.right > LEAST)) {
        yield block;
        block = null;
      }
      if (right - left >= LEAST) yield { left, right, places: [place] };
      else if (block) Object.assign(block, { right, places: [...block.places, place] });
      else block = { left, right, places: [place] };
    }
    if (block) yield block;
  }

  #paintEdges(parts, top, view) {
    const { pen, graph, inks, marked } = this;
    for (const { left, right, places } of parts) {
      if (places.length > 1 || right - left < LEAST) continue;
      for (const parent of graph.above[places[0]] ?? []) {
        const parentTop = this.rowTop(graph.rowOf.get(graph.depths[parent]), view);
        const isMarked = marked.lineage?.has(places[0]) && marked.lineage.has(parent);
        const x = Math.min(Math.max((Math.max(left, 0) + Math.min(right, this.size.width)) / 2, 1), this.size.width - 1);
        pen.strokeStyle = isMarked ? inks.chosen : inks.line;
        pen.lineWidth = isMarked ? 2 : 1;
        pen.beginPath();
        pen.moveTo(x, parentTop + ROW.label + ROW.bar);
        pen.lineTo(x, top + ROW.label);
        pen.stroke();
      }
    }
  }

  #paintRow(row, top, parts, view) {
    for (const part of parts) {
      const isFaint = this.marked.lineage && !part.places.some((place) => this.marked.lineage.has(place));
      this.pen.globalAlpha = isFaint ? 0.38 : 1;
      if (part.places.length > 1) this.#paintBlock(part, top);
      else this.#paintNode(part, top);
    }
    this.pen.globalAlpha = 1;
    for (const place of row.old) this.#paintOld(place, top, view);
    this.#paintLabel(row, top);
    const chosen = parts.find((part) => part.places.includes(this.marked.place));
    if (chosen) this.#paintFrame(chosen, top + ROW.label);
  }

  #paintLabel(row, top) {
    const { pen, inks } = this;
    const count = formatNumber(row.nodes.length);
    const text = row.depth ? gettext("Depth %(depth)s · %(count)s", { depth: row.depth, count }) : gettext("Leaves · %(count)s", { count });
    pen.fillStyle = inks.surface;
    pen.fillRect(4, top + 1, pen.measureText(text).width + 12, ROW.label - 2);
    pen.fillStyle = inks.soft;
    pen.fillText(text, SIDE, top + ROW.label / 2 + 0.5);
  }

  #fill(level) {
    return this.patterns[level] ?? this.inks["level-1"];
  }

  #paintNode({ left, right, places: [place] }, top) {
    const { pen, graph, inks } = this;
    const [y, height] = [top + ROW.label, ROW.bar];
    const level = graph.levels[place];
    const width = Math.max(1.5, right - left - (right - left > 6 ? 2 : 0.5));
    const shape = new Path2D();
    shape.roundRect(left, y, width, height, graph.is(place, CONDENSED) ? Math.min(10, width / 2) : Math.min(2, width / 2));
    if (width < READABLE) {
      pen.fillStyle = this.#fill(level);
      pen.fill(shape);
    } else this.#paintCard(shape, { left, y, width, height }, place);
    pen.setLineDash(graph.is(place, STALE) ? [4, 3] : []);
    pen.strokeStyle = graph.is(place, STALE) ? inks.stale : graph.is(place, ACTIVE) ? inks.active : inks.line;
    pen.lineWidth = graph.is(place, STALE) || graph.is(place, ACTIVE) ? 2 : 1;
    if (width >= LEAST) pen.stroke(shape);
    pen.setLineDash([]);
  }

  #paintCard(shape, { left, y, width, height }, place) {
    const { pen, graph, inks } = this;
    const level = graph.levels[place];
    pen.save();
    pen.clip(shape);
    pen.fillStyle = inks[`wash-${level}`] ?? inks["wash-1"];
    pen.fillRect(left, y, width, height);
    pen.fillStyle = this.#fill(level);
    pen.fillRect(left, y, width, 7);
    pen.fillStyle = inks.ink;
    // Keep the text visible when the card is wider than the window.
    const [start, end] = [Math.max(left, SIDE), Math.min(left + width, this.size.width - 4)];
    const text = this.#fitting(this.#texts(place), end - start - 14);
    pen.fillText(text, start + 7, y + 7 + (height - 7) / 2 + 0.5);
    pen.restore();
  }

  #texts(place) {
    const { graph } = this;
    const dot = graph.is(place, ACTIVE) ? "● " : "";
    const level = graph.levels[place] > 1 ? `${gettext("L%(level)s", { level: graph.levels[place] })} · ` : "";
    const span = graph.span(place);
    const tokens = gettext("%(tokens)s tokens", { tokens: formatNumber(graph.tokens[place]) });
    const stale = graph.is(place, STALE) ? ` · ${gettext("stale")}` : "";
    return [
      `${dot}${level}${span} · ${tokens}${stale}`,
      `${dot}${level}${span}${stale}`,
      `${dot}${level}${span}`,
      `${dot}${span}`,
      span,
      dot.trim(),
    ];
  }

  #fitting(texts, width) {
    return texts.find((text) => this.pen.measureText(text).width <= width) ?? "";
  }

  #paintFrame({ left, right }, y) {
    this.pen.strokeStyle = this.inks.chosen;
    this.pen.lineWidth = 3;
    this.pen.strokeRect(left - 1.5, y - 1.5, Math.max(right - left, 4) + 1, ROW.bar + 3);
  }

  #paintBlock({ left, right, places }, top) {
    const { pen, inks } = this;
    const [y, height] = [top + ROW.label, ROW.bar];
    const width = Math.max(2, right - left - 1);
    pen.fillStyle = inks["wash-1"];
    pen.fillRect(left, y, width, height);
    pen.fillStyle = inks["level-1"];
    pen.fillRect(left, y, width, 7);
    for (let x = left + 1; x < left + width - 1; x += 3) pen.fillRect(x, y + 10, 1.5, height - 12);
    for (const place of places) this.#paintMarks(place, y, height, { left, right, places });
  }

  // Marks inside a block, so that one bad summary among many stays visible.
  #paintMarks(place, y, height, { left, right, places }) {
    const { pen, graph, inks } = this;
    const level = graph.levels[place];
    const [first, last] = [graph.firsts[places[0]], graph.lasts[places.at(-1)]];
    const x = left + ((graph.firsts[place] - first) / (last - first + 1)) * (right - left);
    const mark = (ink, top, thick, width = 2) => {
      pen.fillStyle = ink;
      pen.fillRect(Math.min(x, right - width - 1), top, width, thick);
    };
    // Level 2 is not a warning, so it only fills its share of the block.
    if (level === 2) mark(inks["level-2"], y, 7, (right - left) / places.length);
    if (level === 3) mark(inks["level-3"], y, 12);
    if (graph.is(place, STALE)) mark(inks.stale, y + 12, height - 12);
    if (graph.is(place, ACTIVE)) mark(inks.active, y + height - 4, 4);
  }

  #paintOld(place, top, view) {
    const { pen, graph, inks, marked } = this;
    const left = this.x(graph.firsts[place] - 0.5, view);
    const right = this.x(graph.lasts[place] + 0.5, view);
    if (right < 0 || left > this.size.width) return;
    pen.strokeStyle = marked.place === place ? inks.chosen : inks.old;
    pen.lineWidth = marked.place === place ? 4 : 2;
    pen.setLineDash([5, 3]);
    pen.beginPath();
    pen.moveTo(left + 1, top + ROW.label + ROW.bar + ROW.old);
    pen.lineTo(Math.max(left + 2, right - 2), top + ROW.label + ROW.bar + ROW.old);
    pen.stroke();
    pen.setLineDash([]);
  }

  #paintBase(view) {
    const { pen, graph, inks, size } = this;
    const y = size.height - BASE + 14;
    const [left, right] = [this.x(0.5, view), this.x(graph.messages + 0.5, view)];
    pen.fillStyle = inks.line;
    pen.fillRect(left, y - 2, right - left, 4);
    for (const [first, last] of graph.verbatim) {
      const start = this.x(first - 0.5, view);
      pen.fillStyle = inks.active;
      pen.fillRect(start, y - 5, Math.max(2, this.x(last + 0.5, view) - start), 10);
    }
    this.#paintMessages(y, view);
    this.#paintTicks(y, view);
  }

  // Separates single messages when there is room.
  #paintMessages(y, view) {
    const { pen, inks, graph, marked } = this;
    const step = this.innerWidth / (view.to - view.from);
    if (step >= 7) {
      pen.fillStyle = inks.surface;
      const last = Math.min(graph.messages, Math.ceil(view.to));
      for (let seq = Math.max(1, Math.floor(view.from)); seq < last; seq += 1) pen.fillRect(this.x(seq + 0.5, view) - 0.75, y - 6, 1.5, 12);
    }
    if (!marked.seq) return;
    pen.strokeStyle = inks.chosen;
    pen.lineWidth = 3;
    pen.strokeRect(this.x(marked.seq - 0.5, view) - 1, y - 8, Math.max(4, step) + 2, 16);
  }

  #paintTicks(y, view) {
    const { pen, inks, graph, size } = this;
    const least = ((view.to - view.from) * 64) / this.innerWidth;
    const power = 10 ** Math.floor(Math.log10(Math.max(1, least)));
    const step = [1, 2, 5, 10].map((factor) => factor * power).find((one) => one >= least) ?? power * 10;
    pen.fillStyle = inks.soft;
    const name = gettext("Message");
    pen.fillText(name, SIDE, y + 22);
    const from = SIDE + pen.measureText(name).width + 10;
    for (let seq = Math.max(step, Math.ceil(view.from / step) * step); seq <= Math.min(graph.messages, view.to); seq += step) {
      const [text, x] = [formatNumber(seq), this.x(seq, view)];
      pen.fillRect(x, y + 6, 1, 5);
      const start = x - pen.measureText(text).width / 2;
      if (start > from && start + pen.measureText(text).width < size.width) pen.fillText(text, start, y + 22);
    }
  }

  // Level 2 is striped and level 3 checked, so that they differ without colour too.
  #pattern(ink, level) {
    const tile = document.createElement("canvas");
    tile.width = tile.height = 6;
    const pen = tile.getContext("2d");
    pen.fillStyle = this.inks.surface;
    pen.fillRect(0, 0, 6, 6);
    pen.fillStyle = ink;
    if (level === 2) pen.fillRect(0, 0, 4, 6);
    else {
      pen.fillRect(0, 0, 3, 3);
      pen.fillRect(3, 3, 3, 3);
    }
    return this.pen.createPattern(tile, "repeat");
  }
}
