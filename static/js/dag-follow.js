// The page of summaries while they are written: its numbers are renewed, and the drawing draws itself again.
import { follow } from "./follow.js";

const PACE = 1_000;
const WRITTEN = ["summary.created", "summary.superseded", "summary.freshness_changed"];
const find = (id) => document.getElementById(id);
const head = find("dag-head");

export function followDrawing(redraw) {
  if (!head) return; // the administration's page stays as it was loaded
  const renew = () => {
    window.htmx.trigger(find("dag-counts"), "mnesis:summaries");
    return redraw();
  };
  follow(head, { renew, pace: PACE, isAbout: (type) => WRITTEN.includes(type) || type === "context.changed" });
}

// What is told of nobody but the owner's page would be asked for in vain by others.
export function followWriting(tell) {
  if ("own" in head.dataset) follow(head, { renew: async () => tell(), pace: PACE, isAbout: (type) => WRITTEN.includes(type) });
}

// Where there was no summary yet there is nothing to lose.
if (head && "empty" in head.dataset) followWriting(() => location.reload());
