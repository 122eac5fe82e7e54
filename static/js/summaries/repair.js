// A summary is made again, for a preview; a preview is applied, or the text before it restored. Each leads to the page of what was made.
import { onSubmit } from "../forms/submission.js";
import { call } from "../support/api.js";
import { gettext } from "../support/i18n.js";

const place = document.getElementById("repair");

onSubmit(place, "repair-error", async ({ model, subtree, preview_id: preview }, { dataset: { verb, next } }) => {
  const status = document.getElementById("repair-status");
  const bodies = { preview: { model: model?.value, subtree: Boolean(subtree?.checked) }, apply: { preview_id: preview?.value }, undo: {} };
  if (verb === "preview") status.textContent = gettext("The model is summarising. This can take a minute.");
  try {
    const made = await call("POST", `${place.dataset.api}/${verb}`, bodies[verb]);
    location.assign(next.replace("ID", encodeURIComponent(made.id ?? made.items.at(-1).id)));
  } finally {
    status.textContent = "";
  }
});
