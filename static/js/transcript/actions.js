// The actions of a message: copy, answer again, compare, edit, fork, link, rate. Nothing that was said changes: what is said or answered
// differently begins another branch.
import { call, fetchJson, makeFork } from "../support/api.js";
import { copyText } from "../support/copy.js";
import { gettext } from "../support/i18n.js";

const pageOf = (sessionId) => `/sessions/${encodeURIComponent(sessionId)}/`;

export class Actions {
  #isBusy = false;

  // edit({ text, files, parent }), answerAgain(id of what a user said), share(message), compare(address) and rate(message, thumb) are the page's,
  // as are onError(error) and onBusy(words).
  constructor({ root, sessionId, api, messages, edit, answerAgain, share, compare, rate, onError, onBusy }) {
    Object.assign(this, { sessionId, api, messages, edit, answerAgain, share, compare, rate, onError, onBusy });
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
    const at = `${this.messages}${encodeURIComponent(message.dataset.message)}`;
    if (act === "fork") return this.#fork({ at_message_id: message.dataset.message });
    if (act === "share") return this.share(message);
    if (act === "compare") return this.compare(`${at}/compare/`);
    if (act === "up" || act === "down") return this.rate(message, act);
    if (act === "rating") return this.rate(message);
    if (act === "edit") return this.edit(await this.#said(at));
    return this.answerAgain((await fetchJson(`${at}/question/`)).id);
  }

  async #textOf(message) {
    const answer = await fetch(`${this.messages}${encodeURIComponent(message.dataset.message)}/text/`);
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return answer.text();
  }

  async #said(at) {
    const { text, file_ids: ids, parent_id: parent } = await fetchJson(`${at}/said/`);
    const files = await Promise.all(ids.map((id) => call("GET", `/api/files/${encodeURIComponent(id)}`)));
    return { text, parent, files: files.map(({ id, path, size }) => ({ id, name: path.split("/").at(-1), size })) };
  }

  async #fork(where) {
    this.onBusy(gettext("Forking…"));
    const fork = await makeFork(this.api, where, this.onBusy);
    location.assign(pageOf(fork));
  }
}
