// Single-key shortcuts. Inactive while a text field has the focus; combinations with Ctrl, Alt or Meta are the browser's.

const KEPT = "mnesis-keys";

export const isWriting = (element) => element.closest("input, textarea, select, [contenteditable], dialog");

// A click that does not ask for another tab or window.
export const isPlainClick = (event) => event.button === 0 && !(event.ctrlKey || event.metaKey || event.shiftKey || event.altKey);

// A key without modifiers that no other handler has consumed.
export const isPlain = (event) => !(event.defaultPrevented || event.isComposing || event.ctrlKey || event.metaKey || event.altKey);

// The key of an event, with the arrows as they are read: where the page is read from the right, the left one leads forwards.
const MIRRORED = { ArrowLeft: "ArrowRight", ArrowRight: "ArrowLeft" };
export const asRead = ({ key }) => (document.documentElement.dir === "rtl" && MIRRORED[key]) || key;

export function isOn() {
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
    // storage is forbidden: the setting lasts only as long as this page
  }
}

// what: { key: action }. toggle: the checkbox that switches the keys on and off.
export function watchKeys(what, toggle) {
  let on = isOn();
  toggle.checked = on;
  toggle.addEventListener("change", () => keep((on = toggle.checked)));
  document.addEventListener("keydown", (event) => {
    if (!isPlain(event) || isWriting(event.target)) return;
    // "?" always works: it opens the dialog where the other keys can be switched on again.
    const action = on || event.key === "?" ? what[event.key] : null;
    if (!action) return;
    event.preventDefault();
    action();
  });
}
