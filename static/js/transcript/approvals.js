// Approve or refuse a tool call, with an optional note, or answer its questions. The events that follow redraw the call.
import { showError } from "../composer/box.js";
import { call } from "../support/api.js";
import { gettext } from "../support/i18n.js";

async function send(box, path, body) {
  const buttons = box.querySelectorAll("button");
  for (const button of buttons) button.disabled = true;
  box.querySelector("[data-approval-error]").hidden = true;
  try {
    await call("POST", path, body);
  } catch (error) {
    showError(box.querySelector("[data-approval-error]"), error);
    for (const button of buttons) button.disabled = false;
  }
}

function decide(box, api, approved) {
  send(box, `${api}/approvals/${encodeURIComponent(box.dataset.approval)}`, { approved, note: box.querySelector("input").value });
}

function answer(form, api, answers) {
  const turn = encodeURIComponent(form.closest("[data-turn]").dataset.turn);
  send(form, `${api}/turns/${turn}/tool-results`, { results: [{ tool_call_id: form.dataset.questions, answers }] });
}

const answersIn = (question) => [...question.querySelectorAll("input:checked, .input")].map((input) => input.value.trim()).filter(Boolean);

export function watchApprovals(root, api) {
  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-decision]");
    if (button) decide(button.closest("[data-approval]"), api, button.dataset.decision === "approve");
    const form = event.target.closest("[data-skip]")?.form;
    if (form) answer(form, api, [...form.querySelectorAll(".question")].map(() => []));
  });
  root.addEventListener("submit", (event) => {
    const form = event.target.closest("[data-questions]");
    if (!form) return;
    event.preventDefault();
    const answers = [...form.querySelectorAll(".question")].map(answersIn);
    if (answers.some((some) => some.length)) answer(form, api, answers);
    else showError(form.querySelector("[data-approval-error]"), new Error(gettext("Answer a question, or skip them all.")));
  });
}
