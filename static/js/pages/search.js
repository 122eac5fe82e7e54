// The search page: words are searched as they are typed, patterns only on submit.
import { watchSearchKeys } from "../shell/search-keys.js";

const PAUSE = 300; // milliseconds
const form = document.getElementById("search-form");
const field = document.getElementById("search-query");
let timer = 0;
let asked = field.defaultValue.trim(); // not .value, which may have been edited before this script ran

form.addEventListener("htmx:beforeRequest", () => {
  clearTimeout(timer);
  asked = field.value.trim();
});
field.addEventListener("input", () => {
  clearTimeout(timer);
  const isPattern = form.elements.mode.value === "regex";
  if (!isPattern) timer = setTimeout(() => field.value.trim() !== asked && window.htmx.trigger(form, "submit"), PAUSE);
});
watchSearchKeys(field, ".hit-link");
