// What HTML from the server still needs in the browser: local times, and a button to copy each block of code.
import { showTimes } from "./times.js";

function addCopyButton(figure) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "icon-button copy-button";
  button.dataset.copyCode = "";
  button.title = "Copy";
  button.setAttribute("aria-label", "Copy this code");
  // The icon is a <use> of the page's own sprite, as in the templates.
  button.append(document.getElementById("copy-icon").content.cloneNode(true));
  figure.append(button);
}

export function dress(root) {
  showTimes(root);
  for (const figure of root.querySelectorAll(".prose figure:not(:has(> button))")) addCopyButton(figure);
}
