// The switchers at messages that have siblings. Without this, they are plain forms that load the page anew.
import { ApiError, csrfToken } from "../support/api.js";
import { gettext } from "../support/i18n.js";

const REASON = gettext("A turn is running. You can switch branches when it has ended.");

async function choose(form, submitter) {
  const asked = new URLSearchParams(new FormData(form, submitter));
  const headers = { Accept: "application/json", "X-CSRFToken": csrfToken() };
  const answer = await fetch(form.action, { method: "POST", body: asked, headers, credentials: "same-origin" }).catch(() => null);
  if (!answer) throw new ApiError("NOT_REACHED", gettext("The server did not answer."));
  const body = await answer.json().catch(() => null);
  if (answer.ok && body) return body;
  throw new ApiError(body?.error?.code ?? `HTTP_${answer.status}`, body?.error?.message ?? gettext("Something went wrong. Reload the page and try again."), answer.status);
}

export class Versions {
  // onError(error) and say(words), which is for screen readers
  constructor(transcript, edges, { onError, say }) {
    Object.assign(this, { transcript, edges, onError, say });
    document.addEventListener("submit", (event) => {
      if (!event.target.matches(".versions[data-choosing]")) return;
      event.preventDefault();
      this.#switch(event.target, event.submitter).catch(onError);
    });
  }

  // While a turn runs, no other branch can be chosen.
  show({ isRunning }) {
    for (const form of document.querySelectorAll("[data-choosing]")) {
      form.querySelector("fieldset").disabled = isRunning;
      form.title = isRunning ? REASON : "";
      form.setAttribute("aria-description", isRunning ? REASON : "");
    }
  }

  async #switch(form, submitter) {
    const wasAt = form.getBoundingClientRect().top;
    const { branch, seq } = await choose(form, submitter);
    if (!(await this.edges.showBranch(String(branch), seq || undefined))) return;
    const next = document.querySelector(`#msg-${seq} .versions`) ?? this.transcript.root.querySelector("[data-branch-end] .versions");
    if (!next) return;
    scrollBy({ top: next.getBoundingClientRect().top - wasAt, behavior: "instant" });
    this.#focus(next, submitter);
    this.say(`${next.getAttribute("aria-label")}.`);
  }

  // The same button, or where that leads nowhere its neighbour.
  #focus(form, submitter) {
    const same = form.querySelector(`[aria-label="${CSS.escape(submitter?.getAttribute("aria-label") ?? "")}"]:not(:disabled)`);
    const other = form.querySelector(submitter?.classList.contains("versions-step") ? ".versions-step:not(:disabled)" : ".versions-place");
    (same ?? other)?.focus({ preventScroll: true });
  }
}
