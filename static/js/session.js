// The session page: its parts, and what each event means for them.
import { call } from "./api.js";
import { watchApprovals } from "./approvals.js";
import { Attachments, watchDropping, watchPasting } from "./attachments.js";
import { Draft, isTouch, sendOnEnter, showError } from "./composer.js";
import { Dividers } from "./dividers.js";
import { LiveFeed } from "./live.js";
import { goToEnd, isAtEnd, keepingPlace, rememberPlace } from "./scrolling.js";
import { watchTitle } from "./title.js";
import { Transcript } from "./transcript.js";

const find = (id) => document.getElementById(id);
const page = find("session");
const sessionId = page.dataset.sessionId;
const api = `/api/sessions/${encodeURIComponent(sessionId)}`;
const composer = find("composer");
const textarea = find("message");
const errorBox = find("composer-error");
const draft = new Draft(sessionId);
let running = page.dataset.running === "true"; // or suspended: no other turn may begin
let waiting = page.dataset.state === "suspended";
const HINT = find("composer-hint")?.textContent;
let sending = false;
let stopping = false;

const transcript = new Transcript(find("transcript"), { path: page.dataset.messages, onChange: showState });
const dividers = new Dividers(transcript, find("tail"), page.dataset.compactions);
const attachments = composer && new Attachments(find("attachments"), { sessionId, status: find("attachments-status"), onChange: filesChanged });
const title = watchTitle(find("title-form"), api);

/* What the page says about itself */

function showState() {
  const last = transcript.messages.at(-1);
  const isWriting = Boolean(last?.querySelector(".live"));
  find("working").hidden = !running || isWriting || waiting;
  find("no-messages").hidden = transcript.messages.length > 0 || running;
  showJump();
  if (!composer) return;
  const isEmpty = !textarea.value.trim();
  find("stop").hidden = !running;
  find("stop").disabled = stopping;
  find("send").hidden = running;
  find("send").disabled = sending || isEmpty || attachments.isSending || attachments.hasFailed;
  textarea.readOnly = sending;
  find("composer-hint").textContent = hint(isEmpty);
}

function hint(isEmpty) {
  if (waiting) return "The turn waits for an answer above";
  if (sending && attachments.files.length) return "The files are looked at, then the turn begins";
  if (attachments.isSending) return "A file is on its way";
  if (attachments.hasFailed) return "Remove the file that did not come, or try it again";
  return isEmpty && attachments.files.length ? "Write what is to be done with the files" : HINT;
}

function showBadge(state) {
  const place = find("state-badge");
  const archived = [...place.children].find((badge) => badge.textContent === "archived");
  const badge = document.createElement("span");
  badge.className = `badge badge-${state}`;
  badge.textContent = state === "suspended" ? "waiting" : state;
  if (state === "running") {
    const pulse = document.createElement("span");
    pulse.className = "pulse";
    badge.prepend(pulse);
  }
  place.replaceChildren(...[state === "completed" ? null : badge, archived].filter(Boolean));
}

let lostAt = 0;
function showConnection(state) {
  const line = find("connection");
  if (state === "live") {
    lostAt = 0;
    line.hidden = true;
    return;
  }
  if (state === "signed-out") line.textContent = "You are signed out. Load the page again to sign in.";
  else if (state === "gone") line.textContent = "This session is not there any more.";
  else {
    // Short breaks are nobody's business.
    if (!lostAt) setTimeout(() => lostAt && (line.hidden = false), 1_500);
    lostAt ||= Date.now();
    line.textContent = "Reconnecting… Nothing is lost.";
    return;
  }
  line.hidden = false;
}

function announce(message) {
  const spoken = [...message.querySelectorAll(".prose")].map((part) => part.textContent.trim()).join(" ");
  if (spoken) find("announcer").textContent = spoken.length > 600 ? `${spoken.slice(0, 600)}… (more in the transcript)` : spoken;
}

function measureContext() {
  clearTimeout(measureContext.timer);
  measureContext.timer = setTimeout(() => window.htmx.trigger(find("context"), "mnesis:context"), 150);
}

/* Events */

