// The summary DAG in the browser: turns the server's columns into rows by depth, and finds ancestors and sources.
import { formatNumber, formatPercent, gettext, ngettext } from "../support/i18n.js";

export const ACTIVE = 1;
export const STALE = 2;
const SUPERSEDED = 4;
export const CONDENSED = 8;

function sums(differences) {
  let sum = 0;
  return differences.map((difference) => (sum += difference));
}

function reach(start, next) {
  const found = new Set();
  const waiting = [...next(start)];
  while (waiting.length) {
    const place = waiting.pop();
    if (found.has(place) || place === start) continue;
    found.add(place);
    waiting.push(...next(place));
  }
  return found;
}

export class Graph {
  constructor(values) {
    this.messages = values.messages;
    this.verbatim = values.verbatim;
    this.ids = values.id;
    this.levels = values.level;
    this.counts = values.count;
    this.tokens = values.tokens;
    this.sourceTokens = values.source;
    this.marks = values.marks;
    this.depths = sums(values.depth);
    this.firsts = sums(values.first);
    this.lasts = this.firsts.map((first, place) => first + values.span[place]);
    this.places = new Map(this.ids.map((id, place) => [id, place]));
    this.#readEdges(values.edges, values.newest);
    this.rows = this.#readRows();
    this.rowOf = new Map(this.rows.map((row, index) => [row.depth, index]));
  }

  is(place, mark) {
    return (this.marks[place] & mark) !== 0;
  }

  // All summaries above this one (built from it) and under it (its sources), at any distance.
  lineage(place) {
    const start = this.newest.get(place) ?? place;
    const above = reach(start, (one) => this.above[one] ?? []);
    const under = reach(start, (one) => this.under[one] ?? []);
    return { above, under, all: new Set([place, start, ...above, ...under]) };
  }

  // The leaf that covers a message, or undefined.
  leafOf(seq) {
    const leaves = this.rows.find((row) => row.depth === 0)?.nodes ?? [];
    const place = leaves[this.firstFrom(leaves, seq)];
    return place !== undefined && this.firsts[place] <= seq && this.lasts[place] >= seq ? place : undefined;
  }

  // Binary search in ordered places: the index of the first one that ends at `seq` or later.
  firstFrom(places, seq) {
    let [low, high] = [0, places.length];
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.lasts[places[middle]] < seq) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  // The current summaries on the row of a place. Superseded ones are not among them.
  rowNodes(place) {
    return this.rows[this.rowOf.get(this.depths[place])].nodes;
  }

  name(place) {
    const width = this.lasts[place] - this.firsts[place] + 1;
    const values = { depth: this.depths[place], span: this.span(place) };
    return this.is(place, CONDENSED)
      ? ngettext("Condensed, depth %(depth)s, message %(span)s", "Condensed, depth %(depth)s, messages %(span)s", width, values)
      : ngettext("Leaf summary, message %(span)s", "Leaf summary, messages %(span)s", width, values);
  }

  // The numbers of its messages: "5", or "5–8"
  span(place) {
    const [first, last] = [this.firsts[place], this.lasts[place]].map((seq) => formatNumber(seq));
    return first === last ? first : `${first}–${last}`;
  }

  state(place) {
    const words = [
      this.is(place, ACTIVE) && gettext("in the context now"),
      this.is(place, STALE) && gettext("stale"),
      this.is(place, SUPERSEDED) && gettext("superseded"),
    ];
    return words.filter(Boolean);
  }

  // One line about a summary, for the tooltip and for screen readers.
  label(place) {
    const level = this.levels[place];
    const [count, width] = [this.counts[place], this.lasts[place] - this.firsts[place] + 1];
    const words = [
      this.name(place),
      count < width && gettext("only %(count)s of these %(width)s", { count: formatNumber(count), width: formatNumber(width) }),
      level === 3 ? gettext("level %(level)s, automatic excerpt", { level }) : gettext("level %(level)s", { level }),
      this.#size(this.tokens[place], this.sourceTokens[place]),
      ...this.state(place),
    ];
    return words.filter(Boolean).join(" · ");
  }

  #size(count, sources) {
    const tokens = formatNumber(count);
    if (!sources) return gettext("%(tokens)s tokens", { tokens });
    const [whole, share] = [formatNumber(sources), formatPercent(Math.round((100 * count) / sources))];
    return gettext("%(tokens)s tokens of %(whole)s, %(share)s", { tokens, whole, share });
  }

  #readEdges(edges, newest) {
    this.above = [];
    this.under = [];
    for (let at = 0; at < edges.length; at += 2 + edges[at + 1]) {
      const sources = edges.slice(at + 2, at + 2 + edges[at + 1]);
      this.under[edges[at]] = sources;
      for (const source of sources) (this.above[source] ??= []).push(edges[at]);
    }
    this.newest = new Map();
    for (let at = 0; at < newest.length; at += 2) this.newest.set(newest[at], newest[at + 1]);
  }

  #readRows() {
    const rows = new Map();
    this.ids.forEach((_, place) => {
      const depth = this.depths[place];
      if (!rows.has(depth)) rows.set(depth, { depth, nodes: [], old: [] });
      rows.get(depth)[this.is(place, SUPERSEDED) ? "old" : "nodes"].push(place);
    });
    // The deepest row comes first.
    return [...rows.values()].sort((one, other) => other.depth - one.depth);
  }
}
