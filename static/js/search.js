// Search: words are looked for while they are typed, a pattern when it is whole; "/" goes to the field, arrows through the hits.
import { watchSearchKeys } from "./search-keys.js";

const PAUSE = 300; // milliseconds
const form = document.getElementById("search-form");
const field = document.getElementById("search-query");
let timer = 0;
let asked = field.defaultValue.trim(); // of the page: what is in the field may have been typed before this ran

form.addEventListener("htmx:beforeRequest", () => {
  clearTimeout(timer);
  asked = field.value.trim();
});
field.addEventListener("input", () => {
  clearTimeout(timer);
  const isPattern = form.elements.mode.checked;
  if (!isPattern) timer = setTimeout(() => field.value.trim() !== asked && window.htmx.trigger(form, "submit"), PAUSE);
});
watchSearchKeys(field, ".hit-link");
