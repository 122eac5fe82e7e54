// The trash: restores sessions, and deletes them for good once that is confirmed.
import { showError } from "../composer/box.js";
import { call } from "../support/api.js";
import { closed } from "../support/dialogs.js";
import { gettext } from "../support/i18n.js";

const page = document.getElementById("trash");
const dialog = document.getElementById("delete-dialog");
const rowsLeft = () => page.querySelectorAll(".trash-row").length;

// Takes a row away and gives the focus to the next one, so that a keyboard goes on from there.
function remove(row, words) {
  const next = row.nextElementSibling ?? row.previousElementSibling;
  row.remove();
  document.getElementById("trash-empty").hidden = rowsLeft() > 0 || Boolean(next);
  (next?.querySelector("button") ?? page.querySelector("#trash-empty a")).focus();
  document.getElementById("trash-said").textContent = words;
  document.dispatchEvent(new Event("mnesis:sessions")); // for the sidebar
}

async function isConfirmed(title) {
  document.getElementById("delete-name").textContent = title;
  dialog.returnValue = "";
  dialog.showModal();
  await closed(dialog);
  return dialog.returnValue === "delete";
}

const acts = {
  async restore(row, api, title) {
    await call("POST", `${api}/restore`);
    remove(row, gettext("%(title)s is restored.", { title }));
  },
  async delete(row, api, title) {
    if (!(await isConfirmed(title))) return;
    await call("DELETE", api);
    remove(row, gettext("%(title)s is deleted for good.", { title }));
  },
};

page.addEventListener("click", async ({ target }) => {
  const button = target.closest("[data-act]");
  if (!button) return;
  const row = button.closest(".trash-row");
  const box = row.querySelector(".row-error");
  box.hidden = true;
  try {
    await acts[button.dataset.act](row, `/api/sessions/${encodeURIComponent(row.id)}`, row.querySelector(".trash-title").textContent);
  } catch (error) {
    showError(box, error);
  }
});
