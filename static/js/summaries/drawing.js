// The drawing of a session's summaries: zoom, pan and select by wheel, pointer, pinch and keys.
import { call } from "../support/api.js";
import { formatNumber, gettext, ngettext } from "../support/i18n.js";
import { Detail, keepInAddress } from "./detail.js";
import { followDrawing } from "./follow.js";
import { Graph } from "./graph.js";
import { Painter } from "./paint.js";

const LEAST_SPAN = 3; // messages
const STEP = 1.5;
const WIDE_ENOUGH = 24; // pixels: zoom to a chosen summary that is narrower
const CLICK = 5; // pixels the pointer may move during a click

const find = (id) => document.getElementById(id);
const root = find("dag");
const host = find("dag-view");
const tip = find("dag-tip");
const detail = new Detail(find("dag-detail"), root.dataset.here);
const address = new URLSearchParams(location.search);

const view = { from: 0, to: 1, top: 0 };
const marked = { place: undefined, seq: 0, lineage: null };
let graph;
let painter;
let frame = 0;
let saving = 0;

/* The visible range */

function draw() {
  frame ||= requestAnimationFrame(() => {
    frame = 0;
    painter.paint(view, marked);
    find("dag-range").textContent = gettext("Messages %(range)s of %(messages)s", { range: rangeText(), messages: formatNumber(graph.messages) });
  });
  clearTimeout(saving);
  saving = setTimeout(save, 250);
}

function rangeText() {
  const [first, last] = [Math.max(1, Math.ceil(view.from)), Math.min(graph.messages, Math.floor(view.to))];
  return `${formatNumber(first)}–${formatNumber(Math.max(first, last))}`;
}

function isWhole() {
  return view.from <= 0.5 && view.to >= graph.messages + 0.5;
}

function save() {
  keepInAddress({
    from: isWhole() ? undefined : view.from.toFixed(1),
    to: isWhole() ? undefined : view.to.toFixed(1),
    id: graph.ids[marked.place],
    seq: marked.seq || undefined,
  });
}

// Returns whether anything changed. If not, the wheel scrolls the page.
function show(from, to) {
  const whole = graph.messages;
  const span = Math.min(Math.max(to - from, LEAST_SPAN), Math.max(whole, LEAST_SPAN));
  const middle = (from + to) / 2;
  const start = Math.min(Math.max(middle - span / 2, 0.5), Math.max(0.5, whole + 0.5 - span));
  if (start === view.from && start + span === view.to) return false;
  Object.assign(view, { from: start, to: start + span });
  draw();
  return true;
}

function zoom(factor, x = painter.size.width / 2) {
  const [at, span] = [painter.seq(x, view), view.to - view.from];
  const wanted = Math.min(Math.max(span / factor, LEAST_SPAN), Math.max(graph.messages, LEAST_SPAN));
  const from = at - (at - view.from) * (wanted / span);
  return show(from, from + wanted);
}

function move(pixels, rows = 0) {
  const messages = (pixels * (view.to - view.from)) / painter.innerWidth;
  view.top = Math.min(Math.max(view.top + rows, 0), painter.overflow);
  if (!show(view.from + messages, view.to + messages)) draw();
}

function showWhole() {
  show(0.5, graph.messages + 0.5);
}

function showSpan(first, last, share = 0.8) {
  const margin = ((last - first + 1) * (1 / share - 1)) / 2;
  show(first - 0.5 - margin, last + 0.5 + margin);
}

function showChosen() {
  if (marked.place !== undefined) showSpan(graph.firsts[marked.place], graph.lasts[marked.place]);
  else if (marked.seq) showSpan(marked.seq - 5, marked.seq + 5);
}

function bringIntoSight(first, last, rowIndex) {
  const pixels = painter.x(last + 0.5, view) - painter.x(first - 0.5, view);
  if (pixels < WIDE_ENOUGH) showSpan(first, last, 0.15);
  else if (last < view.from || first > view.to) show(first - (view.to - view.from) / 2, first + (view.to - view.from) / 2);
  if (rowIndex === undefined) return;
  const top = painter.rowTop(rowIndex, view);
  if (top < 0) view.top += top;
  else if (top > painter.size.height - 120) view.top = Math.min(painter.overflow, view.top + top - painter.size.height + 120);
}

/* Selection */

function say(text) {
  find("dag-said").textContent = text;
}

function choose(place, { load = true } = {}) {
  Object.assign(marked, { place, seq: 0, lineage: graph.lineage(place).all });
  find("dag").querySelector("[data-dag=chosen]").disabled = false;
  bringIntoSight(graph.firsts[place], graph.lasts[place], graph.rowOf.get(graph.depths[place]));
  const { above, under } = graph.lineage(place);
  say(gettext("%(summary)s. %(above)s above, %(below)s below it.", { summary: graph.label(place), above: above.size, below: under.size }));
  if (load) showDetail();
  draw();
}

