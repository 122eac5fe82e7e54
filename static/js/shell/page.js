// Shared by every page: local times, menus that close, copy buttons, the palette.
import { watchCopyButtons } from "../support/copy.js";
import { enhance, letScroll } from "../support/enhance.js";
import { gettext } from "../support/i18n.js";
import { isPressed } from "../support/press.js";
import { showTimes } from "../support/times.js";
import { isPlain, isPlainClick } from "./keys.js";

// Tells the server the user's time zone, so that "Today" is right from the next request on.
document.cookie = `zone=${Intl.DateTimeFormat().resolvedOptions().timeZone}; path=/; max-age=31536000; SameSite=Lax`;

enhance(document);
setInterval(() => showTimes(document), 30_000);
let resized;
addEventListener("resize", () => {
  clearTimeout(resized);
  resized = setTimeout(() => letScroll(document), 200);
});
document.addEventListener("htmx:load", (event) => enhance(event.target));
watchCopyButtons();
document.addEventListener("click", async ({ target }) => {
  const button = target.closest("button[data-code]");
  if (button) (await import("../blocks/code.js")).act(button);
});
document.addEventListener("click", async (event) => {
  const link = event.target.closest("a.picture");
  if (!link || !isPlainClick(event)) return;
  event.preventDefault();
  (await import("../blocks/pictures.js")).showPicture(link);
});

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

// Ctrl+K or Cmd+K, also while writing. The palette is loaded when it is first opened; what is typed meanwhile is for it.
let typed = null;
async function showPalette(path) {
  typed = "";
  try {
    const { openPalette } = await import("./palette.js");
    await openPalette(path, () => typed);
  } finally {
    typed = null;
  }
}
document.addEventListener(
  "keydown",
  (event) => {
    const { palette } = document.body.dataset;
    const isOpening = palette && event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !event.altKey && !event.shiftKey;
    const isForIt = typed !== null && event.key.length === 1 && isPlain(event);
    if (!isOpening && !isForIt) return;
    event.preventDefault();
    event.stopPropagation();
    if (isForIt) typed += event.key;
    else if (typed === null) showPalette(palette).catch(() => {});
  },
  true,
);

// Shows a failed htmx request at the place that asked for it. A form keeps what was typed into it.
function showFailure({ type, detail: { elt, target } }) {
  if (!elt.matches("form[method=post]")) {
    (elt.matches("button") ? elt : target).textContent = gettext("That could not be loaded. Try again.");
    return;
  }
  const said = Object.assign(document.createElement("p"), { className: "alert", role: "alert" });
  said.textContent = type === "htmx:sendError" ? gettext("The server did not answer.") : gettext("The server did not accept this.");
  elt.querySelector(":scope > .alert")?.remove();
  elt.prepend(said);
}

// A part that is refreshed by the clock waits for its next time while a button of the pointer is down.
document.addEventListener("htmx:beforeSwap", ({ detail }) => {
  if (isPressed() && detail.requestConfig.elt.matches("[hx-trigger^=every]")) detail.shouldSwap = false;
});
document.addEventListener("htmx:responseError", showFailure);
document.addEventListener("htmx:sendError", showFailure);
