// The dialog for a session's labels: one name and value per row.
import { showError } from "../composer/box.js";
import { call } from "../support/api.js";
import { closed } from "../support/dialogs.js";
import { gettext } from "../support/i18n.js";

export class LabelsDialog {
  #saved = false;

  constructor(dialog) {
    this.dialog = dialog;
    this.rows = dialog.querySelector("#label-rows");
    this.error = dialog.querySelector("#labels-error");
    this.template = document.getElementById("label-row");
    dialog.querySelector("#add-label").addEventListener("click", () => this.#add().focus());
    dialog.querySelector("#cancel-labels").addEventListener("click", () => dialog.close());
    this.rows.addEventListener("click", (event) => this.#remove(event.target.closest("[data-remove-label]")));
    dialog.querySelector("form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#save();
    });
  }

  // Resolves to whether the labels were changed.
  async edit(api) {
    const { labels } = await call("GET", api);
    this.api = api;
    this.#saved = false;
    this.error.hidden = true;
    this.rows.replaceChildren();
    for (const [key, value] of Object.entries(labels)) this.#add(key, value);
    if (!this.rows.children.length) this.#add();
    this.dialog.showModal();
    this.rows.querySelector("input").focus();
    await closed(this.dialog);
    return this.#saved;
  }

  #add(key = "", value = "") {
    const row = this.template.content.firstElementChild.cloneNode(true);
    const [name, text] = row.querySelectorAll("input");
    name.value = key;
    text.value = value;
    this.rows.append(row);
    return name;
  }

  #remove(button) {
    if (!button) return;
    button.closest(".label-row").remove();
    this.dialog.querySelector("#add-label").focus();
  }

  async #save() {
    const pairs = [...this.rows.children].map((row) => [...row.querySelectorAll("input")].map((input) => input.value.trim()));
    const named = pairs.filter(([key]) => key);
    try {
      if (pairs.some(([key, value]) => value && !key)) throw new Error(gettext("A label needs a name."));
      if (new Set(named.map(([key]) => key)).size < named.length) throw new Error(gettext("Two labels have the same name."));
      await call("PATCH", this.api, { labels: Object.fromEntries(named) });
      this.#saved = true;
      this.dialog.close();
    } catch (error) {
      showError(this.error, error);
    }
  }
}
