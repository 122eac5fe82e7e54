// A login that has run out is renewed where one is: what was written stays, and is sent when it is done.
import { csrfToken } from "./api.js";

const AFTER = "/livez"; // a small answer to be led to
const WRONG = "That username and password do not match.";

// Returns why signing in failed, or nothing after it succeeded.
async function signIn(form) {
  const path = form.getAttribute("action");
  await fetch(path, { credentials: "same-origin" }); // the cookie that a form needs may be gone, too
  const body = new URLSearchParams(new FormData(form));
  body.set("next", AFTER);
  const headers = { "X-CSRFToken": csrfToken(), Accept: "application/json" };
  const answer = await fetch(path, { method: "POST", credentials: "same-origin", headers, body });
  if (!answer.ok) return (await answer.json()).error.message;
  return new URL(answer.url).pathname === AFTER ? "" : WRONG;
}

export class SignIn {
  #asked = null;

  // onSignedIn(): the socket may go on
  constructor(dialog, { onSignedIn }) {
    Object.assign(this, { dialog, onSignedIn, form: dialog.querySelector("form") });
    this.error = dialog.querySelector("[role=alert]");
    this.form.addEventListener("submit", (event) => {
      event.preventDefault();
      this.#try();
    });
    dialog.querySelector("[data-close]").addEventListener("click", () => dialog.close());
    // The person may have signed in on another page meanwhile.
    dialog.querySelector("[data-elsewhere]").addEventListener("click", () => this.#end(""));
  }

  // Whether somebody has signed in, or says so. Two that ask at once get one answer.
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
    const problem = await signIn(this.form).catch(() => "The server did not answer. Try again.");
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
