// Live states of the rows of a list, by polling: only visible rows, and only while the page is visible.
import { fetchPart } from "../support/api.js";
import { released } from "../support/press.js";

const PACE = 4_000; // milliseconds
const QUIET_PACE = 15_000;

// rows and facts: selectors of the rows, and of what the server sends for each. show(facts) puts it into its place and
// returns whether it did. isQuiet(): nothing is going on there, so it is enough to look now and then. Returns a function
// that looks at once.
export function watchStates(list, { path, rows, idOf, facts, show, isQuiet = () => false }) {
  let lookedAt = Date.now();
  const seen = new Set();
  const known = new Map();
  const watcher = new IntersectionObserver((entries) => {
    for (const { target, isIntersecting } of entries) isIntersecting ? seen.add(target) : seen.delete(target);
  });

  function watchNew() {
    known.clear(); // rows that were drawn anew may show an older state than the one that was put into them before
    for (const row of seen) if (!row.isConnected) seen.delete(row);
    for (const row of list.querySelectorAll(rows)) watcher.observe(row);
  }

  function take(element) {
    const text = element.outerHTML;
    if (known.get(element.id) !== text && show(element)) known.set(element.id, text);
  }

  async function look() {
    const ids = [...seen].filter((row) => row.isConnected).map(idOf);
    if (document.hidden || !ids.length) return;
    lookedAt = Date.now();
    const search = new URLSearchParams(ids.map((id) => ["id", id]));
    const part = await fetchPart(`${path}?${search}`).catch(() => null);
    await released();
    part?.querySelectorAll(facts).forEach(take);
  }

  watchNew();
  list.addEventListener("htmx:load", watchNew);
  setInterval(() => (!isQuiet() || Date.now() - lookedAt >= QUIET_PACE) && look(), PACE);
  document.addEventListener("visibilitychange", look);
  return look;
}
