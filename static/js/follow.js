// An inspector's page is kept fresh: it asks again when something has happened in its session, once in a while at most.
import { LiveFeed } from "./live.js";

const POLL = 10_000;

// place: the element with data-session-id, data-seq (the last event the page knows) and, for the session's owner, data-own;
// nobody else may listen, so they ask now and then. What could not be asked for is asked for by the next event.
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
