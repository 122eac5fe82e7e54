// Renews an expired login without leaving the page. The unsent message is kept, and sent after signing in.
import { csrfToken } from "../support/api.js";
import { gettext } from "../support/i18n.js";

const AFTER = "/livez"; // a small response to be redirected to
const WRONG = gettext("That username and password do not match.");

// Returns why signing in failed, or "" if it succeeded.
async function signIn(form) {
  const path = form.getAttribute("action");
  await fetch(path, { credentials: "same-origin" }); // the CSRF cookie may be gone too, so get a new one
  const body = new URLSearchParams(new FormData(form));
  body.set("next", AFTER);
  const headers = { "X-CSRFToken": csrfToken(), Accept: "application/json" };
  const answer = await fetch(path, { method: "POST", credentials: "same-origin", headers, body });
  if (!answer.ok) return (await answer.json()).error.message;
  return new URL(answer.url).pathname === AFTER ? "" : WRONG;
}

export class SignIn {
  #asked = null;

  // onSignedIn() is called after signing in, so that the page can reconnect.
  constructor(dialog, { onSignedIn }) {
    Object.assign(this, { dialog, onSignedIn, form: dialog.querySelector("form") });
    this.error = dialog.querySelector("[role=alert]");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#try();
    });
    dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
    // The user may have signed in on another page in the meantime.
    dialog.querySelector("[data-elsewhere]").addEventListener("click", () => this.#end(""));
  }

  // Resolves to whether the user signed in here, or says they did elsewhere. Concurrent callers share one dialog.
  ask() {
    this.#asked ??= new Promise((resolve) => {
      this.dialog.addEventListener("close", () => this.#answer(resolve), { once: true });
      this.dialog.returnValue = "";
      this.error.hidden = true;
      this.dialog.showModal();
    });
    return this.#asked;
  }

  #answer(resolve) {
    this.#asked = null;
    this.form.reset();
    const isDone = this.dialog.returnValue === "done";
    if (isDone) this.onSignedIn();
    resolve(isDone);
  }

  async #try() {
    const button = this.form.querySelector("[type=submit]");
    button.disabled = true;
    const problem = await signIn(this.form).catch(() => gettext("The server did not answer. Try again."));
    button.disabled = false;
    this.#end(problem);
  }

  #end(problem) {
    this.error.hidden = !problem;
    this.error.textContent = problem;
    if (!problem) this.dialog.close("done");
    else this.form.elements.password.select();
  }
}
