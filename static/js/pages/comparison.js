// Two answers side by side. What is written meanwhile appears in its column, and heads and ends are renewed when a turn changes.
import { showError } from "../composer/box.js";
import { Connection } from "../composer/connection.js";
import { watchClosing } from "../session/dialogs.js";
import { LiveFeed } from "../session/live.js";
import { watchSeen } from "../session/seen.js";
import { call, fetchPart } from "../support/api.js";
import { enhance } from "../support/enhance.js";
import { gettext } from "../support/i18n.js";
import { Actions } from "../transcript/actions.js";
import { watchApprovals } from "../transcript/approvals.js";
import { askAnother, watchComparing } from "../transcript/comparing.js";
import { watchRatingDialog } from "../transcript/ratings.js";
import { Transcript } from "../transcript/transcript.js";

const find = (id) => document.getElementById(id);
const page = find("comparison");
const { sessionId, question, messages } = page.dataset;
const api = `/api/sessions/${encodeURIComponent(sessionId)}`;
const PARTS = ["head", "end"];
const STATES = /^(turn|branch)\./;
const ENDS = /^turn\.(completed|cancelled|interrupted|failed|incomplete)$/;

const complain = (error) => showError(find("comparison-error"), error);

// The messages of one answer, which begin after the question.
class Answer extends Transcript {
  constructor(place) {
    super(place.querySelector("[data-answer]"), { path: messages, branch: place.dataset.branch, onChange: () => this.showWorking(), onGrown: () => {} });
    this.place = place;
  }

  get isOpen() {
    return "open" in this.place.dataset;
  }

  get lastSeq() {
    return super.lastSeq || Number(question);
  }

  showWorking() {
    const line = this.place.querySelector(".working");
    if (line) line.hidden = this.messages.length > 0;
  }
}

const answers = [...document.querySelectorAll(".comparison-answer")].map((place) => new Answer(place));
const open = () => answers.filter((answer) => answer.isOpen);

async function renew() {
  const part = await fetchPart(page.dataset.answers);
  for (const { place } of answers) {
    const fresh = part.querySelector(`#${place.id}`);
    for (const name of PARTS) {
      const old = find(`${place.id}-${name}`);
      const hadFocus = old.contains(document.activeElement);
      old.replaceWith(fresh.querySelector(`#${place.id}-${name}`));
      if (hadFocus) place.focus({ preventScroll: true });
    }
    place.dataset.turn = fresh.dataset.turn;
    place.toggleAttribute("data-open", "open" in fresh.dataset);
  }
  for (const answer of answers) answer.showWorking();
  for (const answer of open()) answer.lookForNew();
}

const connection = new Connection(find("connection"), { onSignIn: () => location.reload(), onGone: () => location.reload() });
const showNew = watchSeen(api, "unseen" in page.dataset);
let renewal = Promise.resolve();

function turnEnded(turnId) {
  for (const answer of answers) {
    const last = answer.lastOfTurn(turnId);
    if (last) answer.refresh(last.dataset.message);
    else if (answer.place.dataset.turn === turnId) answer.lookForNew();
    if (answer.place.dataset.turn === turnId) find("announcer").textContent = gettext("The answer has ended.");
  }
}

function takeEvent({ type, data }) {
  if (STATES.test(type)) renewal = renewal.then(renew).catch(complain);
  if (ENDS.test(type)) {
    turnEnded(data.turn_id);
    showNew();
  }
  if (type === "message.created") for (const answer of open()) answer.lookForNew();
  if (type === "session.archived") location.reload();
  const ids = [data.message_id, ...[data.part_id, ...(data.part_ids ?? [])].map((id) => id && find(id)?.closest(".message")?.dataset.message)];
  for (const id of ids.filter(Boolean)) for (const answer of answers) if (answer.message(id)) answer[type === "message.finalized" ? "finalize" : "refresh"](id);
}

const feed = new LiveFeed({
  path: `/ws/sessions/${encodeURIComponent(sessionId)}`,
  seq: Number(page.dataset.seq),
  onEvent: takeEvent,
  onDelta: (delta) => open().every((answer) => answer.takeDelta(delta)),
  onCaughtUp: () => {},
  onState: (state) => connection.show(state),
});

const compare = watchComparing(find("comparing"));
page.addEventListener("click", ({ target }) => {
  const button = target.closest("button");
  if (button?.dataset.do === "stop") {
    button.disabled = true;
    call("POST", `${api}/interrupt`).catch(complain);
  }
  if (button?.dataset.compare) compare(button.dataset.compare).catch(complain);
  if (button?.dataset.again) askAnother(button.dataset.again, button.dataset.model).catch(complain);
});
watchClosing();
watchApprovals(page, api);
new Actions({ root: page, sessionId, api, messages, rate: watchRatingDialog(find("rating"), api), onError: complain, onBusy: () => {} });
for (const answer of answers) answer.drawing.prepare();
enhance(page);
feed.start();
