// The timeline: opens and closes turns, and keeps the newest ones up to date.
import { gettext } from "../support/i18n.js";
import { released } from "../support/press.js";
import { showTimes } from "../support/times.js";
import { follow } from "./follow.js";

const PACE = 1_500;
const TOTALS_PACE = 5_000;
const find = (id) => document.getElementById(id);
const page = find("timeline");

page.addEventListener("click", ({ target }) => {
  const button = target.closest(".turn-open");
  if (button) setOpen(button, button.getAttribute("aria-expanded") !== "true");
});

function setOpen(button, isOpen) {
  button.setAttribute("aria-expanded", isOpen);
  find(button.getAttribute("aria-controls")).hidden = !isOpen;
}

// Fetches the newest known turn and later ones, with the filter of the list.
async function renew() {
  const list = find("turns");
  const query = new URLSearchParams(new FormData(find("turn-filter")));
  query.set("from", page.dataset.newest);
  const response = await fetch(`${page.dataset.rows}?${query}`, { headers: { "HX-Request": "true" } });
  const fresh = document.createElement("table");
  fresh.innerHTML = await response.text();
  await released();
  if (!response.ok || !list.isConnected) return;
  // The newest known turn has changed state and no longer matches the filter.
  const newest = `turn-${page.dataset.newest}`;
  if (!fresh.querySelector(`#${newest}`)) find(newest)?.remove();
  const turns = [...fresh.querySelectorAll("tbody.turn")];
  const table = list.querySelector(".turns");
  if (turns.length && !table) return load();
  // Oldest first: each new turn is inserted above the others.
  for (const turn of turns.reverse()) put(turn, table);
}

// Loads the whole list, where there was none. The caller waits: a second list would close what is opened in the first.
function load() {
  const source = find("turn-filter");
  source.hidden = false;
  return window.htmx.ajax("GET", page.dataset.rows, { source, target: "#turns", swap: "outerHTML" });
}

function put(turn, table) {
  page.dataset.newest = Math.max(Number(page.dataset.newest), Number(turn.dataset.seq));
  const known = find(turn.id);
  if (known) replace(known, turn);
  else {
    table.tHead.after(turn);
    window.htmx.process(turn);
    showTimes(turn);
    find("timeline-announcer").textContent = gettext("Turn %(number)s began.", { number: turn.dataset.seq });
  }
}

// Replaces the row. An open turn stays open, and its content is loaded again.
function replace(known, turn) {
  const row = turn.querySelector(".turn-row");
  const isOpen = known.querySelector(".turn-open").getAttribute("aria-expanded") === "true";
  const hadFocus = known.querySelector(".turn-row").contains(document.activeElement) && document.activeElement.className;
  known.querySelector(".turn-row").replaceWith(row);
  window.htmx.process(row);
  showTimes(row);
  const button = row.querySelector(".turn-open");
  if (hadFocus) (row.querySelector(`.${hadFocus.split(" ").pop()}`) ?? row.querySelector("a")).focus();
  if (!isOpen) return;
  button.setAttribute("aria-expanded", "true");
  window.htmx.ajax("GET", button.getAttribute("hx-get"), { target: `#${button.getAttribute("aria-controls")} > td` });
}

let summed = 0;
async function ask() {
  if (Date.now() - summed > TOTALS_PACE) {
    summed = Date.now();
    window.htmx.trigger(find("totals"), "mnesis:timeline");
  }
  await renew();
}

if ("live" in page.dataset) follow(page, { renew: ask, pace: PACE });