function turnWaits(partIds) {
  waiting = true;
  showBadge("suspended");
  measureContext();
  partIds.forEach(partChanged);
  find("announcer").textContent = "The turn waits for an answer to a tool call.";
}

function turnGoesOn() {
  running = true;
  waiting = false;
  showBadge("running");
}

function turnEnded(state, turnId) {
  running = stopping = waiting = false;
  showBadge(state);
  measureContext();
  const last = transcript.lastOfTurn(turnId);
  if (last) transcript.refresh(last.dataset.message);
  const answer = last?.dataset.role === "assistant" ? last.dataset.message : "";
  if (answer) setTimeout(() => transcript.message(answer) && announce(transcript.message(answer)), 400);
}

function partChanged(partId) {
  const message = find(partId)?.closest(".message");
  if (message) transcript.refresh(message.dataset.message);
}

const meanings = {
  "message.created": () => transcript.lookForNew(),
  "message.finalized": ({ message_id: id }) => transcript.finalize(id),
  "part.created": ({ message_id: id }) => transcript.refresh(id),
  "part.state_changed": ({ part_id: id }) => partChanged(id),
  "part.compacted": ({ part_ids: ids }) => ids.forEach(partChanged),
  "part.answered_late": ({ part_id: id }) => partChanged(id),
  "delegation.started": ({ part_id: id }) => partChanged(id),
  "delegation.suspended": ({ part_id: id }) => partChanged(id),
  "delegation.resumed": ({ part_id: id }) => partChanged(id),
  "delegation.ended": ({ part_id: id }) => partChanged(id),
  "turn.started": turnGoesOn,
  "turn.suspended": ({ part_ids: ids }) => turnWaits(ids),
  "turn.resumed": turnGoesOn,
  "turn.completed": ({ turn_id: id }) => turnEnded("completed", id),
  "turn.cancelled": ({ turn_id: id }) => turnEnded("cancelled", id),
  "turn.interrupted": ({ turn_id: id }) => turnEnded("interrupted", id),
  "turn.failed": ({ turn_id: id }) => turnEnded("failed", id),
  "turn.incomplete": ({ turn_id: id }) => turnEnded("incomplete", id),
  "compaction.requested": () => dividers.refresh(),
  "compaction.started": () => dividers.refresh(),
  "compaction.completed": () => (dividers.refresh(), measureContext()),
  "compaction.failed": () => dividers.refresh(),
  "compaction.superseded": () => dividers.refresh(),
  "context.changed": measureContext,
  "file.explored": ({ file_id: id }) => attachments?.explored(id),
  "session.updated": () => title.refresh(),
  "session.archived": () => location.reload(),
};

function takeEvent(event) {
  meanings[event.type]?.(event.data);
  showState();
}

/* Writing */

function complain(error) {
  keepingPlace(() => showError(errorBox, error));
}

async function send() {
  const text = textarea.value;
  if (sending || !text.trim() || attachments.isSending || attachments.hasFailed) return;
  if (running) {
    if (!waiting) find("composer-hint").textContent = "An answer is being written. Esc stops it.";
    return;
  }
  sending = true;
  errorBox.hidden = true;
  showState();
  draft.change(text);
  try {
    await call("POST", `${api}/turns`, { message: text, idempotency_key: draft.keyForSending(), files: draft.files.map(({ id }) => id) });
    draft.forget();
    attachments.clear();
    textarea.value = "";
    textarea.dispatchEvent(new Event("input"));
    if (!transcript.hasTail) location.assign(location.pathname);
    goToEnd();
  } catch (error) {
    complain(error);
  }
  sending = false;
  showState();
  textarea.focus({ preventScroll: true });
}

async function stop() {
  if (!running || stopping) return;
  stopping = true;
  showState();
  try {
    await call("POST", `${api}/interrupt`);
  } catch (error) {
    stopping = false;
    if (error.code !== "SESSION_NOT_RUNNING") complain(error);
    showState();
  }
}

function filesChanged() {
  draft.attach(attachments.files);
  showState();
}

