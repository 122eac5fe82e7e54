// The palette: actions, sessions, people and messages in one list, chosen by typing. A combobox that controls a listbox: the focus
// stays in the field, and aria-activedescendant names the option.
import { fetchPart } from "../support/api.js";
import { gettext } from "../support/i18n.js";

const PAUSE = 200; // milliseconds after the last letter
const MESSAGES = 5;

class Palette {
  #timer = 0;
  #asked = 0;

  constructor(dialog) {
    this.dialog = dialog;
    this.field = dialog.querySelector("#palette-query");
    this.none = dialog.querySelector(".palette-none");
    this.acts = [...this.group("actions").querySelectorAll(".palette-option")].filter(
      ({ dataset }) => !dataset.press || document.querySelector(dataset.press),
    );
    this.listed = [...dialog.querySelectorAll("[data-source]")].map(({ dataset }) => dataset); // groups with options from an address
    this.field.addEventListener("input", () => this.#typed());
    this.field.addEventListener("keydown", (event) => this.#key(event));
    dialog.addEventListener("click", (event) => this.#click(event));
    dialog.addEventListener("pointermove", ({ target }) => this.#mark(target.closest(".palette-option") ?? this.marked));
  }

  open(words) {
    this.field.value = words;
    this.dialog.showModal();
    this.#mark();
    this.#typed();
  }

  group(name) {
    return this.dialog.querySelector(`[data-group="${name}"]`);
  }

  get options() {
    return [...this.dialog.querySelectorAll(".palette-option")];
  }

  get marked() {
    return this.dialog.querySelector('[aria-selected="true"]');
  }

  #fill(name, options) {
    const group = this.group(name);
    const marked = this.marked?.id;
    group.replaceChildren(group.querySelector(".palette-heading"), ...options);
    group.hidden = !options.length;
    this.#mark(this.options.find(({ id }) => id === marked) ?? this.options[0]);
  }

  #mark(option) {
    if (option && option === this.marked) return;
    this.marked?.setAttribute("aria-selected", "false");
    option?.setAttribute("aria-selected", "true");
    option?.scrollIntoView({ block: "nearest" });
    if (option) this.field.setAttribute("aria-activedescendant", option.id);
    else this.field.removeAttribute("aria-activedescendant");
  }

  #typed() {
    const words = this.field.value.trim().toLowerCase();
    const matches = ({ textContent }) => textContent.toLowerCase().includes(words);
    this.none.textContent = "";
    // Enter must not choose what was found for other words.
    this.#asked += 1;
    this.#mark();
    this.#fill("messages", []);
    for (const { group } of this.listed) this.#fill(group, [...this.group(group).querySelectorAll(".palette-option")].filter(matches));
    this.#fill("actions", this.acts.filter(matches));
    this.#mark(this.options[0]);
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.#ask(this.field.value.trim()), words ? PAUSE : 0);
  }

  async #ask(query) {
    const mine = ++this.#asked;
    const search = new URLSearchParams({ q: query });
    const { search: texts } = this.dialog.dataset;
    try {
      const [hits, ...found] = await Promise.all([
        query && texts ? fetchPart(`${texts}?brief=1&${search}`) : new DocumentFragment(),
        ...this.listed.map(({ source }) => fetchPart(`${source}?${search}`)),
      ]);
      if (mine !== this.#asked) return;
      for (const { group } of this.listed) this.#fill(group, [...found.shift().querySelectorAll(".palette-option")]);
      this.#fill("messages", [...hits.querySelectorAll(".hit-link")].slice(0, MESSAGES).map(asOption));
      this.none.textContent = this.options.length ? "" : gettext("No results.");
    } catch {
      if (mine === this.#asked) this.none.textContent = gettext("The search failed. Try again.");
    }
  }

  #key(event) {
    if (event.isComposing) return;
    const { options } = this;
    const place = options.indexOf(this.marked);
    const steps = { ArrowDown: place + 1, ArrowUp: place - 1, PageDown: place + 8, PageUp: place - 8 };
    if (event.key in steps) {
      const wraps = event.key.startsWith("Arrow");
      const wanted = steps[event.key];
      const last = options.length - 1;
      this.#mark(options[wraps ? (wanted + options.length) % options.length : Math.min(Math.max(wanted, 0), last)]);
    } else if (event.key === "Enter") {
      this.marked?.dispatchEvent(new MouseEvent("click", { bubbles: true, cancelable: true, ctrlKey: event.ctrlKey, metaKey: event.metaKey }));
    } else {
      return;
    }
    event.preventDefault();
  }

  #click({ target }) {
    if (target === this.dialog) this.dialog.close(); // the backdrop
    const option = target.closest(".palette-option");
    if (!option) return;
    this.dialog.close();
    if (option.dataset.press) document.querySelector(option.dataset.press).click();
  }
}

function asOption(hit, number) {
  const option = document.createElement("a");
  Object.assign(option, { className: "palette-option", id: `palette-hit-${number}`, href: hit.href, tabIndex: -1 });
  option.setAttribute("role", "option");
  option.setAttribute("aria-selected", "false");
  const text = document.createElement("span");
  text.append(...hit.querySelector(".hit-text").cloneNode(true).childNodes);
  text.dir = "auto";
  option.append(text);
  return option;
}

let palette;

// typed(): what was typed while it was loaded.
export async function openPalette(path, typed) {
  if (palette?.dialog.open) return palette.dialog.close();
  if (document.querySelector("dialog[open]")) return;
  if (!palette) {
    const part = await fetchPart(path);
    document.body.append(part);
    palette = new Palette(document.getElementById("palette"));
  }
  palette.open(typed());
}
