// A new chat: its first message makes the session.
import { Draft, sendOnEnter, showError } from "../composer/box.js";
import { watchSlash } from "../composer/slash.js";
import { call } from "../support/api.js";

const form = document.getElementById("new-session");
const textarea = form.elements.message;
const errorBox = document.getElementById("new-session-error");
const button = form.querySelector('button[type="submit"]');
const attach = document.getElementById("attach");
const { project = "", assistant = "" } = form.dataset;
const draft = new Draft(`new-session${project}${assistant}`);

// Files belong to a session, so attaching one creates the session first and keeps the message as its draft.
async function create({ forFiles = false } = {}) {
  if (button.disabled) return;
  button.disabled = attach.disabled = textarea.readOnly = true;
  errorBox.hidden = true;
  const message = textarea.value;
  try {
    const body = { model: form.elements.model.value, project_id: project, assistant_id: form.elements.assistant?.value ?? assistant, ...(message.trim() && !forFiles ? { message } : {}) };
    if (form.elements.temporary?.checked) body.temporary = true;
    const session = await call("POST", "/api/sessions", body);
    if (forFiles) new Draft(session.id).change(message);
    draft.clear();
    const page = form.dataset.page.replace("SESSION", encodeURIComponent(session.id));
    location.assign(forFiles ? `${page}#attach` : page);
    return;
  } catch (error) {
    showError(errorBox, error);
  }
  button.disabled = attach.disabled = textarea.readOnly = false;
}

textarea.value = draft.textWith(textarea.value);
textarea.addEventListener("input", () => draft.change(textarea.value));
watchSlash(textarea);
sendOnEnter(textarea, () => create());
// An assistant brings its model, which may still be changed; without one, the chat has the model that it had.
const { model, assistant: picker } = form.elements;
let ownModel = model.value;
model.addEventListener("change", () => (ownModel = model.value));
picker?.addEventListener("change", () => {
  const brought = picker.selectedOptions[0].dataset.model;
  model.value = [...model.options].some(({ value }) => value === brought) ? brought : ownModel;
});
attach.addEventListener("click", () => create({ forFiles: true }));
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

// The back/forward cache restores the page as it was left, with its button still disabled.
addEventListener("pageshow", (event) => {
  if (!event.persisted) return;
  button.disabled = attach.disabled = textarea.readOnly = false;
  textarea.value = draft.text;
});
