// Approve or refuse a tool call, with an optional note. The events that follow redraw the call.
import { showError } from "../composer/box.js";
import { call } from "../support/api.js";

async function decide(box, api, approved) {
  const buttons = box.querySelectorAll("button");
  for (const button of buttons) button.disabled = true;
  box.querySelector("[data-approval-error]").hidden = true;
  try {
    const path = `${api}/approvals/${encodeURIComponent(box.dataset.approval)}`;
    await call("POST", path, { approved, note: box.querySelector("input").value });
  } catch (error) {
    showError(box.querySelector("[data-approval-error]"), error);
    for (const button of buttons) button.disabled = false;
  }
}

export function watchApprovals(root, api) {
  root.addEventListener("click", (event) => {
    const button = event.target.closest("[data-decision]");
    if (button) decide(button.closest("[data-approval]"), api, button.dataset.decision === "approve");
  });
}
