// Uploads one file in pieces (tus 1.0, docs: /api/docs). It resumes by itself after a lost connection.
import { ApiError } from "../support/api.js";
import { sendBytes } from "../support/bytes.js";
import { gettext } from "../support/i18n.js";

const TUS = { "Tus-Resumable": "1.0.0" };
const PIECE = 8 * 1024 * 1024; // bytes
const FIRST_DELAY = 500; // milliseconds
const LONGEST_DELAY = 10_000;
const MOST_BEGINNINGS = 3;

const UNREADABLE = gettext("This file can no longer be read: it was changed or moved, or is a folder. Choose it again.");

function base64(text) {
  // Encode as UTF-8 first, because btoa only takes bytes. A lone surrogate becomes U+FFFD.
  return btoa(String.fromCharCode(...new TextEncoder().encode(text)));
}

// Errors worth retrying: no network, server unavailable, a piece still being written, an upload that has ended.
const isPassing = ({ code, status }) => code === "NOT_REACHED" || code === "CONFLICT" || code === "UPLOAD_NOT_FOUND" || status === 429 || status >= 500;

export class Upload {
  #place = "";
  #request = null;
  #isGivenUp = false;
  #beginnings = 0;
  #wake = () => {};

  // onProgress(bytes received so far); onWaiting() is called when the connection is lost, before each retry.
  constructor(file, { sessionId, onProgress, onWaiting }) {
    Object.assign(this, { file, sessionId, onProgress, onWaiting });
  }

  // Resolves to the file's id when the upload is complete.
  async run() {
    const online = () => this.#wake();
    addEventListener("online", online);
    try {
      for (let delay = FIRST_DELAY; ; delay = Math.min(delay * 2, LONGEST_DELAY)) {
        const id = await this.#tryOnce();
        if (id) return id;
        this.onWaiting();
        await this.#pause(delay);
      }
    } finally {
      removeEventListener("online", online);
    }
  }

  cancel() {
    this.#isGivenUp = true;
    this.#request?.abort();
    this.#wake();
    // Deletes the partial upload at once. If the request fails, the server deletes it after a day.
    if (this.#place) sendBytes(new XMLHttpRequest(), "DELETE", this.#place, { headers: TUS }).catch(() => {});
  }

  async #tryOnce() {
    await this.#checkReadable();
    try {
      return await this.#goOn();
    } catch (error) {
      if (!isPassing(error)) throw error;
      return "";
    }
  }

  async #goOn() {
    for (let offset = await this.#begin(); ; ) {
      const before = offset;
      const answer = await this.#ask("PATCH", this.#place, {
        headers: { "Upload-Offset": String(before), "Content-Type": "application/offset+octet-stream" },
        body: this.file.slice(before, before + PIECE),
        onSent: (bytes) => this.onProgress(before + bytes),
      });
      const id = answer.getResponseHeader("Mnesis-File");
      if (id) return id;
      offset = Number(answer.getResponseHeader("Upload-Offset"));
      this.onProgress(offset);
    }
  }

  // Returns the offset to resume from. If the upload is gone, it has ended: start again, and the server finds the same file.
  async #begin() {
    if (this.#place) {
      try {
        const answer = await this.#ask("HEAD", this.#place, {});
        return Number(answer.getResponseHeader("Upload-Offset"));
      } catch (error) {
        if (error.status !== 404) throw error;
        this.#place = "";
      }
    }
    if (++this.#beginnings > MOST_BEGINNINGS) throw new ApiError("NOT_TAKEN", gettext("This file could not be uploaded. Try again."));
    const metadata = `filename ${base64(this.file.name)},session_id ${base64(this.sessionId)}`;
    const answer = await this.#ask("POST", "/api/uploads", { headers: { "Upload-Length": String(this.file.size), "Upload-Metadata": metadata } });
    // Only the path: behind a proxy the server may not know its own address.
    this.#place = new URL(answer.getResponseHeader("Location"), location.href).pathname;
    return 0;
  }

  #ask(method, path, options) {
    if (this.#isGivenUp) throw new ApiError("GIVEN_UP", gettext("This upload was cancelled."));
    this.#request = new XMLHttpRequest();
    return sendBytes(this.#request, method, path, { ...options, headers: { ...TUS, ...options.headers } });
  }

  async #checkReadable() {
    try {
      await this.file.slice(0, 1).arrayBuffer();
    } catch {
      throw new ApiError("UNREADABLE", UNREADABLE);
    }
  }

  #pause(delay) {
    return new Promise((resolve) => {
      const timer = setTimeout(resolve, delay);
      this.#wake = () => (clearTimeout(timer), resolve());
    });
  }
}
