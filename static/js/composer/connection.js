// The status line above the message box: the connection, and the progress of slow actions.
import { gettext } from "../support/i18n.js";

const SHORT = 1_500; // milliseconds: shorter interruptions are not shown

export class Connection {
  #lostAt = 0;

  constructor(line, { onSignIn, onGone }) {
    Object.assign(this, { line, onSignIn, onGone });
  }

  show(state) {
    if (state === "live") this.#lostAt = 0;
    if (state === "reconnecting") this.#lost();
    else if (state === "signed-out") this.offer(gettext("You are signed out. What you write is kept."), gettext("Sign in"), this.onSignIn);
    else if (state === "gone") this.onGone();
    else this.say("");
  }

  say(words) {
    this.line.textContent = words;
    this.line.hidden = !words;
  }

  #lost() {
    if (!this.#lostAt) setTimeout(() => this.#lostAt && this.say(gettext("Reconnecting… Nothing is lost.")), SHORT);
    this.#lostAt ||= Date.now();
  }

  // Says something with a button that does something about it, and returns the button.
  offer(words, label, act) {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "link-button";
    button.textContent = label;
    button.addEventListener("click", act);
    this.say(words);
    this.line.append(" ", button);
    return button;
  }
}
