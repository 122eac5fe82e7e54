// Copy buttons: data-copy-text="…" copies that text, data-copy="/path" the text at that address, and data-copy-code the
// code or formula of the button's figure, or next to it.
import { gettext } from "./i18n.js";

async function textFor(button) {
  const { dataset, parentElement } = button;
  if (dataset.copyText !== undefined) return dataset.copyText;
  if (dataset.copyCode !== undefined) return (button.closest("figure") ?? parentElement).querySelector("code, annotation").textContent;
  const response = await fetch(dataset.copy);
  if (!response.ok) throw new Error(`status ${response.status}`);
  return response.text();
}

// The button briefly shows the outcome.
export async function copyText(button, findText) {
  const label = button.getAttribute("aria-label");
  let said = gettext("Copied");
  try {
    await navigator.clipboard.writeText(await findText());
  } catch {
    said = gettext("Your browser does not allow copying here");
  }
  button.setAttribute("aria-label", said);
  button.dataset.said = said;
  setTimeout(() => {
    button.setAttribute("aria-label", label);
    delete button.dataset.said;
  }, 1_600);
}

export function watchCopyButtons() {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-copy], [data-copy-code], [data-copy-text]");
    if (button) copyText(button, () => textFor(button));
  });
}
