// The pages Memory: facts are added, corrected, withdrawn, forbidden, held and let go through the API, and the page shows
// what came of it.
import { call } from "../support/api.js";

const page = document.getElementById("memory");
const errorBox = document.getElementById("memory-error");
const { api } = page.dataset;

async function act(path, body, buttons) {
  for (const button of buttons) button.disabled = true;
  errorBox.hidden = true;
  try {
    await call("POST", path, body);
    location.reload();
  } catch (error) {
    errorBox.textContent = error.message;
    errorBox.hidden = false;
    errorBox.scrollIntoView({ block: "nearest" });
    for (const button of buttons) button.disabled = false;
  }
}

page.addEventListener("submit", (event) => {
  const form = event.target.closest("form[data-fact]");
  if (!form) return;
  event.preventDefault();
  const id = form.dataset.fact;
  const path = id ? `${api}/${encodeURIComponent(id)}/correct` : api;
  act(path, Object.fromEntries(new FormData(form)), form.querySelectorAll("button"));
});

page.addEventListener("click", (event) => {
  const button = event.target.closest("button[data-act]");
  if (!button) return;
  const { act: verb, heldFor } = button.dataset;
  const body = heldFor ? { held_for: heldFor } : undefined;
  act(`${api}/${encodeURIComponent(button.closest(".fact").id)}/${verb}`, body, [button]);
});
