// Links to sessions: copied and revoked wherever they are listed, and made in the dialog of a session.
import { showError } from "../composer/box.js";
import { onSubmit } from "../forms/submission.js";
import { call, fetchPart } from "../support/api.js";
import { copyText } from "../support/copy.js";
import { gettext } from "../support/i18n.js";
import { showTimes } from "../support/times.js";
import { open } from "./dialogs.js";

const DAY = 86_400_000; // milliseconds
const say = (words) => (document.getElementById("share-said").textContent = words);
const absolute = (path) => new URL(path, location.href).href;

async function revoke(row) {
  await call("DELETE", `/api/sessions/${encodeURIComponent(row.dataset.session)}/shares/${encodeURIComponent(row.id)}`);
  row.querySelector(".share-acts").remove();
  const badge = document.createElement("span");
  Object.assign(badge, { className: "badge", textContent: gettext("revoked") });
  row.querySelector(".share-what").append(badge);
  row.tabIndex = -1;
  row.focus();
  say(gettext("The link is revoked and no longer works."));
}

document.addEventListener("click", ({ target }) => {
  const row = target.closest(".share-row");
  const copying = target.closest("[data-copy-link]");
  if (copying) copyText(copying, () => absolute(copying.dataset.copyLink));
  if (target.closest("[data-revoke]")) revoke(row).catch((error) => showError(row.querySelector(".row-error"), error));
});

// Returns share(message), which opens the dialog for a link up to that message, or to the last one.
export function watchShareDialog(dialog, { api }) {
  const body = dialog?.querySelector("#share-body");
  let message = null;

  async function show() {
    const part = await fetchPart(dialog.dataset.part);
    body.replaceChildren(part);
    showTimes(body);
    window.htmx.process(body);
    if (message) body.querySelector("#share-until").textContent = gettext("as it is now, up to message %(number)s", { number: message.dataset.seq });
    const { audience } = body.querySelector("form").elements;
    const showPeople = () => {
      const isForPeople = audience.value === "people";
      body.querySelector("#share-people-field").hidden = !isForPeople;
      body.querySelector("#share-people").required = isForPeople;
    };
    audience.addEventListener("change", showPeople);
    showPeople();
  }

  async function make({ audience, days, people }) {
    const made = await call("POST", `${api}/shares`, {
      audience: audience.value,
      people: audience.value === "people" ? people.value.split(",").map((name) => name.trim()).filter(Boolean) : [],
      message_id: message?.dataset.message ?? null,
      expires_at: days.value ? new Date(Date.now() + Number(days.value) * DAY).toISOString() : null,
    });
    await show();
    say(gettext("Link created."));
    document.getElementById(made.id).querySelector("[data-copy-link]").focus();
  }

  onSubmit(body, "share-error", make);

  return async (upTo = null) => {
    message = upTo;
    await show();
    open(dialog);
    body.querySelector("#share-audience").focus();
  };
}
