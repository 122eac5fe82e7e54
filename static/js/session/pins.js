// Pins: changed at one place, which tells the sidebars of this and of this browser's other pages at once.
import { call } from "../support/api.js";
import { gettext } from "../support/i18n.js";

const pathOf = (sessionId) => `/api/sessions/${encodeURIComponent(sessionId)}`;
const pages = new BroadcastChannel("mnesis-pins");

export async function setPinned(sessionId, pinned) {
  await call("PATCH", pathOf(sessionId), { pinned });
  document.dispatchEvent(new Event("mnesis:session"));
  pages.postMessage(sessionId);
}

// changed(): a session was pinned or unpinned on another page.
export const watchPins = (changed) => pages.addEventListener("message", changed);

// The button of a session's page. Returns a function that shows whether the session is pinned.
export function watchPinButton(button, sessionId, onError) {
  if (!button) return () => {}; // a temporary chat
  const change = async () => setPinned(sessionId, !(await call("GET", pathOf(sessionId))).pinned);
  button.addEventListener("click", () => change().catch(onError));
  return (pinned) => (button.textContent = pinned ? gettext("Unpin this session") : gettext("Pin this session"));
}
