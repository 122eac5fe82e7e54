// Import: choose or drop files, upload them with progress, then show the server's progress.
import { showError } from "../composer/box.js";
import { ApiError } from "../support/api.js";
import { formatSize, sendBytes, sentText } from "../support/bytes.js";
import { gettext } from "../support/i18n.js";

const find = (id) => document.getElementById(id);
const form = find("import-form");
const area = find("drop-area");
const picker = find("import-files");
const button = find("import-button");
let files = [];
let request = null;

function choose(chosen) {
  files = [...chosen];
  find("import-error").hidden = true;
  find("chosen-files").replaceChildren(
    ...files.map((file) => {
      const line = document.createElement("li");
      const name = document.createElement("bdi");
      const bytes = document.createElement("span");
      name.textContent = file.name;
      bytes.textContent = formatSize(file.size);
      line.append(name, bytes);
      return line;
    }),
  );
  find("chosen-files").hidden = !files.length;
  button.disabled = !files.length;
  const all = files.reduce((sum, file) => sum + file.size, 0);
  if (all > Number(form.dataset.largest)) complain(new ApiError("REQUEST_TOO_LARGE", gettext("These files are larger than an import can be.")));
}

function complain(error) {
  showError(find("import-error"), error);
  button.disabled = error.code === "REQUEST_TOO_LARGE";
}

async function send() {
  const body = new FormData();
  for (const file of files) body.append("file", file);
  body.append("model", find("import-model").value);
  request = new XMLHttpRequest();
  const { responseText } = await sendBytes(request, "POST", form.getAttribute("action"), { body, onSent: showSent });
  return JSON.parse(responseText);
}

function showSent(loaded, total) {
  find("sending-progress").max = total;
  find("sending-progress").value = loaded;
  find("sending-text").textContent = sentText(loaded, total);
}

async function bringIn() {
  button.disabled = true;
  find("import-error").hidden = true;
  find("sending").hidden = false;
  try {
    const { id } = await send();
    const address = form.dataset.status.replace("IMPORT", encodeURIComponent(id));
    history.replaceState(null, "", address);
    choose([]);
    form.reset();
    await window.htmx.ajax("GET", address, { target: "#import-status", swap: "innerHTML" });
    find("import-status").scrollIntoView({ block: "nearest" });
  } catch (error) {
    button.disabled = false;
    if (error.code !== "GIVEN_UP") complain(error);
  }
  request = null;
  find("sending").hidden = true;
}

picker.addEventListener("change", () => choose(picker.files));
form.addEventListener("submit", (event) => {
  event.preventDefault();
  if (files.length && !request) bringIn();
});
find("cancel-sending").addEventListener("click", () => request?.abort());
for (const type of ["dragenter", "dragover"]) {
  area.addEventListener(type, (event) => {
    event.preventDefault();
    area.dataset.over = "";
  });
}
for (const type of ["dragleave", "drop"]) area.addEventListener(type, () => delete area.dataset.over);
area.addEventListener("drop", (event) => {
  event.preventDefault();
  choose(event.dataTransfer.files);
});
addEventListener("beforeunload", (event) => request && event.preventDefault());
