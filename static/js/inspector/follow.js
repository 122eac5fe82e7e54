// Keeps an inspector page up to date: refreshes it after events of its session, at a limited rate.
import { LiveFeed } from "../session/live.js";

const POLL = 10_000;

// place: the element with data-session-id, data-seq (the last event the page knows) and, for the session's owner, data-own.
// Only the owner may listen to events; other pages poll. A failed refresh is repeated at the next event.
export function follow(place, { renew, pace, isAbout = () => true }) {
  let timer = 0;
  let renewed = 0;
  let isAsking = false;
  let isStale = false;

  async function ask() {
    [timer, renewed, isAsking, isStale] = [0, Date.now(), true, false];
    await renew().catch(() => {});
    isAsking = false;
    if (isStale) refresh();
  }

  function refresh() {
    isStale = true;
    if (isAsking || timer || document.hidden) return;
    timer = setTimeout(ask, Math.max(60, renewed + pace - Date.now()));
  }

  document.addEventListener("visibilitychange", () => isStale && refresh());
  if (!("own" in place.dataset)) {
    setInterval(refresh, POLL);
    return;
  }
  new LiveFeed({
    path: `/ws/sessions/${encodeURIComponent(place.dataset.sessionId)}`,
    seq: Number(place.dataset.seq),
    onEvent: (event) => isAbout(event.type) && refresh(),
    onDelta: () => true,
    onCaughtUp: () => {},
    onState: () => {},
  }).start();
}
