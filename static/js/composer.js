// The box where a message is written: it grows, remembers its draft, and never loses what was typed.

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

// Enter sends, Shift+Enter makes a new line. On a touch keyboard Enter makes a new line: there is a button to send.
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

// What a request is sent with, so that sending it twice does it once.
export function newKey() {
  const random = crypto.getRandomValues(new Uint8Array(16));
  return Array.from(random, (byte) => byte.toString(16).padStart(2, "0")).join("");
}

// A draft lives in this browser until it is sent. Its key stays the same for the same text,
// so that sending it again after a lost answer does not send it twice. So for its files.
export class Draft {
  constructor(name) {
    this.name = `mnesis-draft-${name}`;
    const saved = this.#load();
    this.text = typeof saved.text === "string" ? saved.text : "";
    this.key = typeof saved.key === "string" ? saved.key : "";
    this.files = Array.isArray(saved.files) ? saved.files : [];
    this.model = typeof saved.model === "string" ? saved.model : "";
  }

  // What was typed before the page knew its draft goes on where that ended.
  textWith(typed) {
    if (!typed || typed === this.text) return this.text;
    return this.text ? `${this.text}\n${typed}` : typed;
  }

  // Who is asked: the key is for this text, these files and this model.
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

  // Files that are on the server already: { id, name, size }.
  attach(files) {
    if (JSON.stringify(files) === JSON.stringify(this.files)) return;
    this.files = files;
    this.key = "";
    this.#save();
  }

  keyForSending() {
    if (!this.key) {
      this.key = newKey();
      this.#save();
    }
    return this.key;
  }

  forget() {
    this.text = this.key = "";
    this.files = [];
    try {
      localStorage.removeItem(this.name);
    } catch {
      // there was nothing to forget
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
      localStorage.setItem(this.name, JSON.stringify({ text: this.text, key: this.key, files: this.files, model: this.model }));
    } catch {
      // too large or forbidden: then it lasts as long as this page
    }
  }
}
