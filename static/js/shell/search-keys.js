// Keys of a search page: "/" focuses the field, the arrow keys move between the field and the hits.
import { isPlain, isWriting } from "./keys.js";

export function watchSearchKeys(field, links) {
  document.addEventListener("keydown", (event) => {
    if (!isPlain(event)) return;
    if (event.key === "/" && !isWriting(event.target)) {
      event.preventDefault();
      field.focus();
      field.select();
      return;
    }
    const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
    if (!step) return;
    const found = [...document.querySelectorAll(links)];
    const place = found.indexOf(event.target);
    if (event.target !== field && place < 0) return;
    const next = event.target === field ? found[step > 0 ? 0 : found.length] : (found[place + step] ?? (step < 0 ? field : undefined));
    if (!next) return;
    event.preventDefault();
    next.focus();
  });
}
