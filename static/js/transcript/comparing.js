// The dialog in which another model is asked the question of an answer. Once it is asked, the page of both answers opens.
import { onSubmit } from "../forms/submission.js";
import { open } from "../session/dialogs.js";
import { ApiError, csrfToken, fetchPart } from "../support/api.js";
import { gettext } from "../support/i18n.js";

// address: that of an answer whose question is asked
export async function askAnother(address, model) {
  const headers = { Accept: "application/json", "X-CSRFToken": csrfToken() };
  const answer = await fetch(address, { method: "POST", body: new URLSearchParams({ model }), headers, credentials: "same-origin" }).catch(() => null);
  if (!answer) throw new ApiError("NOT_REACHED", gettext("The server did not answer."));
  const body = await answer.json().catch(() => null);
  if (!answer.ok || !body) throw new ApiError(body?.error?.code ?? `HTTP_${answer.status}`, body?.error?.message ?? gettext("That did not work."), answer.status);
  location.assign(body.address);
}

// Returns show(address), which opens the dialog.
export function watchComparing(dialog) {
  const body = dialog?.querySelector("#comparing-body");
  onSubmit(body, "comparing-error", ({ model }, { action }) => askAnother(action, model.value));

  return async (address) => {
    body.replaceChildren(await fetchPart(address));
    open(dialog);
    body.querySelector("input:checked, a")?.focus();
  };
}
