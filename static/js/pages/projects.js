// The list of projects: a new one is made in a dialog, which "#new" in the address opens.
import { onSubmit } from "../forms/submission.js";
import { open, watchClosing } from "../session/dialogs.js";
import { call } from "../support/api.js";

const page = document.getElementById("projects");
const dialog = document.getElementById("new-project");

function openIfAsked() {
  if (location.hash === "#new") open(dialog);
}

onSubmit(dialog, "new-project-error", async ({ name, instructions }) => {
  const { id } = await call("POST", "/api/projects", { name: name.value, instructions: instructions.value });
  location.assign(page.dataset.page.replace("PROJECT", encodeURIComponent(id)));
});
document.querySelector("[data-new-project]").addEventListener("click", () => open(dialog));
// Opened once more from the sidebar, the address has to change again.
dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname));
addEventListener("hashchange", openIfAsked);
watchClosing();
openIfAsked();
