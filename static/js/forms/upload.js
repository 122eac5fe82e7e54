// A form with files is sent from its page: on a page that is loaded anew no file is chosen, and no script can choose one.
import { showError } from "../composer/box.js";
import { sendBytes, sentText } from "../support/bytes.js";

// Puts the form with its errors in the place of the one that was sent. Files that were not refused stay chosen.
function correct(form, page) {
  const sent = new DOMParser().parseFromString(page, "text/html").querySelector(".model-form");
  for (const input of sent.querySelectorAll('input[type="file"]:not([aria-invalid])')) {
    input.closest(".field").querySelector("[data-not-kept]")?.remove();
    input.replaceWith(form.querySelector(`#${input.id}`));
  }
  form.replaceWith(sent);
  sent.scrollIntoView();
  sent.querySelector("[aria-invalid]")?.focus();
}

async function send(form, button) {
  const request = new XMLHttpRequest();
  const [error, note] = ["form-error", "form-sending"].map((id) => document.getElementById(id));
  const onSent = (loaded, total) => (note.textContent = sentText(loaded, total));
  button.disabled = error.hidden = true;
  try {
    await sendBytes(request, "POST", form.action, { headers: { "HX-Request": "true", Accept: "application/json" }, body: new FormData(form), onSent });
    if (request.status === 200) correct(form, request.responseText);
  } catch (problem) {
    showError(error, problem);
    button.disabled = false;
  }
  note.textContent = "";
  const there = request.getResponseHeader("HX-Redirect");
  if (there) location.assign(there);
}

document.addEventListener("submit", (event) => {
  if (!event.target.matches('.model-form[enctype="multipart/form-data"]')) return;
  event.preventDefault();
  send(event.target, event.submitter);
});
// The back/forward cache restores the page as it was left, with its button still disabled.
addEventListener("pageshow", ({ persisted }) => {
  if (persisted) document.querySelector(".model-form button[type=submit]").disabled = false;
});
