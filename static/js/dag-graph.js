// The summary DAG in the browser: turns the server's columns into rows by depth, and finds ancestors and sources.

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
    return `${this.is(place, CONDENSED) ? `Condensed, depth ${this.depths[place]}` : "Leaf summary"}, ${this.span(place)}`;
  }

  span(place) {
    const [first, last] = [this.firsts[place], this.lasts[place]].map((seq) => seq.toLocaleString("en"));
    return first === last ? `message ${first}` : `messages ${first}–${last}`;
  }

  state(place) {
    const words = [
      this.is(place, ACTIVE) && "in the context now",
      this.is(place, STALE) && "stale",
      this.is(place, SUPERSEDED) && "superseded",
    ];
    return words.filter(Boolean);
  }

  // One line about a summary, for the tooltip and for screen readers.
  label(place) {
    const [tokens, source] = [this.tokens[place], this.sourceTokens[place]];
    const ratio = source ? ` of ${source.toLocaleString("en")}, ${Math.round((100 * tokens) / source)} %` : "";
    const level = `level ${this.levels[place]}${this.levels[place] === 3 ? ", automatic excerpt" : ""}`;
    const [count, width] = [this.counts[place], this.lasts[place] - this.firsts[place] + 1];
    const gap = count < width ? [`only ${count.toLocaleString("en")} of these ${width.toLocaleString("en")}`] : [];
    return [this.name(place), ...gap, level, `${tokens.toLocaleString("en")} tokens${ratio}`, ...this.state(place)].join(" · ");
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
