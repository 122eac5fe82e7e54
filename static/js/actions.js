// The actions of a message: copy, ask again, edit, fork, link. The record is append-only, so an action that would change
// it works in a fork.
import { ApiError, call, fetchJson, makeFork } from "./api.js";
import { copyText } from "./copy.js";
import { Draft } from "./composer.js";
import { Queue } from "./queue.js";
import { Upload } from "./upload.js";

const pageOf = (sessionId) => `/sessions/${encodeURIComponent(sessionId)}/`;
const fileAt = (id) => `/api/files/${encodeURIComponent(id)}`;

// A file belongs to one session, so a fork needs its own upload. The server stores identical bytes only once.
async function giveAgain(file, sessionId) {
  const answer = await fetch(`${fileAt(file.id)}/content`);
  if (!answer.ok) throw new ApiError(`HTTP_${answer.status}`, `${file.name} could not be read.`, answer.status);
  const copy = new File([await answer.blob()], file.name);
  const id = await new Upload(copy, { sessionId, onProgress: () => {}, onWaiting: () => {} }).run();
  return { ...file, id };
}

export class Actions {
  #isBusy = false;

  // sendHere(message) sends into this session; falsy if the session accepts no messages.
  // onError(error) and onBusy(words) report to the page.
  constructor({ root, sessionId, api, messages, sendHere, onError, onBusy }) {
    Object.assign(this, { sessionId, api, messages, sendHere, onError, onBusy });
    root.addEventListener("click", (event) => {
      const button = event.target.closest("button[data-act]");
      if (button) this.do(button.dataset.act, button.closest(".message"), button);
    });
  }

  async do(act, message, button) {
    if (act === "copy") return copyText(button, () => this.#textOf(message));
    if (act === "link") return copyText(button, () => new URL(`${pageOf(this.sessionId)}?at=${message.dataset.seq}`, location.href).href);
    if (this.#isBusy) return undefined;
    this.#isBusy = button.disabled = true;
    try {
      await this.#act(act, message);
    } catch (error) {
      this.onBusy("");
      this.onError(error);
    }
    this.#isBusy = button.disabled = false;
    return undefined;
  }

  async #act(act, message) {
    if (act === "fork") return this.#open(await this.#fork({ at_message_id: message.dataset.message }));
    const id = act === "edit" ? message.dataset.message : await this.#questionOf(message);
    const said = await this.#saidWith(id);
    if (act === "retry" && this.sendHere) return this.sendHere(said);
    const fork = await this.#fork({ before_message_id: id });
    const files = [];
    for (const file of said.files) files.push(await giveAgain(file, fork));
    if (act === "edit") this.#keepDraft(fork, said.text, files);
    else new Queue(fork).add({ text: said.text, files });
    return this.#open(fork);
  }

  async #textOf(message) {
    const answer = await fetch(`${this.messages}${encodeURIComponent(message.dataset.message)}/text/`);
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return answer.text();
  }

  async #questionOf(message) {
    const turn = await call("GET", `${this.api}/turns/${encodeURIComponent(message.dataset.turn)}`);
    return turn.message_ids[0];
  }

  async #saidWith(id) {
    const { text, file_ids: ids } = await fetchJson(`${this.messages}${encodeURIComponent(id)}/said/`);
    const files = await Promise.all(ids.map((fileId) => call("GET", fileAt(fileId))));
    return { text, files: files.map(({ id: fileId, path, size }) => ({ id: fileId, name: path.split("/").at(-1), size })) };
  }

  async #fork(where) {
    this.onBusy("Forking…");
    return makeFork(this.api, where, (copied, messages) => this.onBusy(`Forking… ${copied} of ${messages} messages.`));
  }

  #keepDraft(sessionId, text, files) {
    const draft = new Draft(sessionId);
    draft.change(text);
    draft.attach(files);
  }

  #open(sessionId) {
    location.assign(pageOf(sessionId));
  }
}
