// The table of summaries as an ARIA treegrid: rows load when their parent is opened, and the arrow keys move between them.
import { asRead } from "../shell/keys.js";
import { fetchPart } from "../support/api.js";
import { Detail, keepInAddress } from "./detail.js";
import { followWriting } from "./follow.js";

const INDENTED = 12; // levels: deeper rows are not indented further
const find = (id) => document.getElementById(id);
const root = find("dag");
const tree = find("tree");
const body = tree.tBodies[0];
const detail = new Detail(find("dag-detail"), root.dataset.here);

const levelOf = (row) => Number(row.getAttribute("aria-level"));
const visible = () => [...body.rows].filter((row) => !row.hidden);

function say(text) {
  find("tree-said").textContent = text;
}

function under(row) {
  const found = [];
  for (let next = row.nextElementSibling; next && levelOf(next) > levelOf(row); next = next.nextElementSibling) found.push(next);
  return found;
}

function dressRows(rows) {
  for (const row of rows) row.querySelector(".tree-name")?.style.setProperty("--level", Math.min(levelOf(row), INDENTED) - 1);
}

async function load(row, path, place) {
  row.setAttribute("aria-busy", "true");
  try {
    const rows = [...(await fetchPart(path)).querySelectorAll("tr")];
    place(rows);
    dressRows(rows);
    return rows;
  } catch (error) {
    say(error.message);
    return [];
  } finally {
    row.removeAttribute("aria-busy");
  }
}

async function open(row) {
  if (row.getAttribute("aria-expanded") !== "false" || row.hasAttribute("aria-busy")) return;
  let rows = under(row);
  if (rows.length) showUnder(row);
  else {
    const query = new URLSearchParams({ under: row.dataset.id, level: levelOf(row) + 1 });
    rows = await load(row, `${body.dataset.rows}?${query}`, (found) => row.after(...found));
  }
  if (rows.length) row.setAttribute("aria-expanded", "true");
}

// Shows the rows under this one, except those under a row that is closed itself.
function showUnder(row) {
  let closedAt = Infinity;
  for (const one of under(row)) {
    if (levelOf(one) > closedAt) continue;
    closedAt = one.getAttribute("aria-expanded") === "false" ? levelOf(one) : Infinity;
    one.hidden = false;
  }
}

function close(row) {
  row.setAttribute("aria-expanded", "false");
  for (const one of under(row)) one.hidden = true;
}

async function loadMore(row) {
  const [first] = await load(row, row.dataset.more, (found) => row.replaceWith(...found));
  if (first) focusOn(first);
}

function focusOn(row) {
  for (const one of body.querySelectorAll('tr[tabindex="0"]')) one.tabIndex = -1;
  row.tabIndex = 0;
  row.focus({ preventScroll: false });
}

const rowOf = (id) => body.querySelector(`tr[data-id="${CSS.escape(id)}"]`);

function mark(row) {
  for (const one of body.querySelectorAll("[aria-selected]")) one.removeAttribute("aria-selected");
  row?.setAttribute("aria-selected", "true");
}

function choose(row) {
  if (!row.dataset.url) return;
  mark(row);
  keepInAddress({ id: row.dataset.id, seq: row.dataset.message });
  detail.show(row.dataset.url);
}

// Opens the ancestors of a summary, topmost first. The text beside the table lists them.
async function reveal(id) {
  const above = [...detail.place.querySelectorAll("[data-above]")].map((link) => link.dataset.select).reverse();
  for (const one of above) if (rowOf(one)) await open(rowOf(one));
  mark(rowOf(id));
  rowOf(id)?.scrollIntoView({ block: "nearest" });
}

function chooseId(id) {
  keepInAddress({ id, seq: undefined });
  detail.show(`${root.dataset.here}${encodeURIComponent(id)}/`).then(() => reveal(id));
  return true;
}

function parentOf(row) {
  let before = row.previousElementSibling;
  while (before && levelOf(before) >= levelOf(row)) before = before.previousElementSibling;
  return before;
}

function beside(row, steps) {
  const rows = visible();
  const at = Math.min(Math.max(rows.indexOf(row) + steps, 0), rows.length - 1);
  return rows[at];
}

const isOpen = (row) => row.getAttribute("aria-expanded") === "true";
const KEYS = {
  ArrowDown: (row) => focusOn(beside(row, 1)),
  ArrowUp: (row) => focusOn(beside(row, -1)),
  Home: (row) => focusOn(beside(row, -Infinity)),
  End: (row) => focusOn(beside(row, Infinity)),
  ArrowRight: (row) => (isOpen(row) ? focusOn(beside(row, 1)) : open(row)),
  ArrowLeft: (row) => (isOpen(row) ? close(row) : focusOn(parentOf(row) ?? row)),
  Enter: (row) => (row.dataset.more ? loadMore(row) : choose(row)),
};

body.addEventListener("keydown", (event) => {
  const row = event.target.closest("tr");
  const act = KEYS[asRead(event)];
  if (!act || event.ctrlKey || event.metaKey || event.altKey) return;
  event.preventDefault();
  act(row);
});
body.addEventListener("click", (event) => {
  const row = event.target.closest("tr");
  if (event.ctrlKey || event.metaKey || event.shiftKey) return;
  const link = event.target.closest("a");
  if (event.target.closest("[data-load]")) loadMore(row);
  else if (event.target.closest("[data-expand]")) isOpen(row) ? close(row) : open(row);
  else if (link && !row.dataset.url) return;
  else choose(row);
  event.preventDefault();
  if (row.isConnected) focusOn(row);
});
detail.onSelect(chooseId);
dressRows(body.rows);
if (body.rows[0]) body.rows[0].tabIndex = 0;
keepInAddress({});
const address = new URLSearchParams(location.search);
// The server has already rendered the text of a chosen summary beside the table.
if (address.get("id")) reveal(address.get("id"));
else if (root.dataset.seq) detail.show(`${root.dataset.here}messages/${root.dataset.seq}/`);

// New rows would shift the ones being read, so a button loads them. The address keeps the choice.
find("tree-reload").addEventListener("click", () => location.reload());
followWriting(() => (find("tree-news").hidden = false));
