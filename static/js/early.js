// What somebody does before the page's modules are there is not lost: it is done when they are. A classic script in the
// head, like theme.js. Links, menus and forms that have an address are the browser's own and never wait.
(() => {
  const typed = new Set();
  const kept = [];

  const isForScripts = (form) => form && !form.hasAttribute("action") && form.method !== "post";
  const sends = ({ key, shiftKey, isComposing, target }) =>
    key === "Enter" && !shiftKey && !isComposing && target.matches("textarea") && isForScripts(target.form) && !matchMedia("(pointer: coarse)").matches;

  // For each event: what to do in its place later, if it has to wait.
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

  const note = (event) => typed.add(event.target);

  function doNow() {
    for (const name of Object.keys(later)) removeEventListener(name, keep, true);
    removeEventListener("input", note, true);
    for (const field of typed) field.dispatchEvent(new Event("input", { bubbles: true }));
    for (const act of kept) act();
  }

  for (const name of Object.keys(later)) addEventListener(name, keep, true);
  addEventListener("input", note, true);
  // Modules have run by then; htmx takes up the page in the same event, hence the timer.
  addEventListener("DOMContentLoaded", () => setTimeout(doNow));
})();
