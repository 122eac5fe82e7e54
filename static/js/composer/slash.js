// "/" at the beginning of an empty message box: saved prompts in a list, filtered by what is typed. The focus stays in
// the box, and aria-activedescendant names the option. Nothing is ever sent from here.
import { fetchJson } from "../support/api.js";
import { gettext, ngettext } from "../support/i18n.js";
import { fill, variablesOf } from "./variables.js";

const PAUSE = 100; // milliseconds after the last letter
const MOST = 20;

class Slash {
  #timer = 0;
  #asked = 0;
  #waits = false; // for an answer to what is typed
  #chosenEarly = false; // Enter was pressed while it waited

  constructor(textarea) {
    this.textarea = textarea;
    this.dialog = document.getElementById("prompt-values");
    this.list = document.getElementById("prompt-list");
    this.status = document.getElementById("prompt-status");
    this.prompts = new Map();
    textarea.setAttribute("aria-autocomplete", "list");
    textarea.setAttribute("aria-controls", this.list.id);
    textarea.addEventListener("input", () => this.#typed());
    textarea.addEventListener("keydown", (event) => this.#key(event));
    textarea.addEventListener("blur", () => this.close());
    // The box keeps the focus, and a phone its keyboard.
    this.list.addEventListener("pointerdown", (event) => event.preventDefault());
    this.list.addEventListener("click", ({ target }) => this.#choose(target.closest("[role=option]")));
    this.dialog.addEventListener("click", ({ target }) => target.closest("[data-close]") && this.dialog.close());
    this.dialog.addEventListener("close", () => textarea.focus());
    this.dialog.querySelector("form").addEventListener("submit", (event) => this.#filled(event));
  }

  get marked() {
    return this.list.querySelector('[aria-selected="true"]');
  }

  close() {
    this.#asked += 1;
    clearTimeout(this.#timer);
    this.#waits = this.#chosenEarly = false;
    this.list.hidden = true;
    this.list.replaceChildren();
    this.status.textContent = "";
    this.textarea.removeAttribute("aria-activedescendant");
  }

  #typed() {
    const word = this.textarea.value.match(/^\/(\S*)$/)?.[1];
    if (word === undefined) return this.#waits || !this.list.hidden ? this.close() : undefined;
    this.#waits = true;
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(word), word ? PAUSE : 0);
    return undefined;
  }

  async #ask(word) {
    const mine = ++this.#asked;
    const found = await fetchJson(`/api/prompts?${new URLSearchParams({ q: word, limit: MOST })}`).catch(() => ({ items: [], failed: true }));
    if (mine !== this.#asked) return;
    const early = this.#chosenEarly;
    this.close();
    this.prompts = new Map(found.items.map((prompt) => [prompt.id, prompt]));
    this.list.replaceChildren(...found.items.map(asOption));
    this.list.hidden = !found.items.length;
    this.#mark(this.list.firstElementChild);
    const none = found.failed ? gettext("Saved prompts could not be loaded.") : gettext("No saved prompts found.");
    const some = ngettext("%(count)s prompt. Enter inserts one.", "%(count)s prompts. Enter inserts one.", found.items.length);
    this.status.textContent = found.items.length ? some : none;
    if (early) this.#choose(this.marked);
  }

  #mark(option) {
    this.marked?.setAttribute("aria-selected", "false");
    if (!option) return;
    option.setAttribute("aria-selected", "true");
    option.scrollIntoView({ block: "nearest" });
    this.textarea.setAttribute("aria-activedescendant", option.id);
  }

  // Before the box's own listener, for which Enter sends.
  #key(event) {
    const isOpen = !this.list.hidden;
    if (event.isComposing || event.shiftKey || !(isOpen || this.#waits)) return;
    const { firstElementChild: first, lastElementChild: last } = this.list;
    const acts = {
      ArrowDown: () => this.#mark(this.marked?.nextElementSibling ?? first),
      ArrowUp: () => this.#mark(this.marked?.previousElementSibling ?? last),
      Escape: () => this.close(),
      Enter: () => this.#chooseMarked(),
      ...(isOpen && { Tab: () => this.#chooseMarked() }),
    };
    if (!(event.key in acts)) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    acts[event.key]();
  }

  #chooseMarked() {
    // What is shown was found for other letters.
    if (this.#waits) this.#chosenEarly = true;
    else this.#choose(this.marked);
  }

  #choose(option) {
    const prompt = this.prompts.get(option?.dataset.prompt);
    if (!prompt) return;
    this.close();
    const variables = variablesOf(prompt.text);
    if (!variables.size) return this.#insert(prompt.text);
    this.chosen = prompt;
    this.dialog.querySelector("h2").textContent = prompt.title;
    this.dialog.querySelector("[data-fields]").replaceChildren(...[...variables].map(asField));
    this.dialog.showModal();
    this.dialog.querySelector("textarea").select();
  }

  #filled(event) {
    event.preventDefault();
    const fields = [...this.dialog.querySelectorAll("textarea")];
    const values = new Map(fields.map((field) => [field.dataset.variable, field.value]));
    this.dialog.close();
    this.#insert(fill(this.chosen.text, values));
  }

  #insert(text) {
    this.textarea.value = text;
    this.textarea.dispatchEvent(new Event("input", { bubbles: true }));
    this.textarea.focus();
    this.textarea.setSelectionRange(text.length, text.length);
  }
}

function textIn(name, words, values = {}) {
  const element = document.createElement(name);
  Object.assign(element, { textContent: words, ...values });
  return element;
}

function asOption({ id, name, title, is_owner: isOwner, owner_name: owner }, number) {
  const option = document.createElement("div");
  Object.assign(option, { className: "palette-option", id: `prompt-option-${number}` });
  option.dataset.prompt = id;
  option.setAttribute("role", "option");
  option.setAttribute("aria-selected", "false");
  option.append(textIn("bdi", `/${name}`), textIn("bdi", title, { className: "soft small" }));
  if (!isOwner) option.append(textIn("bdi", owner, { className: "soft small" }));
  return option;
}

function asField([name, value], number) {
  const field = document.createElement("div");
  const label = textIn("label", name);
  const box = document.createElement("textarea");
  field.className = "field";
  Object.assign(box, { className: "input", id: `prompt-value-${number}`, rows: 1, value, dir: "auto" });
  box.dataset.variable = name;
  label.htmlFor = box.id;
  label.dir = "auto";
  field.append(label, box);
  return field;
}

// Called before other listeners of the box's keys are added.
export const watchSlash = (textarea) => new Slash(textarea);
