// The page of a run: live updates and the buttons that control it.
import { showError } from "../composer/box.js";
import { LiveFeed } from "../session/live.js";
import { call } from "../support/api.js";
import { gettext } from "../support/i18n.js";
import { isPressed, released } from "../support/press.js";

const find = (id) => document.getElementById(id);
const page = find("run");
const { runId, sessionId, api } = page.dataset;
const errorBox = find("run-error");

// A part of the page, refreshed after events but at most once per pace (milliseconds).
class Part {
  #timer = 0;
  #asked = 0;

  constructor(id, pace) {
    Object.assign(this, { id, pace });
  }

  refresh() {
    if (this.#timer || document.hidden) return;
    this.#timer = setTimeout(() => this.#ask(), Math.max(60, this.#asked + this.pace - Date.now()));
  }

  #ask() {
    this.#timer = 0;
    this.#asked = Date.now();
    window.htmx.trigger(find(this.id), "mnesis:run");
  }
}

const parts = [new Part("run-progress", 800), new Part("run-items", 2_500), new Part("run-charts", 5_000)];
const refresh = () => parts.forEach((part) => part.refresh());

// Remember open details across swaps.
const isOpen = new Map();
page.addEventListener("htmx:beforeSwap", ({ detail }) => {
  const { target, requestConfig } = detail;
  if (isPressed() && requestConfig.elt.matches("[data-live]")) {
    detail.shouldSwap = false;
    released().then(refresh);
    return;
  }
  for (const details of target.querySelectorAll("details[id]")) isOpen.set(details.id, details.open);
});
page.addEventListener("htmx:afterSwap", ({ detail: { target } }) => {
  for (const details of target.querySelectorAll("details[id]")) details.open = isOpen.get(details.id) ?? details.open;
  announce(target.querySelector("[data-run-state]")?.dataset.runState);
});

const STATES = {
  pending: gettext("The run is pending."),
  running: gettext("The run is running."),
  paused: gettext("The run is paused."),
  completed: gettext("The run is completed."),
  cancelled: gettext("The run is cancelled."),
  failed: gettext("The run is failed."),
};
let said = page.dataset.state;
function announce(state) {
  if (!state || state === said) return;
  said = state;
  find("run-announcer").textContent = STATES[state] ?? "";
  refresh();
}

// A part that failed to load stays as it was; the next event loads it again.
for (const name of ["htmx:responseError", "htmx:sendError"]) {
  page.addEventListener(name, (event) => event.detail.elt.matches("[data-live]") && event.stopPropagation());
}

async function act(button) {
  const buttons = button.parentElement.querySelectorAll("button");
  for (const one of buttons) one.disabled = true;
  errorBox.hidden = true;
  try {
    await call("POST", `${api}/${button.dataset.action}`);
  } catch (error) {
    showError(errorBox, error);
    for (const one of buttons) one.disabled = false;
  }
  refresh();
}

page.addEventListener("click", (event) => {
  const button = event.target.closest("[data-action]");
  if (button) act(button);
});
document.addEventListener("visibilitychange", refresh);

const CONNECTIONS = {
  live: "",
  reconnecting: gettext("Reconnecting… Nothing is lost."),
  "signed-out": gettext("You are signed out. Reload the page to sign in."),
  gone: gettext("This session no longer exists."),
};
let lost = 0;
function showConnection(state) {
  clearTimeout(lost);
  // Short interruptions are not shown.
  lost = setTimeout(() => (find("run-connection").textContent = CONNECTIONS[state]), state === "reconnecting" ? 1_500 : 0);
}

new LiveFeed({
  path: `/ws/sessions/${encodeURIComponent(sessionId)}`,
  seq: Number(page.dataset.seq),
  onEvent: ({ type, data }) => type.startsWith("map.") && data.run_id === runId && refresh(),
  onDelta: () => true,
  onCaughtUp: () => {},
  onState: showConnection,
}).start();
