// Shared by every page: local times, menus that close, copy buttons.
import { watchCopyButtons } from "./copy.js";
import { enhance, letScroll } from "./enhance.js";
import { showTimes } from "./times.js";

enhance(document);
setInterval(() => showTimes(document), 30_000);
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => letScroll(document), 200);
});
document.addEventListener("htmx:load", (event) => enhance(event.target));
watchCopyButtons();

const openMenus = () => document.querySelectorAll("details.menu[open]");
document.addEventListener("click", (event) => {
  for (const menu of openMenus()) if (!menu.contains(event.target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  for (const menu of openMenus()) {
    menu.open = false;
    menu.querySelector("summary").focus();
    event.stopImmediatePropagation();
  }
});

// Shows a failed htmx request at the place that asked for it.
function showLoadError({ detail: { elt, target } }) {
  (elt.matches("button") ? elt : target).textContent = "That could not be loaded. Try again.";
}
document.addEventListener("htmx:responseError", showLoadError);
document.addEventListener("htmx:sendError", showLoadError);
