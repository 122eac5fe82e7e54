// A websocket that follows one session: events in order of seq, and the text of a running answer by offset.
// The ledger is authoritative: whatever one socket misses, the next one requests, starting after the last seq received.

const FIRST_DELAY = 250;
const LONGEST_DELAY = 10_000;
const PING_EVERY = 20_000;
const SILENCE_LIMIT = 45_000;
const ENDS = { 4401: "signed-out", 4409: "signed-out", 4404: "gone" };

export class LiveFeed {
  #socket = null;
  #delay = FIRST_DELAY;
  #timer = 0;
  #heardAt = 0;
  #ended = false;

  // onEvent(event), onDelta(delta) -> false if earlier text is missing, onState("live" | "reconnecting" | "signed-out" | "gone")
  constructor({ path, seq, onEvent, onDelta, onCaughtUp, onState }) {
    Object.assign(this, { path, seq, onEvent, onDelta, onCaughtUp, onState });
  }

  start() {
    addEventListener("online", () => this.reconnect());
    addEventListener("offline", () => this.reconnect());
    addEventListener("pageshow", (event) => event.persisted && this.reconnect());
    document.addEventListener("visibilitychange", () => {
      if (!document.hidden && this.#socket?.readyState !== WebSocket.OPEN) this.reconnect();
    });
    setInterval(() => this.#checkPulse(), PING_EVERY);
    this.#open();
  }

  // Drops the socket and opens a new one at once.
  reconnect() {
    if (this.#ended) return;
    this.#delay = FIRST_DELAY;
    this.#drop();
    this.onState("reconnecting");
    this.#open();
  }

  // Called after the user has signed in again.
  restart() {
    this.#ended = false;
    this.reconnect();
  }

  #open() {
    clearTimeout(this.#timer);
    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(`${scheme}//${location.host}${this.path}?after=${this.seq}`);
    this.#socket = socket;
    this.#heardAt = Date.now();
    socket.addEventListener("message", (message) => socket === this.#socket && this.#take(JSON.parse(message.data)));
    socket.addEventListener("close", (event) => socket === this.#socket && this.#closed(event.code));
  }

  #drop() {
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  #closed(code) {
    this.#socket = null;
    if (ENDS[code]) {
      this.#ended = true;
      this.onState(ENDS[code]);
      return;
    }
    this.onState("reconnecting");
    // Jitter, or all tabs would reconnect to a restarted server at the same instant.
    this.#timer = setTimeout(() => this.#open(), this.#delay * (0.75 + Math.random() / 2));
    this.#delay = Math.min(this.#delay * 2, LONGEST_DELAY);
  }

  #checkPulse() {
    if (this.#socket?.readyState !== WebSocket.OPEN) return;
    if (Date.now() - this.#heardAt > SILENCE_LIMIT) this.reconnect();
    else this.#socket.send('{"type":"ping"}');
  }

  #take(frame) {
    this.#heardAt = Date.now();
    if (frame.type === "caught_up") {
      this.#delay = FIRST_DELAY;
      this.onState("live");
      this.onCaughtUp();
    } else if (frame.type === "delta") {
      if (this.onDelta(frame) === false) this.reconnect();
    } else if (frame.seq !== undefined) {
      this.#takeEvent(frame);
    }
  }

  #takeEvent(event) {
    if (event.seq <= this.seq) return;
    if (event.seq > this.seq + 1) {
      this.reconnect();
      return;
    }
    this.seq = event.seq;
    this.onEvent(event);
  }
}

// The text of running answers so far, by message and part. Offsets count code points, as on the server.
export class LiveTexts {
  #parts = new Map();

  // Returns the updated part, null if nothing is new, or undefined if text before the delta is missing.
  take({ message_id: messageId, part_index: index, part_type: type, offset, text }) {
    const parts = this.of(messageId);
    if (!parts.has(index)) parts.set(index, { index, type, text: "", length: 0 });
    const part = parts.get(index);
    if (offset > part.length) return undefined;
    const characters = Array.from(text).slice(part.length - offset);
    if (!characters.length) return null;
    part.text += characters.join("");
    part.length += characters.length;
    return part;
  }

  of(messageId) {
    if (!this.#parts.has(messageId)) this.#parts.set(messageId, new Map());
    return this.#parts.get(messageId);
  }

  drop(messageId) {
    this.#parts.delete(messageId);
  }
}