function watchFiles() {
  const take = (files) => attachments.add(files);
  const picker = find("file-picker");
  find("attach").addEventListener("click", () => picker.click());
  picker.addEventListener("change", () => {
    take([...picker.files]);
    picker.value = ""; // the same file may be chosen again
    textarea.focus({ preventScroll: true });
  });
  watchDropping(find("drop-zone"), take);
  watchPasting(textarea, take);
  attachments.restore(draft.files);
  addEventListener("beforeunload", (event) => attachments.isSending && event.preventDefault());
}

function watchComposer() {
  textarea.value = draft.text;
  watchFiles();
  sendOnEnter(textarea, send);
  textarea.addEventListener("input", () => {
    draft.change(textarea.value);
    showState();
  });
  composer.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  find("stop").addEventListener("click", stop);
  document.addEventListener("keydown", (event) => {
    // A turn that waits is not ended by a key that closes things elsewhere.
    if (event.key === "Escape" && running && !waiting) stop();
  });
  if (location.hash === "#attach") find("attach").focus({ preventScroll: true });
  else if (!isTouch() && !location.hash) textarea.focus({ preventScroll: true });
}

/* Reading */

// Older and newer messages come when the reader gets near them.
const nearing = new IntersectionObserver(
  (entries) => {
    for (const { isIntersecting, target } of entries) {
      if (isIntersecting) window.htmx.trigger(target.querySelector("button"), "mnesis:more");
    }
  },
  { rootMargin: "600px 0px" },
);

function watchEdges() {
  for (const edge of transcript.root.querySelectorAll(":scope > [data-more]")) nearing.observe(edge);
}

// Messages that htmx brings: the reader stays where they are, and the new edge is watched.
let goBack = () => {};
transcript.root.addEventListener("htmx:beforeSwap", (event) => {
  if (event.detail.target.matches("[data-more]")) goBack = rememberPlace();
});
transcript.root.addEventListener("htmx:afterSwap", () => {
  goBack();
  goBack = () => {};
  watchEdges();
  dividers.refresh();
  showState();
});

function showJump() {
  find("jump").hidden = transcript.hasTail && isAtEnd();
}

function watchReading() {
  addEventListener("scroll", showJump, { passive: true });
  addEventListener("resize", showJump);
  find("jump").addEventListener("click", () => {
    if (transcript.hasTail) goToEnd();
    else location.assign(location.pathname);
  });
  // A link to a message that is not on the page yet.
  addEventListener("hashchange", () => {
    const seq = /^#msg-(\d+)$/.exec(location.hash)?.[1];
    if (seq && !find(`msg-${seq}`)) location.assign(`${location.pathname}?around=${seq}#msg-${seq}`);
  });
}

/* Panels and menu */

function togglePanels() {
  const main = find("main");
  const isOpen = getComputedStyle(find("panels")).display !== "none";
  main.dataset.panels = isOpen ? "closed" : "open";
  find("context-toggle").setAttribute("aria-expanded", String(!isOpen));
}

function watchPanels() {
  find("context-toggle")?.addEventListener("click", togglePanels);
  find("context-toggle")?.setAttribute("aria-expanded", String(getComputedStyle(find("panels")).display !== "none"));
  find("archive")?.addEventListener("click", () => call("POST", `${api}/archive`).catch(complain));
  find("context").addEventListener("click", async (event) => {
    if (event.target.id !== "compact") return;
    event.target.disabled = true;
    try {
      await call("POST", `${api}/compact`, { wait: false });
      find("compact-note").textContent = "A compaction is on its way.";
    } catch (error) {
      find("compact-note").textContent = `${error.message} (${error.code})`;
    }
  });
}

history.scrollRestoration = "manual";
if (composer) watchComposer();
watchReading();
watchApprovals(transcript.root, api);
watchPanels();
showState();
if (location.hash) find(location.hash.slice(1))?.scrollIntoView();
else goToEnd();
watchEdges();
dividers.refresh();
new LiveFeed({
  path: `/ws/sessions/${encodeURIComponent(sessionId)}`,
  seq: Number(page.dataset.seq),
  onEvent: takeEvent,
  onDelta: (delta) => transcript.takeDelta(delta),
  onCaughtUp: showState,
  onState: showConnection,
}).start();
