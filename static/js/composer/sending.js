// Sends messages: at once while no turn is running, otherwise through the queue. Tracks the running turn and can stop it.
import { ApiError, call } from "../support/api.js";
import { gettext } from "../support/i18n.js";
import { newKey } from "./box.js";

const AGAIN = 2_000; // milliseconds before the queue is tried again
const PATIENCE = 60; // seconds until a message counts as not sent; sent again, it starts no second turn (its key)

// Without its cookies, an expired login gets a 403 instead of a 401.
const isSignedOut = ({ code, status }) => status === 401 || (status === 403 && code === "PERMISSION_DENIED");
const isPassing = ({ code, status }) => code === "NOT_REACHED" || status === 429 || status >= 500;

// Only one tab sends at a time, if the browser supports locks; otherwise the idempotency keys prevent duplicates. The tab
// that holds the lock may be waiting for a password.
const alone = (name, action) => (navigator.locks ? navigator.locks.request(name, { ifAvailable: true }, (lock) => lock && action()) : action());

export class Sending {
  stopping = false;
  sending = false;
  #ended = new Set(); // ids of turns: the end event of a short turn may arrive before the response that started it
  #urgent = false;
  #timer = 0;

  // state: the session's state. onChange() and onError(error) are the page's callbacks.
  constructor({ api, state, running, queue, signIn, onChange, onError }) {
    Object.assign(this, { api, queue, signIn, onChange, onError, running });
    this.waiting = state === "suspended"; // a tool call needs an answer
    this.isHeld = !running && !["idle", "running", "suspended"].includes(state);
  }

  /* Events */

  turnGoesOn() {
    this.running = true;
    this.waiting = this.isHeld = false;
  }

  turnWaits() {
    this.running = this.waiting = true;
  }

  // After a turn that did not complete, the queue is held: the next turn might fail in the same way.
  turnEnded(state, turnId) {
    this.#ended.add(turnId);
    this.running = this.stopping = this.waiting = false;
    this.isHeld = state !== "completed" && !this.#urgent;
    this.drain();
  }

  /* User actions */

  // Returns whether the message was sent or queued. A queued message keeps its idempotency key.
  async send(message) {
    if (this.running) {
      this.queue.add(message);
      return true;
    }
    this.sending = true;
    this.onChange();
    try {
      await this.#begin(message);
      return true;
    } catch (error) {
      if (error.code !== "SESSION_BUSY") this.onError(error);
      else this.queue.add(message);
      return error.code === "SESSION_BUSY";
    } finally {
      this.sending = false;
      this.onChange();
      this.#drainSoon();
    }
  }

  // Has what a user said answered again, on another branch. The turn has no message of its own.
  async answerAgain(parent, model) {
    this.sending = true;
    this.onChange();
    try {
      await this.#begin({ parent, model });
    } finally {
      this.sending = false;
      this.onChange();
      this.#drainSoon();
    }
  }

  sendNow(key) {
    this.queue.moveToFront(key);
    this.#urgent = true;
    if (this.running) return this.stop();
    return this.drain();
  }

  async stop() {
    if (!this.running || this.stopping) return;
    this.stopping = true;
    this.onChange();
    try {
      await call("POST", `${this.api}/interrupt`);
    } catch (error) {
      this.stopping = false;
      if (error.code !== "SESSION_NOT_RUNNING") this.onError(error);
      this.onChange();
    }
  }

  /* The queue */

  drain() {
    clearTimeout(this.#timer);
    if (!this.#maySend()) return;
    this.sending = true;
    this.onChange();
    alone(this.queue.name, () => this.#sendFirst()).finally(() => {
      this.sending = false;
      this.onChange();
      if (!this.isHeld) this.#drainSoon();
    });
  }

  #maySend() {
    return !this.running && !this.sending && (!this.isHeld || this.#urgent) && this.queue.items.length > 0;
  }

  async #sendFirst() {
    const [item] = this.queue.items; // read again: another tab may have sent the first item
    if (!item || this.running) return;
    try {
      await this.#begin(item);
      this.#urgent = false;
      this.queue.remove(item.key);
    } catch (error) {
      // Temporary errors are tried again.
      if (error.code !== "SESSION_BUSY" && !isPassing(error)) this.#hold(error);
    }
  }

  #hold(error) {
    this.isHeld = true;
    this.#urgent = false;
    this.onError(error);
  }

  #drainSoon() {
    clearTimeout(this.#timer);
    if (this.queue.items.length) this.#timer = setTimeout(() => this.drain(), AGAIN);
  }

  async #begin({ text, files = [], model = "", parent = "", key = newKey() }) {
    const body = { idempotency_key: key, files: files.map(({ id }) => id) };
    if (text !== undefined) body.message = text;
    if (model) body.model = model;
    if (parent) body.parent_id = parent;
    const turn = await this.#post(body);
    this.running ||= turn.state === "running" && !this.#ended.has(turn.id);
    this.isHeld = false;
  }

  async #post(body) {
    const seconds = body.files.length ? 0 : PATIENCE; // files may take long to be explored
    for (;;) {
      try {
        return await call("POST", `${this.api}/turns`, body, { seconds });
      } catch (error) {
        if (!isSignedOut(error)) throw error;
        if (!(await this.signIn.ask())) throw new ApiError(error.code, gettext("You are signed out. Your message is kept here: send it again to sign in."), 401);
      }
    }
  }
}
