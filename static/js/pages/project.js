// The page of a project: its owner changes its files and members, and a member leaves it.
import { showError } from "../composer/box.js";
import { onSubmit } from "../forms/submission.js";
import { watchClosing } from "../session/dialogs.js";
import { call, fetchPart } from "../support/api.js";
import { sendBytes } from "../support/bytes.js";
import { formatPercent, gettext } from "../support/i18n.js";

const page = document.getElementById("project");
const api = `/api/projects/${encodeURIComponent(page.dataset.project)}`;
const end = document.getElementById("end-project");
const adding = document.getElementById("add-member");

async function removeMember(row) {
  const name = row.querySelector("bdi").textContent;
  await call("DELETE", `${api}/members/${encodeURIComponent(row.dataset.member)}`);
  row.remove();
  adding.elements.name.focus();
  document.getElementById("project-said").textContent = gettext("%(name)s is no longer a member.", { name });
}

/* Files */

const files = document.getElementById("project-files");
const picker = document.getElementById("project-file-picker");
const status = document.getElementById("files-status");
const filesError = document.getElementById("files-error");

async function showFiles() {
  files.replaceChildren(await fetchPart(files.dataset.part));
}

async function addFile(file) {
  const body = new FormData();
  body.append("file", file);
  await sendBytes(new XMLHttpRequest(), "POST", `${api}/files`, {
    body,
    onSent: (sent, total) => (status.textContent = gettext("Adding %(name)s… %(share)s", { name: file.name, share: formatPercent(Math.round((100 * sent) / total)) })),
  });
}

// One after the other: what has arrived stays when a later one is refused.
async function addFiles(chosen) {
  filesError.hidden = true;
  try {
    for (const file of chosen) await addFile(file);
    status.textContent = "";
  } catch (error) {
    status.textContent = "";
    showError(filesError, error);
  }
  await showFiles();
}

async function removeFile(row) {
  filesError.hidden = true;
  await call("DELETE", `${api}/files/${encodeURIComponent(row.dataset.file)}`);
  await showFiles();
  page.querySelector("[data-add-files]").focus();
}

picker?.addEventListener("change", async () => {
  await addFiles([...picker.files]);
  picker.value = "";
});

/* Its members */

onSubmit(adding, "members-error", async ({ name }) => {
  await call("POST", `${api}/members`, { name: name.value.trim() });
  location.reload();
});
onSubmit(end, "end-project-error", async () => {
  const isOwner = Boolean(adding);
  await (isOwner ? call("DELETE", api) : call("POST", `${api}/leave`));
  location.replace(page.dataset.projects);
});

page.addEventListener("click", ({ target }) => {
  if (target.closest("[data-end-project]")) end.showModal();
  if (target.closest("[data-add-files]")) picker.click();
  const file = target.closest("[data-remove-file]")?.closest("li");
  if (file) removeFile(file).catch((error) => showError(filesError, error));
  const row = target.closest("[data-remove-member]")?.closest("li");
  if (row) removeMember(row).catch((error) => showError(document.getElementById("members-error"), error));
});
watchClosing();
