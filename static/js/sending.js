// What a person sends: at once while nothing runs, else into the queue. It knows whether a turn runs, and stops it.
import { ApiError, call } from "./api.js";
import { newKey } from "./composer.js";

const AGAIN = 2_000; // milliseconds, after what may pass by itself

// The second is what a login says that has lost its cookies as well.
const isSignedOut = ({ code, status }) => status === 401 || (status === 403 && code === "PERMISSION_DENIED");
const isPassing = ({ code, status }) => code === "NOT_REACHED" || status === 429 || status >= 500;

// One tab at a time, where the browser can say so; the keys see to the rest. It may be one that waits for a password.
const alone = (name, action) => (navigator.locks ? navigator.locks.request(name, { ifAvailable: true }, (lock) => lock && action()) : action());

export class Sending {
  stopping = false;
  sending = false;
  #ended = new Set(); // turns; the end of a short one may be heard before the answer that began it
  #urgent = false;
  #timer = 0;

  // state: of the session; onChange(), onError(error): for the page
  constructor({ api, state, running, queue, signIn, onChange, onError }) {
    Object.assign(this, { api, queue, signIn, onChange, onError, running });
    this.waiting = state === "suspended"; // for an answer to a tool call
    this.isHeld = !running && !["idle", "running", "suspended"].includes(state);
  }

  /* What the events say */

  turnGoesOn() {
    this.running = true;
    this.waiting = this.isHeld = false;
  }

  turnWaits() {
    this.running = this.waiting = true;
  }

  // After an end that was not good nothing is sent by itself: the next one might end as this one did.
  turnEnded(state, turnId) {
    this.#ended.add(turnId);
    this.running = this.stopping = this.waiting = false;
    this.isHeld = state !== "completed" && !this.#urgent;
    this.drain();
  }

  /* What the person does */

  // Whether it is on its way. While a turn runs it waits in the queue, with the key it would have been sent with.
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
    const [item] = this.queue.items; // another tab may have sent the one that was first
    if (!item || this.running) return;
    try {
      await this.#begin(item);
      this.#urgent = false;
      this.queue.remove(item.key);
    } catch (error) {
      // What passes by itself is tried again.
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

  async #begin({ text, files = [], model = "", key = newKey() }) {
    const asked = model ? { model } : {};
    const body = { message: text, idempotency_key: key, files: files.map(({ id }) => id), ...asked };
    const turn = await this.#post(body);
    this.running ||= turn.state === "running" && !this.#ended.has(turn.id);
    this.isHeld = false;
  }

  async #post(body) {
    for (;;) {
      try {
        return await call("POST", `${this.api}/turns`, body);
      } catch (error) {
        if (!isSignedOut(error)) throw error;
        if (!(await this.signIn.ask())) throw new ApiError(error.code, "You are signed out. Your message is kept here: send it again to sign in.", 401);
      }
    }
  }
}
