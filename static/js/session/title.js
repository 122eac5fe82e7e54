// Edits the title in place: Enter saves, Escape cancels.
import { call } from "../support/api.js";
import { gettext } from "../support/i18n.js";

export function watchTitle(form, api) {
  const input = form.querySelector("input");
  let saved = input.defaultValue; // not .value, which may have been edited before this script ran

  function show(title) {
    saved = title || gettext("Untitled session");
    input.value = saved;
    document.title = `${saved} · Mnesis`;
    document.querySelector("h1").textContent = saved;
  }

  async function save() {
    const title = input.value.trim();
    if (title === saved || !title) {
      input.value = saved;
      return;
    }
    try {
      show((await call("PATCH", api, { title })).title);
      input.setCustomValidity("");
    } catch (error) {
      input.setCustomValidity(`${error.message} (${error.code})`);
      input.reportValidity();
    }
  }

  form.addEventListener("submit", (event) => {
    event.preventDefault();
    input.blur();
  });
  input.addEventListener("change", save);
  input.addEventListener("input", () => input.setCustomValidity(""));
  input.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    event.stopPropagation();
    input.value = saved;
    input.blur();
  });

  return {
    async refresh() {
      const session = await call("GET", api).catch(() => null);
      if (session && document.activeElement !== input) show(session.title);
      return session;
    },
  };
}
