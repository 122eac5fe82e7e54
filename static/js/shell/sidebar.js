// The sidebar: beside the page, and there it can be closed for good; on narrow screens a drawer.
import { setPinned, watchPins } from "../session/pins.js";
import { fetchPart } from "../support/api.js";
import { released } from "../support/press.js";
import { asRead, isOn, isPlain, isWriting } from "./keys.js";
import { watchStates } from "./row-states.js";

const CLOSED = "mnesis-sidebar"; // in localStorage; head.js reads it before the first paint
const PLACE = "mnesis-sidebar-place"; // in sessionStorage: where this tab's list was scrolled to, and its loaded pages
const PAGE = 50; // rows
const LATER = 5_000; // milliseconds away, after which the list may have another order

const root = document.documentElement;
const sidebar = document.getElementById("sidebar");
const list = document.getElementById("sidebar-rows");
const toggle = document.getElementById("sidebar-toggle");
const isWide = matchMedia("(min-width: 64rem)");
const isDrawerOpen = () => sidebar.matches(":popover-open");
const isShown = () => (isWide.matches ? root.dataset.sidebar !== "closed" : isDrawerOpen());
const current = () => list.querySelector("[aria-current]");

function keep(storage, key, value) {
  try {
    storage.setItem(key, value);
  } catch {
    // storage is forbidden: it lasts only as long as this page
  }
}

/* Showing */

const showState = () => toggle.setAttribute("aria-expanded", String(isShown()));

function setClosed(closed) {
  if (closed) root.dataset.sidebar = "closed";
  else delete root.dataset.sidebar;
  showState();
}

function setWide(shown) {
  setClosed(!shown);
  keep(localStorage, CLOSED, shown ? "open" : "closed");
}

const focusIn = () => (current() ?? sidebar.querySelector("a")).focus();

function goTo() {
  if (!isWide.matches) {
    sidebar.showPopover();
    return;
  }
  setWide(true);
  focusIn();
}

function watchShowing() {
  toggle.addEventListener("click", (event) => {
    if (!isWide.matches) return; // the browser opens the drawer
    event.preventDefault();
    setWide(!isShown());
  });
  // The page behind the drawer takes neither focus nor keys. It does again before the browser gives the focus back.
  sidebar.addEventListener("beforetoggle", ({ newState }) => {
    for (const part of document.querySelectorAll("main, .site-header, .skip-link")) part.inert = newState === "open";
  });
  sidebar.addEventListener("toggle", ({ newState }) => {
    if (newState === "open") focusIn();
    showState();
  });
  isWide.addEventListener("change", () => (isDrawerOpen() ? sidebar.hidePopover() : showState()));
  addEventListener("storage", ({ key, newValue }) => key === CLOSED && setClosed(newValue === "closed"));
  showState();
}

/* Keys: "s" from anywhere, the arrow keys within */

