// Saved prompts: a new one is made in a dialog of their list; the page of one changes and deletes it.
import { call } from "./api.js";
import { showError } from "./composer.js";
import { open, watchClosing } from "./dialogs.js";

const dialog = document.getElementById("new-prompt");
const remove = document.getElementById("delete-prompt");
const page = document.querySelector("[data-prompts]");
const api = page.dataset.prompt ? `/api/prompts/${encodeURIComponent(page.dataset.prompt)}` : "/api/prompts";

function watchForm(form, ask) {
  form?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const button = form.querySelector("[type=submit]");
    const box = form.querySelector("[role=alert]");
    button.disabled = box.hidden = true;
    try {
      await ask(form.elements);
      location.assign(page.dataset.prompts);
    } catch (error) {
      showError(box, error);
      button.disabled = false;
    }
  });
}

const valuesOf = ({ name, title, text, shared }) => ({ name: name.value.trim(), title: title.value, text: text.value, is_shared: shared.checked });

watchForm(dialog?.querySelector("form"), (fields) => call("POST", api, valuesOf(fields)));
watchForm(document.getElementById("edit-prompt"), (fields) => call("PATCH", api, valuesOf(fields)));
watchForm(remove?.querySelector("form"), () => call("DELETE", api));
document.querySelector("[data-new-prompt]")?.addEventListener("click", () => open(dialog));
document.querySelector("[data-delete-prompt]")?.addEventListener("click", () => remove.showModal());
watchClosing();
// A message that is to be saved: its words are in the form already.
if (dialog?.matches("[data-open]")) {
  open(dialog);
  dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname));
}
