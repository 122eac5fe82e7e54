// Saved prompts: a new one is made in a dialog of their list; the page of one changes and deletes it.
import { onSubmit } from "../forms/submission.js";
import { open, watchClosing } from "../session/dialogs.js";
import { call } from "../support/api.js";

const dialog = document.getElementById("new-prompt");
const remove = document.getElementById("delete-prompt");
const page = document.querySelector("[data-prompts]");
const api = page.dataset.prompt ? `/api/prompts/${encodeURIComponent(page.dataset.prompt)}` : "/api/prompts";

const valuesOf = ({ name, title, text, shared }) => ({ name: name.value.trim(), title: title.value, text: text.value, is_shared: shared.checked });

function watchForm(form, boxId, ask) {
  onSubmit(form, boxId, async (fields) => {
    await ask(fields);
    location.assign(page.dataset.prompts);
  });
}

watchForm(dialog, "new-prompt-error", (fields) => call("POST", api, valuesOf(fields)));
watchForm(document.getElementById("edit-prompt"), "edit-prompt-error", (fields) => call("PATCH", api, valuesOf(fields)));
watchForm(remove, "delete-prompt-error", () => call("DELETE", api));
document.querySelector("[data-new-prompt]")?.addEventListener("click", () => open(dialog));
document.querySelector("[data-delete-prompt]")?.addEventListener("click", () => remove.showModal());
watchClosing();
// A message that is to be saved: its words are in the form already.
if (dialog?.matches("[data-open]")) {
  open(dialog);
  dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname));
}
