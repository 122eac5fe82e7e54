// The message box: it grows with its text and keeps a draft, so that nothing typed is lost.

export const isTouch = () => matchMedia("(pointer: coarse)").matches;

// For browsers without "field-sizing: content".
function growWithText(textarea) {
  if (CSS.supports("field-sizing", "content")) return;
  const grow = () => {
    textarea.style.height = "auto";
    textarea.style.height = `${textarea.scrollHeight + 2}px`;
  };
  textarea.addEventListener("input", grow);
  grow();
}

// Enter sends, Shift+Enter inserts a new line. On touch keyboards Enter inserts a new line; a button sends.
export function sendOnEnter(textarea, send) {
  textarea.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" || event.shiftKey || event.isComposing || isTouch()) return;
    event.preventDefault();
    send();
  });
  growWithText(textarea);
}

export function showError(box, error) {
  box.querySelector("[data-error-text]").textContent = error.message;
  box.querySelector("[data-error-code]").textContent = error.code ?? "";
  box.hidden = false;
}

// An idempotency key: a request that is sent twice takes effect once.
export function newKey() {
  const random = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// A draft stays in this browser until it is sent. Its key changes only with its text, files, model or parent,
// so that retrying after a lost answer does not send the message twice.
// While a message is said differently, the draft is that, and what was being written before is kept.
export class Draft {
  constructor(name) {
    this.name = `mnesis-draft-${name}`;
    const saved = this.#load();
    this.text = typeof saved.text === "string" ? saved.text : "";
    this.key = typeof saved.key === "string" ? saved.key : "";
    this.files = Array.isArray(saved.files) ? saved.files : [];
    this.model = typeof saved.model === "string" ? saved.model : "";
    this.parent = typeof saved.parent === "string" ? saved.parent : ""; // the id of the message to continue, or "root"
    this.kept = saved.kept ?? null; // { text, files, key }, another object for each edit
  }

  // Text typed before this script ran is appended to the draft.
  textWith(typed) {
    if (!typed || typed === this.text) return this.text;
    return this.text ? `${this.text}\n${typed}` : typed;
  }

  // Sets the model to ask. The key belongs to one combination of text, files and model.
  ask(model) {
    if (model === this.model) return;
    this.model = model;
    this.key = "";
    this.#save();
  }

  change(text) {
    if (text === this.text) return;
    this.text = text;
    this.key = "";
    this.#save();
  }

  // Files already on the server: { id, name, size }.
  attach(files) {
    if (JSON.stringify(files) === JSON.stringify(this.files)) return;
    this.files = files;
    this.key = "";
    this.#save();
  }

  // Begins to say a message differently, after the one that it continued.
  edit({ text, files, parent }) {
    this.kept = this.parent ? { ...this.kept } : { text: this.text, files: this.files, key: this.key };
    Object.assign(this, { text, files, parent, key: "" });
    this.#save();
  }

  // Returns to what was being written before.
  stopEditing() {
    const { text, files } = this.kept ?? {};
    Object.assign(this, { text: typeof text === "string" ? text : "", files: Array.isArray(files) ? files : [] });
    Object.assign(this, { parent: "", kept: null, key: "" });
    this.#save();
  }

  keyForSending() {
    if (!this.key) {
      this.key = newKey();
      this.#save();
    }
    return this.key;
  }

  // Takes out the message that was sent while this was kept, but for what was typed behind it since. Returns false if the draft is
  // another message by now.
  forget({ text, key }, kept) {
    if (this.kept?.key === key) {
      this.kept = null;
      this.#save();
      return false;
    }
    if (kept !== this.kept || !this.text.startsWith(text)) return false;
    const rest = this.text.slice(text.length).trim();
    if (this.parent) this.stopEditing();
    else this.clear();
    if (rest) this.change(this.text ? `${this.text}\n${rest}` : rest);
    return true;
  }

  clear() {
    this.text = this.key = "";
    this.files = [];
    try {
      localStorage.removeItem(this.name);
    } catch {
      // storage is forbidden, so nothing was saved
    }
  }

  #load() {
    try {
      return JSON.parse(localStorage.getItem(this.name)) ?? {};
    } catch {
      return {};
    }
  }

  #save() {
    try {
      const { text, key, files, model, parent, kept } = this;
      localStorage.setItem(this.name, JSON.stringify({ text, key, files, model, parent, kept }));
    } catch {
      // too large or forbidden: the draft lasts only as long as this page
    }
  }
}
