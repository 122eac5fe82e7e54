// Messages waiting for the end of a turn. They stay in this browser until sent, each with its idempotency key: two tabs
// that send the same message start one turn, and so does a tab that was closed before the response and sends it again.
import { gettext, ngettext } from "../support/i18n.js";
import { newKey } from "./box.js";

const isItem = (item) => typeof item?.text === "string" && typeof item.key === "string" && Array.isArray(item.files);

export class Queue {
  #kept = []; // fallback when the browser cannot store the items

  constructor(sessionId) {
    this.name = `mnesis-queue-${sessionId}`;
  }

  get items() {
    try {
      const items = JSON.parse(localStorage.getItem(this.name));
      return Array.isArray(items) ? items.filter(isItem) : this.#kept;
    } catch {
      return this.#kept;
    }
  }

  add({ text, files = [], model = "", parent = "", key = newKey() }) {
    if (!this.items.some((item) => item.key === key)) this.#save([...this.items, { text, files, model, parent, key }]);
  }

  remove(key) {
    this.#save(this.items.filter((item) => item.key !== key));
  }

  moveToFront(key) {
    this.#save(this.items.toSorted((one, other) => (other.key === key) - (one.key === key)));
  }

  #save(items) {
    this.#kept = [];
    try {
      if (items.length) localStorage.setItem(this.name, JSON.stringify(items));
      else localStorage.removeItem(this.name);
    } catch {
      this.#kept = items; // too large or forbidden: they last only as long as this page
    }
  }
}

// The list above the composer. All tabs of a session show the same list.
export class QueueList {
  constructor(queue, { root, act, onChange }) {
    Object.assign(this, { queue, root });
    root.addEventListener("click", (event) => {
      const button = event.target.closest("[data-queued]");
      const item = button && queue.items.find(({ key }) => key === button.closest("[data-key]").dataset.key);
      if (item) act(button.dataset.queued, item);
      if (button) onChange();
    });
    addEventListener("storage", (event) => event.key === queue.name && onChange());
  }

  // note: why the messages are waiting
  show(note) {
    const { items } = this.queue;
    const list = this.root.querySelector("ol");
    const shown = [...list.children].map(({ dataset }) => dataset.key);
    if (shown.join() !== items.map(({ key }) => key).join()) list.replaceChildren(...items.map((item) => this.#row(item)));
    this.root.hidden = !items.length;
    const line = this.root.querySelector("[data-queue-note]");
    if (line.textContent !== note) line.textContent = note;
  }

  #row({ key, text, files, model, parent }) {
    const row = document.getElementById("queued").content.firstElementChild.cloneNode(true);
    row.dataset.key = key;
    row.querySelector("[data-queued-text]").textContent = text;
    const facts = [parent && gettext("starts a new branch"), model, files.length && ngettext("%(count)s file", "%(count)s files", files.length)];
    row.querySelector("[data-queued-facts]").textContent = facts.filter(Boolean).join(" · ");
    return row;
  }
}