function chooseMessage(seq) {
  const leaf = graph.leafOf(seq);
  Object.assign(marked, { place: undefined, seq, lineage: leaf === undefined ? new Set() : graph.lineage(leaf).all });
  find("dag").querySelector("[data-dag=chosen]").disabled = false;
  bringIntoSight(seq, seq);
  const bare = gettext("Message %(number)s, no summary covers it.", { number: seq });
  say(leaf === undefined ? bare : gettext("Message %(number)s, under %(summary)s.", { number: seq, summary: graph.name(leaf) }));
  detail.show(`${root.dataset.here}messages/${seq}/`);
  draw();
}

function showDetail() {
  detail.show(`${root.dataset.here}${encodeURIComponent(graph.ids[marked.place])}/`);
}

function chooseNothing() {
  Object.assign(marked, { place: undefined, seq: 0, lineage: null });
  find("dag").querySelector("[data-dag=chosen]").disabled = true;
  detail.clear();
  say(gettext("Nothing is selected."));
  draw();
}

function chooseAt(x, y) {
  tip.hidden = true; // choosing may move something else under the pointer
  const found = painter.hit(x, y, view);
  if (found?.place !== undefined) choose(found.place);
  else if (found?.block) showSpan(found.block.first, found.block.last);
  else if (found?.seq) chooseMessage(found.seq);
}

/* Keyboard */

function chooseFirst() {
  const row = graph.rows.find(({ nodes }) => nodes.length);
  const place = row?.nodes[Math.min(graph.firstFrom(row.nodes, view.from), row.nodes.length - 1)];
  if (place !== undefined) choose(place);
}

function walkAlong(steps) {
  if (marked.seq) return chooseMessage(Math.min(Math.max(marked.seq + steps, 1), graph.messages));
  const nodes = graph.rowNodes(marked.place);
  const at = nodes.indexOf(graph.newest.get(marked.place) ?? marked.place);
  choose(nodes[Math.min(Math.max(at + steps, 0), nodes.length - 1)]);
}

function walkUp() {
  const place = marked.seq ? graph.leafOf(marked.seq) : graph.above[marked.place]?.[0];
  if (place === undefined) say(gettext("There is nothing above it."));
  else choose(place);
}

function walkDown() {
  if (marked.seq) return;
  const place = graph.under[marked.place]?.[0];
  if (place === undefined) chooseMessage(graph.firsts[marked.place]);
  else choose(place);
}

const WALKS = {
  ArrowLeft: () => walkAlong(-1),
  ArrowRight: () => walkAlong(1),
  Home: () => walkAlong(-Infinity),
  End: () => walkAlong(Infinity),
  ArrowUp: walkUp,
  ArrowDown: walkDown,
};
const KEYS = {
  "+": () => zoom(STEP),
  "=": () => zoom(STEP),
  "-": () => zoom(1 / STEP),
  0: showWhole,
  c: showChosen,
  Escape: chooseNothing,
  Enter: () => detail.place.focus(),
};

function takeKey(event) {
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const isChosen = marked.place !== undefined || marked.seq;
  const pans = event.shiftKey && { ArrowLeft: -0.2, ArrowRight: 0.2 }[event.key];
  const act = pans ? () => move(pans * painter.innerWidth) : (WALKS[event.key] && (isChosen ? WALKS[event.key] : chooseFirst)) || KEYS[event.key];
  if (!act || (event.key === "Escape" && !isChosen)) return;
  event.preventDefault();
  act();
}

/* Pointer and wheel */

const pointers = new Map();
let dragged = 0;

function pointOf(event) {
  const { left, top } = host.getBoundingClientRect();
  return { x: event.clientX - left, y: event.clientY - top };
}

function takeDown(event) {
  if (event.button !== 0) return;
  if (!pointers.size) dragged = 0;
  pointers.set(event.pointerId, pointOf(event));
  host.setPointerCapture(event.pointerId);
}

function takeMove(event) {
  const before = pointers.get(event.pointerId);
  const now = pointOf(event);
  if (!before) return showTip(now);
  tip.hidden = true;
  const others = [...pointers].filter(([id]) => id !== event.pointerId);
  pointers.set(event.pointerId, now);
  dragged += Math.hypot(now.x - before.x, now.y - before.y);
  if (others.length) return pinch(others[0][1], before, now);
  if (dragged > CLICK) move(before.x - now.x, before.y - now.y);
}

function pinch(fixed, before, now) {
  const [was, is] = [Math.abs(before.x - fixed.x), Math.abs(now.x - fixed.x)];
  dragged = Infinity;
  if (was > 8 && is > 8) zoom(is / was, fixed.x);
}

function takeUp(event) {
  const point = pointers.get(event.pointerId);
  pointers.delete(event.pointerId);
  if (point && dragged <= CLICK && event.type === "pointerup") chooseAt(point.x, point.y);
}

