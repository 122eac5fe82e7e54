// The chosen summary: shown beside the drawing or the table, and kept in the page's address.
import { fetchPart } from "../support/api.js";
import { enhance } from "../support/enhance.js";
import { gettext } from "../support/i18n.js";

export class Detail {
  #asked = 0;

  constructor(place, here) {
    Object.assign(this, { place, here });
  }

  // Links to a summary choose it instead of leaving the page.
  onSelect(select) {
    this.place.addEventListener("click", (event) => {
      const link = event.target.closest("[data-select]");
      if (!link || event.ctrlKey || event.metaKey || event.shiftKey || event.button !== 0) return;
      if (select(link.dataset.select)) event.preventDefault();
    });
  }

  async show(path) {
    const asked = (this.#asked += 1);
    this.place.setAttribute("aria-busy", "true");
    try {
      const part = await fetchPart(path);
      if (asked !== this.#asked) return;
      this.place.replaceChildren(part);
      window.htmx?.process(this.place); // the admin has no htmx
      enhance(this.place);
      this.place.scrollTop = 0;
    } catch (error) {
      if (asked === this.#asked) this.#say(error.message);
    }
    this.place.removeAttribute("aria-busy");
  }

  clear() {
    this.#asked += 1;
    this.#say(gettext("Select a summary to read it next to its sources."));
  }

  #say(text) {
    const line = document.createElement("p");
    line.className = "soft";
    line.textContent = text;
    this.place.replaceChildren(line);
  }
}

// Writes values into the page's address; undefined removes one. Links to the other view keep the choice.
export function keepInAddress(values) {
  const search = new URLSearchParams(location.search);
  for (const [name, value] of Object.entries(values)) {
    if (value === undefined || value === "") search.delete(name);
    else search.set(name, value);
  }
  const query = search.toString();
  history.replaceState(history.state, "", query ? `?${query}` : location.pathname);
  for (const link of document.querySelectorAll("[data-view]")) {
    const kept = new URLSearchParams(query);
    kept.set("view", link.dataset.view);
    link.href = `?${kept}`;
  }
}
