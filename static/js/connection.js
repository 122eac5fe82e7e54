// The status line above the message box: the connection, and the progress of slow actions.

const SHORT = 1_500; // milliseconds: shorter interruptions are not shown

export class Connection {
  #lostAt = 0;

  constructor(line, { onSignIn }) {
    Object.assign(this, { line, onSignIn });
  }

  show(state) {
    if (state === "live") this.#lostAt = 0;
    if (state === "reconnecting") this.#lost();
    else if (state === "signed-out") this.#offerSignIn();
    else this.say(state === "gone" ? "This session no longer exists." : "");
  }

  say(words) {
    this.line.textContent = words;
    this.line.hidden = !words;
  }

  #lost() {
    if (!this.#lostAt) setTimeout(() => this.#lostAt && this.say("Reconnecting… Nothing is lost."), SHORT);
    this.#lostAt ||= Date.now();
  }

  #offerSignIn() {
    const button = document.createElement("button");
    button.type = "button";
    button.className = "link-button";
    button.textContent = "Sign in";
    button.addEventListener("click", this.onSignIn);
    this.say("You are signed out. What you write is kept. ");
    this.line.append(button);
  }
}
