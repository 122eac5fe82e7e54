// Records input made before the page's modules have loaded, and replays it once they have. A classic script in the
// head, like theme.js. Links, menus and forms with an action are left to the browser and never wait.
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
  // Modules have run by then. The timer is for htmx, which initialises the page in the same event.
  addEventListener("DOMContentLoaded", () => setTimeout(doNow));
})();
