// The list of projects: a new one is made in a dialog, which "#new" in the address opens.
import { call } from "./api.js";
import { showError } from "./composer.js";
import { open, watchClosing } from "./dialogs.js";

const page = document.getElementById("projects");
const dialog = document.getElementById("new-project");
const form = dialog.querySelector("form");
const errorBox = document.getElementById("new-project-error");

function openIfAsked() {
  if (location.hash === "#new") open(dialog);
}

form.addEventListener("submit", async (event) => {
  event.preventDefault();
  const button = form.querySelector("[type=submit]");
  button.disabled = errorBox.hidden = true;
  try {
    const { name, instructions } = form.elements;
    const { id } = await call("POST", "/api/projects", { name: name.value, instructions: instructions.value });
    location.assign(page.dataset.page.replace("PROJECT", encodeURIComponent(id)));
  } catch (error) {
    showError(errorBox, error);
    button.disabled = false;
  }
});
document.querySelector("[data-new-project]").addEventListener("click", () => open(dialog));
// Opened once more from the sidebar, the address has to change again.
dialog.addEventListener("close", () => history.replaceState(null, "", location.pathname));
addEventListener("hashchange", openIfAsked);
watchClosing();
openIfAsked();
