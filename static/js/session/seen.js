// Says that the reader has seen how the turns ended, so that no list marks the session as unread.
import { call } from "../support/api.js";

// Returns a function for when there is something new; it counts once the page is visible.
export function watchSeen(api, isNew) {
  let isDue = isNew;
  async function say() {
    if (!isDue || document.hidden) return;
    isDue = false;
    await call("POST", `${api}/seen`).catch(() => (isDue = true));
    document.dispatchEvent(new Event("mnesis:session")); // for the sidebar
  }
  document.addEventListener("visibilitychange", say);
  say();
  return () => {
    isDue = true;
    say();
  };
}
