// Keeps the page of summaries up to date: refreshes its numbers and redraws the drawing.
import { follow } from "../inspector/follow.js";

const PACE = 1_000;
const WRITTEN = ["summary.created", "summary.superseded", "summary.freshness_changed"];
const find = (id) => document.getElementById(id);
const head = find("dag-head");

export function followDrawing(redraw) {
  if (!head) return; // the admin page does not update itself
  const renew = () => {
    window.htmx.trigger(find("dag-counts"), "mnesis:summaries");
    return redraw();
  };
  follow(head, { renew, pace: PACE, isAbout: (type) => WRITTEN.includes(type) || type === "context.changed" });
}

// Only the owner's page receives events. Others would poll on a timer, and could not tell whether a summary was written.
export function followWriting(tell) {
  if ("own" in head.dataset) follow(head, { renew: async () => tell(), pace: PACE, isAbout: (type) => WRITTEN.includes(type) });
}

// A page without summaries has no state to lose, so it simply reloads.
if (head && "empty" in head.dataset) followWriting(() => location.reload());