function takeWheel(event) {
  const isSideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) || event.shiftKey;
  const distance = (event.deltaMode === 1 ? 16 : 1) * (isSideways ? event.deltaX || event.deltaY : event.deltaY);
  if (isSideways) move(distance);
  else if (!zoom(Math.exp(-distance / 300), pointOf(event).x)) return;
  event.preventDefault();
}

function wordsOf({ block, place, seq }) {
  if (place !== undefined) return graph.label(place);
  if (!block) return gettext("Message %(number)s", { number: formatNumber(seq) });
  const [count, first, last] = [block.count, block.first, block.last].map((number) => formatNumber(number));
  return gettext("%(count)s summaries of messages %(first)s–%(last)s. Click to zoom in.", { count, first, last });
}

function showTip({ x, y }) {
  const found = painter.hit(x, y, view);
  tip.hidden = !found;
  host.classList.toggle("is-over", Boolean(found));
  if (!found) return;
  tip.textContent = wordsOf(found);
  const left = Math.min(x + 12, Math.max(0, painter.size.width - tip.offsetWidth - 4));
  const top = y + 20 + tip.offsetHeight > painter.size.height ? y - tip.offsetHeight - 8 : y + 20;
  tip.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
}

/* Setup */

function fitSize() {
  const height = Math.min(painter.contentHeight, Math.max(300, Math.round(window.innerHeight * 0.62)));
  host.style.height = `${height}px`;
  painter.resize(host.clientWidth, height);
  view.top = Math.min(view.top, painter.overflow);
  painter.paint(view, marked);
}

function watch() {
  host.addEventListener("keydown", takeKey);
  host.addEventListener("pointerdown", takeDown);
  host.addEventListener("pointermove", takeMove);
  host.addEventListener("pointerup", takeUp);
  host.addEventListener("pointercancel", takeUp);
  host.addEventListener("pointerleave", () => (tip.hidden = true));
  host.addEventListener("wheel", takeWheel, { passive: false });
  const acts = { in: () => zoom(STEP), out: () => zoom(1 / STEP), fit: showWhole, chosen: showChosen };
  for (const button of root.querySelectorAll("[data-dag]")) button.addEventListener("click", acts[button.dataset.dag]);
  detail.onSelect((id) => {
    const place = graph.places.get(id);
    if (place === undefined) return false;
    choose(place);
    return true;
  });
  new ResizeObserver(fitSize).observe(host.parentElement);
  const recolour = () => (painter.readInks(root), draw());
  new MutationObserver(recolour).observe(document.documentElement, { attributeFilter: ["data-theme"] });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
}

function takeAddress() {
  const [from, to] = [Number(address.get("from")), Number(address.get("to"))];
  const place = graph.places.get(address.get("id") ?? "");
  const seq = Number(root.dataset.seq);
  // The server has already rendered its text beside the drawing.
  if (place !== undefined) choose(place, { load: false });
  else if (seq >= 1 && seq <= graph.messages) chooseMessage(seq);
  if (Number.isFinite(from) && Number.isFinite(to) && to > from) show(from, to);
}

/* Updates */

// Summaries are never deleted, so the selection still exists and the view stays where it was.
async function renew() {
  const [before, height, wasWhole] = [graph, painter.contentHeight, isWhole()];
  graph = painter.graph = new Graph(await call("GET", host.dataset.drawing));
  if (view.top) view.top += painter.contentHeight - height; // new rows are added at the top
  if (wasWhole) Object.assign(view, { from: 0.5, to: Math.max(graph.messages, LEAST_SPAN) + 0.5 });
  keepChosen(before);
  fitSize();
  draw();
  const more = graph.ids.length - before.ids.length;
  if (more) say(ngettext("%(count)s more summary.", "%(count)s more summaries.", more));
}

function keepChosen(before) {
  if (marked.seq) {
    const leaf = graph.leafOf(marked.seq);
    marked.lineage = leaf === undefined ? new Set() : graph.lineage(leaf).all;
  }
  if (marked.place === undefined) return;
  const was = marked.place;
  const place = graph.places.get(before.ids[was]);
  Object.assign(marked, { place, lineage: graph.lineage(place).all });
  // The text shows these marks, so reload it only when they changed: someone may be reading it.
  if (graph.marks[place] !== before.marks[was]) showDetail();
}

async function start() {
  try {
    graph = new Graph(await call("GET", host.dataset.drawing));
  } catch (error) {
    find("dag-note").textContent = gettext("The drawing could not be loaded. %(reason)s The table shows the same.", { reason: error.message });
    return;
  }
  root.hidden = false;
  painter = new Painter(find("dag-canvas"), graph);
  painter.readInks(root);
  Object.assign(view, { from: 0.5, to: Math.max(graph.messages, LEAST_SPAN) + 0.5 });
  fitSize();
  find("dag-note").remove();
  watch();
  takeAddress();
  draw();
  performance.mark("dag-drawn");
  host.dataset.drawn = "";
  followDrawing(renew);
}

start();