function watchSidebarKeys() {
  document.addEventListener("keydown", (event) => {
    if (event.key !== "s" || !isPlain(event) || isWriting(event.target) || !isOn()) return;
    event.preventDefault();
    goTo();
  });
  sidebar.addEventListener("keydown", (event) => {
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step || !isPlain(event)) return;
    const places = [...sidebar.querySelectorAll("a, input, button:not(.sr-only, .sidebar-pin, .sidebar-opener)")];
    const next = places[places.indexOf(event.target.closest(".sidebar-row")?.querySelector("a") ?? event.target) + step];
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
}

/* The list: its place, and its live states */

function remembered() {
  try {
    return JSON.parse(sessionStorage.getItem(PLACE)) ?? {};
  } catch {
    return {};
  }
}

const loadedPages = () => Math.ceil(list.querySelectorAll(".sidebar-row:not([data-pinned])").length / PAGE) || 1;

// Asking where the list is while the page is left would lay it all out once more, before the next page is shown.
let scrolled = 0;
list.addEventListener("scroll", () => (scrolled = list.scrollTop), { passive: true });

// The event comes with the next frame, and the page may be left before it.
function scrollTo(top) {
  list.scrollTop = scrolled = top;
}

function remember() {
  keep(sessionStorage, PLACE, JSON.stringify({ top: scrolled, pages: loadedPages() }));
}

function showCurrent() {
  const row = current()?.getBoundingClientRect();
  const box = list.getBoundingClientRect();
  if (row && (row.top < box.top || row.bottom > box.bottom)) scrollTo(list.scrollTop + row.top - box.top - box.height / 2);
}

async function showPlace() {
  const { top = 0, pages = 1 } = remembered();
  const more = list.querySelector(".sidebar-more");
  if (pages > 1 && more) {
    const { cursor } = more.firstElementChild.dataset;
    const search = new URLSearchParams({ cursor, pages: pages - 1, current: sidebar.dataset.current });
    const part = await fetchPart(`${sidebar.dataset.rows}?${search}`).catch(() => null);
    if (part && more.isConnected) {
      more.replaceWith(part);
      window.htmx.process(list);
      list.dispatchEvent(new Event("htmx:load"));
    }
  }
  scrollTo(top);
  const [how] = performance.getEntriesByType("navigation");
  if (how?.type !== "back_forward") showCurrent();
}

function showTitle(title) {
  const old = document.getElementById(title.id);
  if (!old) return false;
  if (old.outerHTML === title.outerHTML) return true;
  old.closest("a").title = title.querySelector("bdi").textContent;
  old.replaceWith(title);
  return true;
}

// Draws the loaded rows anew, without moving what the reader looks at or has the focus on.
async function renew() {
  const search = new URLSearchParams({ current: sidebar.dataset.current, path: location.pathname, pages: loadedPages() });
  const part = await fetchPart(`${sidebar.dataset.rows}?${search}`).catch(() => null);
  await released();
  if (!part?.firstElementChild) return;
  const { activeElement: focused } = document;
  const row = list.contains(focused) && focused.closest("[data-session]");
  const top = list.scrollTop;
  const opened = [...list.querySelectorAll('.sidebar-opener[aria-expanded="true"]')].map(pathOf);
  list.replaceChildren(part);
  for (const path of opened) await openNested(list.querySelector(`.sidebar-opener[data-sub-agents="${path}"]`));
  list.scrollTop = top;
  const place = row && list.querySelector(`[data-session="${row.dataset.session}"] > .${focused.className.split(" ").at(-1)}`);
  if (place) place.focus({ preventScroll: true });
  window.htmx.process(list);
  list.dispatchEvent(new Event("htmx:load"));
}

/* Sub-agents, below the row of the session that launched them */

const pathOf = (opener) => opener.dataset.subAgents;

async function openNested(opener) {
  const part = opener && (await fetchPart(`${pathOf(opener)}?current=${sidebar.dataset.current}`).catch(() => null));
  if (!part || !opener.isConnected || opener.ariaExpanded === "true") return;
  opener.ariaExpanded = "true";
  opener.closest("li").after(part);
  list.dispatchEvent(new Event("htmx:load"));
}

function watchNested() {
  list.addEventListener("click", ({ target }) => {
    const opener = target.closest(".sidebar-opener");
    if (!opener) return;
    if (opener.ariaExpanded !== "true") return openNested(opener);
    opener.ariaExpanded = "false";
    opener.closest("li").nextElementSibling.remove();
  });
  list.addEventListener("keydown", (event) => {
    const opener = event.target.closest("li")?.querySelector(":scope > .sidebar-opener");
    const before = { ArrowRight: "false", ArrowLeft: "true" }[asRead(event)];
    if (!before || !isPlain(event) || opener?.ariaExpanded !== before) return;
    event.preventDefault();
    opener.click();
  });
}

/* Pins */

function showPins({ dataset }) {
  const shown = [...list.querySelectorAll("[data-pinned]")].map((row) => `${row.dataset.session} `);
  const isSame = shown.join("") === dataset.pinned;
  if (!isSame) renew();
  return isSame;
}

async function pin(row) {
  const status = document.getElementById("sidebar-status");
  status.textContent = "";
  try {
    await setPinned(row.dataset.session, !("pinned" in row.dataset));
  } catch (error) {
    status.textContent = `${error.message} (${error.code})`;
  }
}

function watchPinning() {
  list.addEventListener("click", ({ target }) => target.closest(".sidebar-pin") && pin(target.closest(".sidebar-row")));
  list.addEventListener("keydown", (event) => {
    const row = event.target.closest(".sidebar-row");
    if (event.key !== "p" || !row || !isPlain(event) || !isOn()) return;
    event.preventDefault();
    pin(row);
  });
}

function watchList() {
  const look = watchStates(list, {
    path: sidebar.dataset.states,
    rows: ".sidebar-row, .sidebar-child[data-session]",
    idOf: (row) => row.dataset.session,
    facts: ".sidebar-title, #sidebar-pins",
    show: (facts) => (facts.id === "sidebar-pins" ? showPins(facts) : showTitle(facts)),
    isQuiet: () => !list.querySelector(".sidebar-mark"), // every page has a sidebar, so pages that rest ask little
  });
  // What the page's own socket says of its session is shown at once.
  document.addEventListener("mnesis:session", look);
  document.addEventListener("mnesis:sessions", renew); // there is one more, or one less
  watchPins(look);
  let hiddenAt = 0;
  document.addEventListener("visibilitychange", () => {
    if (document.hidden) hiddenAt = Date.now();
    else if (Date.now() - hiddenAt > LATER) renew();
  });
  addEventListener("pagehide", remember);
}

watchShowing();
watchSidebarKeys();
watchPinning();
watchNested();
watchList();
showPlace();
