// The pane beside the conversation that shows what a block of HTML or SVG looks like. Loaded when it is first opened.
import { gettext } from "../support/i18n.js";

const ADDRESS = "/frames/preview/";
const NAMES = { html: "HTML", svg: "SVG" };
const styles = new URL("../../css/session/preview.css", import.meta.url).href;

let pane = null;
let opener = null;

function loadStyles() {
  return new Promise((resolve) => {
    const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href: styles });
    link.onload = link.onerror = resolve;
    document.head.append(link);
  });
}

function element(name, values = {}, ...children) {
  const made = Object.assign(document.createElement(name), values);
  made.append(...children);
  return made;
}

function makePane() {
  const close = element("button", { type: "button", className: "icon-button", title: gettext("Close (Esc)"), onclick: closePreview });
  close.setAttribute("aria-label", gettext("Close the preview"));
  close.append(document.getElementById("copy-icon").content.cloneNode(true));
  close.querySelector("use").setAttribute("href", "#icon-close");
  const made = element("aside", { className: "preview", id: "preview" });
  made.setAttribute("aria-labelledby", "preview-title");
  const words = gettext("Scripts, forms and links are disabled, and nothing is loaded from other sites.");
  const note = element("p", { className: "preview-note small soft", textContent: words });
  made.append(element("header", { className: "preview-head" }, element("h2", { id: "preview-title", tabIndex: -1 }), close), note, element("div", { className: "preview-body" }));
  return made;
}

export async function showPreview({ source, language, opener: button }) {
  if (!pane) {
    pane = makePane();
    await loadStyles();
  }
  opener = button;
  document.body.append(pane);
  document.documentElement.dataset.preview = "open";
  pane.querySelector("h2").textContent = gettext("Preview of %(kind)s", { kind: NAMES[language] });
  pane.querySelector("h2").focus();
  const frame = element("iframe", { title: gettext("Preview"), src: ADDRESS });
  frame.setAttribute("sandbox", "allow-scripts");
  const message = { source, title: gettext("Preview of the code"), refusal: gettext("This preview cannot be shown.") };
  frame.addEventListener("load", () => frame.contentWindow?.postMessage(message, "*"), { once: true }); // it has no origin that could be named
  pane.querySelector(".preview-body").replaceChildren(frame);
}

function closePreview() {
  if (!pane?.isConnected) return;
  const hadFocus = pane.contains(document.activeElement);
  pane.querySelector(".preview-body").replaceChildren();
  pane.remove();
  delete document.documentElement.dataset.preview;
  if (!hadFocus && document.activeElement !== document.body) return;
  (opener.isConnected ? opener : document.getElementById("main")).focus(); // its message may have been drawn anew
}

// Before anything else that Escape does, such as stopping a turn; a dialog on top of it is closed first.
document.addEventListener(
  "keydown",
  (event) => {
    if (event.key !== "Escape" || !pane?.isConnected || event.isComposing || document.querySelector("dialog[open]")) return;
    if (event.target.closest("input, textarea, select")) return;
    event.preventDefault();
    event.stopPropagation();
    closePreview();
  },
  true,
);
