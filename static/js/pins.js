// Pins: changed at one place, which tells the sidebars of this and of this browser's other pages at once.
import { call } from "./api.js";

const pages = new BroadcastChannel("mnesis-pins");

export async function setPinned(sessionId, pinned) {
  await call("PATCH", `/api/sessions/${encodeURIComponent(sessionId)}`, { pinned });
  document.dispatchEvent(new Event("mnesis:session"));
  pages.postMessage(sessionId);
}

// changed(): a session was pinned or unpinned on another page.
export const watchPins = (changed) => pages.addEventListener("message", changed);

// The button of a session's page. Returns a function that shows whether the session is pinned.
export function watchPinButton(button, sessionId, onError) {
  if (!button) return () => {}; // a temporary chat
  let isPinned = button.textContent.startsWith("Unpin");
  button.addEventListener("click", () => setPinned(sessionId, !isPinned).catch(onError));
  return (pinned) => {
    isPinned = pinned;
    button.textContent = `${pinned ? "Unpin" : "Pin"} this session`;
  };
}
