// Rows of the list of sessions: their menus, and live states for the visible ones.
import { showError } from "../composer/box.js";
import { LabelsDialog } from "../session/labels.js";
import { moveSession } from "../session/moving.js";
import { setPinned } from "../session/pins.js";
import { call, makeFork } from "../support/api.js";
import { gettext, withElements } from "../support/i18n.js";
import { showTimes } from "../support/times.js";
import { isOn, isPlain } from "./keys.js";
import { watchStates } from "./row-states.js";

const NOTES = {
  archive: [gettext("%(title)s was archived. %(button)s"), "reopen"],
  reopen: [gettext("%(title)s was unarchived. %(button)s"), "archive"],
  trash: [gettext("%(title)s was moved to the trash. %(button)s"), "restore"],
};

const apiOf = (row) => `/api/sessions/${encodeURIComponent(row.id)}`;
const titleOf = (row) => row.querySelector(".session-link").textContent;

function refresh(list, row) {
  const path = list.dataset.row.replace("SESSION", encodeURIComponent(row.id));
  return window.htmx.ajax("GET", path, { target: row, swap: "outerHTML" }).then(() => {
    // Restore the focus only if it was lost in the swap.
    if (document.activeElement === document.body) document.getElementById(row.id)?.querySelector(".session-link").focus();
  });
}

function rename(list, row) {
  const link = row.querySelector(".session-link");
  const input = document.createElement("input");
  Object.assign(input, { className: "input rename-input", value: link.textContent, maxLength: 200, dir: "auto", autocomplete: "off" });
  input.setAttribute("aria-label", gettext("Title"));
  link.hidden = true;
  link.before(input);
  input.focus();
  input.select();

  let isOver = false;
  function end() {
    isOver = true;
    input.remove();
    link.hidden = false;
    link.focus();
  }
  async function save() {
    if (isOver) return;
    const title = input.value.trim();
    const isSame = !title || title === link.textContent;
    end();
    if (!isSame) await attempt(row, async () => (await call("PATCH", apiOf(row), { title }), refresh(list, row)));
  }
  input.addEventListener("blur", save);
  input.addEventListener("keydown", (event) => {
    if (event.key === "Enter") save();
    if (event.key === "Escape") {
      event.stopPropagation();
      end();
    }
  });
}

// Replaces a row that has left this list with a note that can undo the move.
function leaveNote(list, row, act) {
  const [words, back] = NOTES[act];
  const note = document.createElement("li");
  note.className = "session-row row-note";
  note.id = row.id;
  const title = document.createElement("bdi");
  title.textContent = titleOf(row);
  const button = document.createElement("button");
  Object.assign(button, { type: "button", className: "link-button", textContent: gettext("Undo") });
  button.addEventListener("click", async () => {
    button.disabled = true;
    try {
      await call("POST", `${apiOf(row)}/${back}`);
      refresh(list, note);
      document.dispatchEvent(new Event("mnesis:sessions"));
    } catch (error) {
      note.append(` ${error.message} (${error.code})`);
    }
  });
  note.append(...withElements(words, { title, button }));
  row.replaceWith(note);
  button.focus();
}

async function attempt(row, work) {
  const box = row.querySelector(".row-error");
  box.hidden = true;
  try {
    await work();
  } catch (error) {
    showError(box, error);
  }
}

async function move(list, row, act) {
  await call("POST", `${apiOf(row)}/${act}`);
  leaveNote(list, row, act);
  document.dispatchEvent(new Event("mnesis:sessions")); // for the sidebar
}

async function fork(row) {
  const { message_count: count } = await call("GET", apiOf(row));
  const { items } = await call("GET", `${apiOf(row)}/messages?after=${count - 1}&limit=1`);
  const progress = row.querySelector(".row-progress");
  const made = await makeFork(apiOf(row), { at_message_id: items[0].id }, (words) => (progress.textContent = words));
  location.assign(row.querySelector(".session-link").href.replace(encodeURIComponent(row.id), encodeURIComponent(made)));
}

function showFacts(facts) {
  const old = document.getElementById(facts.id);
  if (!old || old.contains(document.activeElement)) return false;
  showTimes(facts);
  old.replaceWith(facts);
  return true;
}

export function watchRows(list, dialog) {
  const labels = new LabelsDialog(dialog);
  const acts = {
    rename: (row) => rename(list, row),
    labels: (row) => attempt(row, async () => (await labels.edit(apiOf(row))) && refresh(list, row)),
    pin: (row) => attempt(row, async () => (await setPinned(row.id, true), refresh(list, row))),
    unpin: (row) => attempt(row, async () => (await setPinned(row.id, false), refresh(list, row))),
    project: (row) => attempt(row, async () => (await moveSession(row.id)) && (list.dispatchEvent(new Event("mnesis:moved")), refresh(list, row))),
    archive: (row) => attempt(row, () => move(list, row, "archive")),
    reopen: (row) => attempt(row, () => move(list, row, "reopen")),
    trash: (row) => attempt(row, () => move(list, row, "trash")),
    fork: (row) => attempt(row, () => fork(row)),
  };
  list.addEventListener("click", (event) => {
    const button = event.target.closest("[data-act]");
    if (!button) return;
    button.closest("details").open = false;
    acts[button.dataset.act](button.closest(".session-row"));
  });
  list.addEventListener("keydown", (event) => {
    const isDelete = event.key === "Delete" && isPlain(event) && isOn() && event.target.matches(".session-link");
    if (isDelete && list.dataset.mayDelete) acts.trash(event.target.closest(".session-row"));
  });
  watchStates(list, { path: list.dataset.states, rows: ".session-row:not(.row-note)", idOf: (row) => row.id, facts: ".session-facts", show: showFacts });
}
