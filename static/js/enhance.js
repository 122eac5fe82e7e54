// Enhances HTML from the server: local times, buttons, and keyboard scrolling.
import { showTimes } from "./times.js";

const template = (id) => document.getElementById(id)?.content;

function addCopyButton(figure) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "icon-button copy-button";
  button.dataset.copyCode = "";
  button.title = "Copy";
  button.setAttribute("aria-label", figure.querySelector("math") ? "Copy this formula as TeX" : "Copy this code");
  // The icon is a <use> of the page's own sprite, as in the templates.
  button.append(template("copy-icon").cloneNode(true));
  figure.append(button);
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

export function enhance(root) {
  showTimes(root);
  for (const figure of root.querySelectorAll(".prose figure:not(:has(> button))")) addCopyButton(figure);
  for (const message of all(root, "[data-can]:not(:has(.message-actions))")) addActions(message);
  letScroll(root);
}
