// The dialogs of the session page: keyboard shortcuts, go to a message, search in the session.
import { fetchPart } from "../support/api.js";
import { gettext } from "../support/i18n.js";
import { showTimes } from "../support/times.js";

const PAUSE = 250; // milliseconds after the last letter

export function open(dialog) {
  if (!dialog || dialog.open) return;
  dialog.showModal();
  dialog.querySelector("input:not([type=checkbox])")?.select();
}

export function watchClosing() {
  document.addEventListener("click", ({ target }) => {
    if (target.closest("[data-close]")) target.closest("dialog")?.close();
    // A click on the backdrop has the dialog itself as its target; clicks inside hit its header or body.
    else if (target.matches("dialog.dialog") && target.id !== "sign-in") target.close();
  });
}

// goTo(place) goes to a message and rejects if there is none.
export function watchGoTo(dialog, goTo) {
  const form = dialog.querySelector("form");
  const error = form.querySelector("[role=alert]");
  const { place, time } = form.elements;
  // Only the field edited last counts.
  place.addEventListener("input", () => (time.value = ""));
  time.addEventListener("input", () => (place.value = ""));
  form.addEventListener("submit", async (event) => {
    event.preventDefault();
    const wanted = place.value.trim().replace(/^#/, "") || (time.value && new Date(time.value).toISOString());
    if (!wanted) return;
    error.hidden = true;
    try {
      dialog.close();
      await goTo(wanted);
    } catch ({ status, message }) {
      dialog.showModal();
      error.textContent = status === 404 ? gettext("There is no such message in this session.") : message;
      error.hidden = false;
    }
  });
}

export function watchSearch(dialog, { sessionId, goTo }) {
  if (!dialog) return;
  const form = dialog.querySelector("form");
  const hits = dialog.querySelector("#search-hits");
  let timer = 0;
  let asked = 0;

  async function search() {
    const mine = ++asked;
    const query = new URLSearchParams({ q: form.elements.q.value.trim(), session: sessionId });
    try {
      const part = await fetchPart(`${dialog.dataset.address}?${query}`);
      if (mine !== asked) return;
      hits.replaceChildren(part);
      showTimes(hits);
      window.htmx.process(hits);
    } catch {
      if (mine === asked) hits.textContent = gettext("The search failed. Try again.");
    }
  }

  form.addEventListener("input", () => {
    clearTimeout(timer);
    timer = setTimeout(search, PAUSE);
  });
  form.addEventListener("submit", (event) => {
    event.preventDefault();
    clearTimeout(timer);
    search();
  });
  // Hits in this session are shown on this page.
  hits.addEventListener("click", (event) => {
    const link = event.target.closest('a[href*="?at="]');
    if (!link || event.ctrlKey || event.metaKey || event.shiftKey) return;
    event.preventDefault();
    dialog.close();
    goTo(new URL(link.href).searchParams.get("at"));
  });
}
