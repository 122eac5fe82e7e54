// The lens: the pane beside the conversation, as tabs. It is loaded when more of it than the context is looked at. The
// address names the tab and what is chosen in it.
import { isPlainClick } from "../shell/keys.js";
import { fetchPart } from "../support/api.js";
import { enhance } from "../support/enhance.js";
import { gettext } from "../support/i18n.js";
import { LENS } from "../transcript/reading.js";
import { keepingPlace } from "../transcript/scrolling.js";
import { Saw } from "./saw.js";
import { Summaries } from "./summaries.js";

const find = (id) => document.getElementById(id);
const panels = find("panels");
const tabs = [...panels.querySelectorAll("[role=tab]")];
const panelOf = (tab) => find(tab.getAttribute("aria-controls"));
const current = () => tabs.find((tab) => tab.getAttribute("aria-selected") === "true");

function addressed() {
  const search = new URLSearchParams(location.search);
  return Object.fromEntries(LENS.map((name) => [name, search.get(name) ?? undefined]));
}

// how: "pushState" or "replaceState"
function putInAddress(values, how) {
  const search = new URLSearchParams(location.search);
  for (const name of LENS) {
    search.delete(name);
    if (values[name]) search.set(name, values[name]);
  }
  const address = `${location.pathname}${search.size ? `?${search}` : ""}${location.hash}`;
  if (address !== location.pathname + location.search + location.hash) history[how]({}, "", address);
}

// What is shown of a tab looks as on its page.
function loadStyles(tab) {
  const missing = tab.dataset.styles.split(" ").filter((href) => href && !document.querySelector(`link[href="${href}"]`));
  return Promise.all(
    missing.map((href) => {
      const link = Object.assign(document.createElement("link"), { rel: "stylesheet", href });
      document.head.append(link);
      return new Promise((resolve) => (link.onload = link.onerror = resolve));
    }),
  );
}

// A part of a page that has an address of its own.
class Part {
  constructor(panel, { page, onError }) {
    Object.assign(this, { panel, page, onError });
  }

  async show() {
    const part = await fetchPart(this.page);
    this.panel.replaceChildren(...part.querySelectorAll(this.panel.dataset.take));
    window.htmx.process(this.panel);
    enhance(this.panel);
  }

  hide() {}

  take(type) {
    if (type.startsWith(this.panel.dataset.news)) this.show().catch(this.onError);
  }
}

export class Lens {
  #views = {};

  // goTo(place) and isOpen() are the page's, as is setOpen(isOpen).
  constructor({ transcript, goTo, isOpen, setOpen }) {
    Object.assign(this, { transcript, goTo, isOpen, setOpen });
    panels.addEventListener("click", (event) => this.#follow(event), true);
    addEventListener("popstate", () => this.showAddressed());
  }

  // values: { lens, … }, as in the address; how: see putInAddress
  async show(values, how = "pushState") {
    const tab = tabs.find(({ dataset }) => dataset.lensTab === values.lens) ?? tabs[0];
    this.setOpen(true);
    this.#select(tab);
    putInAddress({ ...values, lens: tab.dataset.lensTab }, how);
    try {
      await loadStyles(tab);
      if (current() === tab) await this.#viewOf(tab)?.show(values);
    } catch (error) {
      this.#complain(error);
    }
  }

  // The pane was opened or closed. What a closed one has marked in the conversation is marked no longer.
  toggled(isOpen) {
    if (isOpen) return this.show({ ...addressed(), lens: current().dataset.lensTab });
    this.#views[current().dataset.lensTab]?.hide();
    putInAddress({}, "pushState");
    return undefined;
  }

  // An event of the session.
  take(type) {
    if (this.isOpen()) this.#views[current().dataset.lensTab]?.take(type);
  }

  showAddressed() {
    const values = addressed();
    if (values.lens) this.show(values, "replaceState");
    else if (current() !== tabs[0]) this.#select(tabs[0]);
  }

  #select(tab) {
    find("lens-error").hidden = true;
    if (tab !== current()) this.#views[current().dataset.lensTab]?.hide();
    for (const one of tabs) {
      one.setAttribute("aria-selected", String(one === tab));
      one.tabIndex = one === tab ? 0 : -1;
      panelOf(one).hidden = one !== tab;
    }
    keepingPlace(() => (find("main").dataset.lens = tab.dataset.lensTab)); // it may be wider
    find("lens-page").href = tab.dataset.page;
  }

  #viewOf(tab) {
    const { lensTab: name, page } = tab.dataset;
    if (name === "context") return null;
    const View = { saw: Saw, summaries: Summaries }[name] ?? Part;
    const options = { page, transcript: this.transcript, onChange: (values) => this.#changed(name, values), onError: (error) => this.#complain(error), goTo: this.goTo };
    return (this.#views[name] ??= new View(panelOf(tab), options));
  }

  // Something else was chosen in a tab.
  #changed(name, { how, page, ...values }) {
    if (current().dataset.lensTab !== name) return;
    find("lens-page").href = page;
    putInAddress({ lens: name, ...values }, how);
  }

  #complain(error) {
    const link = Object.assign(document.createElement("a"), { href: error.page, textContent: gettext("Which calls saw it") });
    find("lens-error-words").replaceChildren(`${error.message} `, ...(error.page ? [link] : []));
    find("lens-error").hidden = false;
  }

  // A link to a message of this session goes there without leaving the page.
  #follow(event) {
    const link = event.target.closest("a[href]");
    if (!link || !isPlainClick(event)) return;
    const { pathname, search } = new URL(link.href);
    const place = new URLSearchParams(search).get("at");
    if (pathname !== location.pathname || !place) return;
    event.preventDefault();
    event.stopPropagation();
    this.goTo(place);
  }
}
