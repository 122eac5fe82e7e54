// The list of sessions: refreshes the rows when the user comes back.
import { watchSearchKeys } from "../shell/search-keys.js";
import { watchRows } from "../shell/session-rows.js";

watchRows(document.getElementById("session-rows"), document.getElementById("labels-dialog"));
watchSearchKeys(document.getElementById("session-query"), ".session-link, .hit-link");

let hiddenAt = 0;
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    hiddenAt = Date.now();
  } else if (Date.now() - hiddenAt > 5_000 && document.querySelectorAll(".session-row").length <= 50) {
    window.htmx.trigger("#session-search", "submit");
  }
});
