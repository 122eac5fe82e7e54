// The list of sessions: a new one from its first message, and rows that are fresh when the reader comes back.
import { call } from "./api.js";
import { Draft, sendOnEnter, showError } from "./composer.js";

const form = document.getElementById("new-session");
const textarea = form.elements.message;
const errorBox = document.getElementById("new-session-error");
const button = form.querySelector('button[type="submit"]');
const draft = new Draft("new-session");

async function create() {
  if (button.disabled) return;
  button.disabled = textarea.readOnly = true;
  errorBox.hidden = true;
  const message = textarea.value;
  try {
    const body = { model: form.elements.model.value, ...(message.trim() ? { message } : {}) };
    const session = await call("POST", "/api/sessions", body);
    draft.forget();
    location.assign(form.dataset.page.replace("SESSION", encodeURIComponent(session.id)));
    return;
  } catch (error) {
    showError(errorBox, error);
  }
  button.disabled = textarea.readOnly = false;
}

textarea.value ||= draft.text;
textarea.addEventListener("input", () => draft.change(textarea.value));
sendOnEnter(textarea, create);
form.addEventListener("submit", (event) => {
  event.preventDefault();
  create();
});
document.addEventListener("click", (event) => {
  const example = event.target.closest("[data-example]");
  if (!example) return;
  textarea.value = example.dataset.example;
  textarea.dispatchEvent(new Event("input"));
  create();
});

// Coming back by the browser's history finds the page as it was left, with its button still pressed.
addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  button.disabled = textarea.readOnly = false;
  textarea.value = draft.text;
});

let hiddenAt = 0;
document.addEventListener("visibilitychange", () => {
  if (document.hidden) {
    hiddenAt = Date.now();
  } else if (Date.now() - hiddenAt > 5_000 && document.querySelectorAll(".session-row").length <= 50) {
    window.htmx.trigger("#session-search", "submit");
  }
});
