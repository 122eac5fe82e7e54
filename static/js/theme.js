// A classic script in the head, not a module: it must run before the first paint, or dark pages flash white.
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
  // Whether the sidebar is shown (sidebar.js), for the same reason: the page must not jump.
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
