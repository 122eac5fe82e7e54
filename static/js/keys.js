// Single keys for reading: never while a text field has the focus, never with Ctrl, Alt or Meta, which are the browser's.

const KEPT = "mnesis-keys";

export const isWriting = (element) => element.closest("input, textarea, select, [contenteditable], dialog");

// A key without modifiers that no other handler took.
export const isPlain = (event) => !(event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey);

function isOn() {
  try {
    return localStorage.getItem(KEPT) !== "off";
  } catch {
    return true;
  }
}

function keep(on) {
  try {
    localStorage.setItem(KEPT, on ? "on" : "off");
  } catch {
    // then it lasts as long as this page
  }
}

// what: { key: () => … }
export function watchKeys(what, toggle) {
  let on = isOn();
  toggle.checked = on;
  toggle.addEventListener("change", () => keep((on = toggle.checked)));
  document.addEventListener("keydown", (event) => {
    if (!isPlain(event) || isWriting(event.target)) return;
    // "?" always opens the sheet: there the others are switched on again.
    const action = on || event.key === "?" ? what[event.key] : null;
    if (!action) return;
    event.preventDefault();
    action();
  });
}
