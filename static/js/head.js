// What cannot wait for the modules: a classic script in the head.

// The colours, and whether the sidebar is shown: before the first paint, or dark pages flash white and the page jumps.
(() => {
  const root = document.documentElement;
  const apply = (theme) => {
    if (theme === "light" || theme === "dark") root.dataset.theme = theme;
    else delete root.dataset.theme;
  };
  const remembered = () => {
    try {
      return localStorage.getItem("mnesis-theme");
    } catch {
      return null; // storage is forbidden
    }
  };
  const isDark = () => {
    const chosen = root.dataset.theme;
    return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  };
  const label = () => {
    for (const button of document.querySelectorAll("[data-theme-toggle]")) {
      button.setAttribute("aria-pressed", String(isDark()));
    }
  };

  apply(remembered());
  try {
    if (localStorage.getItem("mnesis-sidebar") === "closed") root.dataset.sidebar = "closed";
  } catch {
    // storage is forbidden
  }
  addEventListener("storage", (event) => {
    if (event.key === "mnesis-theme") {
      apply(event.newValue);
      label();
    }
  });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", label);
  document.addEventListener("DOMContentLoaded", label);
  document.addEventListener("click", (event) => {
    if (!event.target.closest("[data-theme-toggle]")) return;
    const theme = isDark() ? "light" : "dark";
    apply(theme);
    label();
    try {
      localStorage.setItem("mnesis-theme", theme);
    } catch {
      // storage is forbidden: the theme lasts only as long as this page
    }
  });
})();

// A session opens at the message that its address names, or at its end, as soon as its document is complete: the page would
// jump there once its modules have run.
document.addEventListener(
  "readystatechange",
  () => {
    const transcript = document.getElementById("transcript");
    const named = transcript?.querySelector("[data-here]") ?? document.getElementById(location.hash.slice(1));
    if (!transcript) return;
    if (named) named.scrollIntoView({ behavior: "instant" });
    else scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
  },
  { once: true },
);

// Records input made before the page's modules have loaded, and replays it once they have. Links, menus and forms with an
// action are left to the browser and never wait.
(() => {
  const missed = new Map(); // field -> the types of its input and change events
  const kept = [];

  const isForScripts = (form) => form && !form.hasAttribute("action") && form.method !== "post";
  const sends = ({ key, shiftKey, isComposing, target }) =>
    key === "Enter" && !shiftKey && !isComposing && target.matches("textarea") && isForScripts(target.form) && !matchMedia("(pointer: coarse)").matches;

  // For each event type: the action to replay, or a falsy value if the event need not wait.
  const later = {
    click(event) {
      const button = event.target.closest("button");
      return button?.type === "button" && (() => button.click());
    },
    submit: ({ target, submitter }) => isForScripts(target) && (() => target.requestSubmit(submitter)),
    keydown: (event) => sends(event) && (() => event.target.dispatchEvent(new KeyboardEvent("keydown", event))),
  };

  function keep(event) {
    const act = later[event.type](event);
    if (!act) return;
    event.preventDefault();
    event.stopImmediatePropagation();
    kept.push(act);
  }

  const note = ({ target, type }) => missed.set(target, (missed.get(target) ?? new Set()).add(type));

  function doNow() {
    for (const name of Object.keys(later)) removeEventListener(name, keep, true);
    for (const name of ["input", "change"]) removeEventListener(name, note, true);
    for (const [field, types] of missed) for (const type of types) field.dispatchEvent(new Event(type, { bubbles: true }));
    for (const act of kept) act();
  }

  for (const name of Object.keys(later)) addEventListener(name, keep, true);
  for (const name of ["input", "change"]) addEventListener(name, note, true);
  // Modules have run by then, those of a page that was rendered in advance later (site.js). The timer is for htmx, which
  // initialises the page when its document is complete.
  if (document.prerendering) addEventListener("mnesis:modules", doNow);
  else addEventListener("DOMContentLoaded", () => setTimeout(doNow));
})();
