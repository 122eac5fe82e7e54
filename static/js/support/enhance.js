// Enhances HTML from the server: local times, buttons, and keyboard scrolling.
import { gettext } from "./i18n.js";
import { showTimes } from "./times.js";

const template = (id) => document.getElementById(id)?.content;

const PREVIEWED = ["html", "svg"];

function toolButton(icon, label, title) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "icon-button";
  button.title = title;
  button.setAttribute("aria-label", label);
  // The icon is a <use> of the page's own sprite, as in the templates.
  button.append(template("copy-icon").cloneNode(true));
  button.querySelector("use").setAttribute("href", `#icon-${icon}`);
  return button;
}

function wordButton(word, code) {
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "button button-small", textContent: word });
  button.dataset.code = code;
  return button;
}

// What the buttons of data-code do is in blocks/code.js.
function addTools(figure) {
  const isFormula = figure.classList.contains("math");
  const tools = document.createElement("div");
  tools.className = "code-tools";
  if (PREVIEWED.includes(figure.dataset.language)) tools.append(wordButton(gettext("Preview"), "preview"));
  if (!isFormula) {
    const wrap = toolButton("wrap", gettext("Wrap the lines of this code"), gettext("Wrap lines"));
    wrap.setAttribute("aria-pressed", "false");
    const save = toolButton("save", gettext("Save this code as a file"), gettext("Save as a file"));
    wrap.dataset.code = "wrap";
    save.dataset.code = "save";
    tools.append(wrap, save);
  }
  const copy = toolButton("copy", isFormula ? gettext("Copy this formula as TeX") : gettext("Copy this code"), gettext("Copy"));
  copy.dataset.copyCode = "";
  tools.append(copy);
  figure.append(tools);
}

// Each message gets its own buttons, as listed in data-can. A single shared toolbar would be out of the tab order.
function addActions(message) {
  const can = message.dataset.can.split(" ");
  const actions = template("message-actions").firstElementChild.cloneNode(true);
  for (const button of [...actions.children]) if (!can.includes(button.dataset.act)) button.remove();
  for (const link of actions.querySelectorAll("a")) link.href = link.href.replace("MESSAGE", encodeURIComponent(message.dataset.message));
  const head = message.querySelector(".message-head");
  if (actions.children.length) head.insertBefore(actions, head.querySelector(".message-numbers"));
}

// Makes boxes that scroll sideways focusable. All are measured before any is changed, to avoid repeated layout.
export function letScroll(root) {
  const boxes = [...root.querySelectorAll(".prose pre, .table-scroll, .prose figure.math, .prose:has(math)")];
  const wide = boxes.filter((box) => box.scrollWidth > box.clientWidth);
  for (const box of wide) box.tabIndex = 0;
}

const all = (root, selector) => [...(root.matches?.(selector) ? [root] : []), ...root.querySelectorAll(selector)];

// Once the module is there a message that is drawn anew has its diagrams at once, so that nothing moves.
let draw = async (diagrams) => {
  const { drawDiagrams } = await import("../blocks/diagrams.js");
  draw = drawDiagrams;
  drawDiagrams(diagrams);
};

export function enhance(root) {
  showTimes(root);
  for (const figure of root.querySelectorAll(".prose:not(.live) figure:not(:has(> .code-tools))")) addTools(figure);
  for (const message of all(root, "[data-can]:not(:has(.message-actions))")) addActions(message);
  letScroll(root);
  const diagrams = all(root, ".prose:not(.live) figure[data-language=mermaid]:not([data-shows])");
  if (diagrams.length) draw(diagrams);
}
