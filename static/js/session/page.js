// The session page: creates its parts and passes events to them.
import { Attachments, watchDropping, watchPasting } from "../composer/attachments.js";
import { Draft, isTouch, sendOnEnter, showError } from "../composer/box.js";
import { Connection } from "../composer/connection.js";
import { Queue, QueueList } from "../composer/queue.js";
import { Sending } from "../composer/sending.js";
import { SignIn } from "../composer/sign-in.js";
import { watchSlash } from "../composer/slash.js";
import { asRead, isPlain, isPlainClick, watchKeys } from "../shell/keys.js";
import { call } from "../support/api.js";
import { gettext } from "../support/i18n.js";
import { Actions } from "../transcript/actions.js";
import { watchApprovals } from "../transcript/approvals.js";
import { watchComparing } from "../transcript/comparing.js";
import { Dividers } from "../transcript/dividers.js";
import { Edges } from "../transcript/edges.js";
import { watchRatingDialog } from "../transcript/ratings.js";
import { Reading } from "../transcript/reading.js";
import { keepingPlace } from "../transcript/scrolling.js";
import { Transcript } from "../transcript/transcript.js";
import { Versions } from "../transcript/versions.js";
import { open, watchClosing, watchGoTo, watchSearch } from "./dialogs.js";
import { LiveFeed } from "./live.js";
import { watchProject } from "./moving.js";
import { notify, watchNotifications } from "./notifications.js";
import { watchPinButton } from "./pins.js";
import { watchSeen } from "./seen.js";
import { watchShareDialog } from "./shares.js";
import { watchTitle } from "./title.js";

const find = (id) => document.getElementById(id);
const page = find("session");
const sessionId = page.dataset.sessionId;
const api = `/api/sessions/${encodeURIComponent(sessionId)}`;
const composer = find("composer");
const textarea = find("message");
const picker = find("model");
const errorBox = find("composer-error");
const draft = new Draft(sessionId);
const RUNS_PACE = 1_000; // milliseconds
const ENDS = { completed: gettext("The answer is ready."), failed: gettext("The turn failed without an answer.") };
const HINT = find("composer-hint")?.textContent;

const isLooking = "looking" in page.dataset; // at another branch than the chosen one
const transcript = new Transcript(find("transcript"), { path: page.dataset.messages, branch: page.dataset.branch, onChange: showState, onGrown: () => edges.trimGrown() });
const dividers = new Dividers(transcript, find("tail"), page.dataset.compactions);
const edges = new Edges(transcript, { path: page.dataset.messages, onChange: stretchChanged });
const reading = new Reading({ transcript, edges, jump: find("jump"), looking: isLooking, onError: complain });
const versions = new Versions(transcript, edges, { onError: complain, say: (words) => (find("announcer").textContent = words) });
const attachments = composer && new Attachments(find("attachments"), { sessionId, status: find("attachments-status"), onChange: filesChanged });
const title = watchTitle(find("title-form"), api);
const showPinned = watchPinButton(find("pin"), sessionId, complain);
const showProject = watchProject(sessionId, complain);
const showNew = watchSeen(api, "unseen" in page.dataset);
const queue = new Queue(sessionId);
// The model for the next turn if it is not the session's own, else "".
const otherModel = () => (picker.value === page.dataset.model ? "" : picker.value);
const sending = new Sending({
  api,
  queue,
  state: page.dataset.state,
  running: page.dataset.running === "true", // also while suspended: no other turn may start
  signIn: new SignIn(find("sign-in"), { onSignedIn: () => (feed.restart(), measureContext()) }),
  onChange: showState,
  onError: complain,
});
const connection = new Connection(find("connection"), { onSignIn: () => sending.signIn.ask(), onGone: sayDeleted });
// htmx would follow a 401 for a part by taking the whole page to the login. Here the user signs in without leaving it.
document.addEventListener("htmx:beforeOnLoad", (event) => {
  if (event.detail.xhr.status !== 401) return;
  event.preventDefault();
  connection.show("signed-out");
});
const queueList = composer && new QueueList(queue, { root: find("queue"), act: queueAction, onChange: showState });
const feed = new LiveFeed({
  path: `/ws/sessions/${encodeURIComponent(sessionId)}`,
  seq: Number(page.dataset.seq),
  onEvent: takeEvent,
  onDelta: (delta) => transcript.takeDelta(delta),
  onCaughtUp: () => (showState(), sending.drain()),
  onState: (state) => connection.show(state),
});

/* State */

function showState() {
  const { running, waiting, stopping } = sending;
  const last = transcript.messages.at(-1);
  const isWriting = Boolean(last?.querySelector(".live"));
  find("working").hidden = !running || isWriting || waiting || isLooking || !transcript.hasTail;
  versions.show({ isRunning: running });
  find("no-messages").hidden = transcript.messages.length > 0 || running || transcript.hasEmptyEnd;
  reading.showJump();
  if (!composer) return;
  const isEmpty = !textarea.value.trim();
  find("stop").hidden = !running;
  find("stop").disabled = stopping;
  find("send").hidden = running && isEmpty;
  find("send").disabled = sending.sending || isEmpty || attachments.isSending || attachments.hasFailed;
  find("send").title = running ? gettext("Send when this turn has ended (Enter)") : gettext("Send (Enter)");
  find("send").setAttribute("aria-label", running ? gettext("Queue") : gettext("Send"));
  textarea.readOnly = sending.sending && !running;
  find("composer-hint").textContent = hint(isEmpty);
  queueList.show(queueNote());
}

function hint(isEmpty) {
  if (sending.waiting) return gettext("The turn is waiting for an answer above");
  if (sending.sending && attachments.files.length) return gettext("Inspecting the files, then the turn starts");
  if (attachments.isSending) return gettext("A file is uploading");
  if (attachments.hasFailed) return gettext("Remove the failed file, or try it again");
  if (sending.running && !isEmpty) return gettext("Enter adds it to the queue");
  return isEmpty && attachments.files.length ? gettext("Write what to do with the files") : HINT;
}

function queueNote() {
  if (sending.waiting) return gettext("Sent when the waiting turn has ended");
  if (sending.running) return gettext("Sent when this turn has ended");
  if (sending.isHeld) return gettext("The last turn did not complete, so nothing is sent automatically");
  return gettext("Sending");
}

function showBadge(state) {
  const place = find("state-badge");
  const archived = place.querySelector('[class="badge"]');
  const badge = document.querySelector(`template[data-badge="${state}"]`)?.content.firstElementChild.cloneNode(true);
  place.replaceChildren(...[badge, archived].filter(Boolean));
}

function announce(message) {
  const spoken = [...message.querySelectorAll(".prose")].map((part) => part.textContent.trim()).join(" ");
  if (spoken) find("announcer").textContent = spoken.length > 600 ? gettext("%(text)s… (more in the transcript)", { text: spoken.slice(0, 600) }) : spoken;
}

function measureContext() {
  clearTimeout(measureContext.timer);
  measureContext.timer = setTimeout(() => window.htmx.trigger(find("context"), "mnesis:context"), 150);
}

/* Events */

function turnWaits(partIds) {
  sending.turnWaits();
  showBadge("suspended");
  measureContext();
  partIds.forEach(partChanged);
  find("announcer").textContent = gettext("The turn is waiting for an answer to a tool call.");
  notify(gettext("A tool call is waiting for your answer."));
}

function turnGoesOn() {
  transcript.drawing.prepare();
  sending.turnGoesOn();
  showBadge("running");
}

function turnEnded(state, turnId) {
  showBadge(state);
  sending.turnEnded(state, turnId);
  showNew();
  notify(ENDS[state] ?? gettext("The answer is not complete."));
  measureContext();
  const last = transcript.lastOfTurn(turnId);
  if (last) transcript.refresh(last.dataset.message);
  else if (transcript.hasTail && !isLooking) edges.showBranch(transcript.branch).catch(complain); // it said nothing
  // By now it is known whether the model was sent the pictures.
  const asked = transcript.root.querySelector(`:scope > [data-turn="${CSS.escape(turnId)}"]:has(.picture, .recording)`);
  if (asked) transcript.refresh(asked.dataset.message);
  const answer = last?.dataset.role === "assistant" ? last.dataset.message : "";
  if (answer) setTimeout(() => transcript.message(answer) && announce(transcript.message(answer)), 400);
}

// Here, in another window, or by a program. A page that only looks stays where it is.
function branchChosen(branch) {
  if (isLooking && branch === transcript.branch) location.replace(location.pathname);
  if (isLooking || branch === transcript.branch) return;
  // Otherwise the page would only look at the other one after a reload.
  if (new URLSearchParams(location.search).has("branch")) history.replaceState({}, "", location.pathname);
  edges.showBranch(branch).catch(complain);
  measureContext();
}

function partChanged(partId) {
  const message = find(partId)?.closest(".message");
  if (message) transcript.refresh(message.dataset.message);
}

// A run of many items sends several events per second, so its line is refreshed at a limited rate.
let runsTimer = 0;
function runsChanged() {
  runsTimer ||= setTimeout(() => {
    runsTimer = 0;
    for (const place of document.querySelectorAll(".part-runs")) window.htmx.trigger(place, "mnesis:runs");
  }, RUNS_PACE);
}

const meanings = {
  "message.created": () => transcript.lookForNew(),
  "message.rated": ({ message_id: id }) => transcript.refresh(id),
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
  "summary.created": () => dividers.refresh(),
  "compaction.completed": () => (dividers.refresh(), measureContext()),
  "compaction.failed": () => dividers.refresh(),
  "compaction.superseded": () => dividers.refresh(),
  "fidelity.measured": () => dividers.refresh(),
  "context.changed": measureContext,
  "map.started": runsChanged,
  "map.item_completed": runsChanged,
  "map.state_changed": runsChanged,
  "map.completed": runsChanged,
  "file.explored": ({ file_id: id }) => attachments?.explored(id),
  "branch.chosen": ({ branch }) => branchChosen(String(branch)),
  "session.updated": (data) => (["deleted_at", "kept_at"].some((field) => data.fields.includes(field)) ? location.reload() : sessionUpdated(data)),
  "session.closed": sayDeleted,
  "session.archived": () => location.reload(),
};

async function sessionUpdated({ fields }) {
  if (fields.includes("project_id")) showProject();
  const session = await title.refresh();
  if (session) showPinned(session.pinned);
}

function takeEvent(event) {
  meanings[event.type]?.(event.data);
  if (lens) withLens((its) => its.take(event.type));
  if (/^(turn|session)\./.test(event.type)) document.dispatchEvent(new Event("mnesis:session")); // for the sidebar
  if (event.type === "delegation.started") document.dispatchEvent(new Event("mnesis:sessions"));
  showState();
}

// The session is in the trash, or deleted for good: here, in another tab or by a program.
async function sayDeleted() {
  if (composer) composer.hidden = true;
  document.dispatchEvent(new Event("mnesis:sessions")); // for the sidebar
  try {
    await call("GET", api);
  } catch (error) {
    if (error.code !== "SESSION_IN_TRASH") return connection.say(gettext("This session no longer exists."));
    const restore = () => call("POST", `${api}/restore`).then(() => location.reload(), complain);
    const button = connection.offer(gettext("This session is in the trash."), gettext("Restore it"), restore);
    if (document.activeElement === document.body) button.focus();
  }
}

/* Composer */

function complain(error) {
  keepingPlace(() => showError(errorBox, error));
}

function showDraft() {
  const { text, files } = draft;
  attachments.clear();
  textarea.value = text;
  textarea.dispatchEvent(new Event("input"));
  attachments.restore(files);
  find("editing").hidden = !draft.parent;
}

// Takes a message into the box, to be said differently.
function edit(said) {
  draft.edit(said);
  showDraft();
  textarea.focus();
}

async function send() {
  const text = textarea.value;
  if (sending.sending || !text.trim() || attachments.isSending || attachments.hasFailed) return;
  errorBox.hidden = true;
  draft.change(text);
  draft.ask(otherModel());
  const isQueued = sending.running;
  const { files, parent, kept } = draft;
  const message = { text, files, parent, model: otherModel(), key: draft.keyForSending() };
  if (await sending.send(message)) {
    if (draft.forget(message, kept)) showDraft();
    if (!isQueued) await reading.showNewest();
  }
  textarea.focus({ preventScroll: true });
}

async function answerAgain(parent) {
  errorBox.hidden = true;
  await sending.answerAgain(parent, otherModel());
  await reading.showNewest();
}

function queueAction(what, item) {
  if (what === "send") {
    sending.sendNow(item.key);
    return;
  }
  queue.remove(item.key);
  if (what === "delete") return;
  // The text being written is not lost: it goes into the queue.
  const { files, parent } = draft;
  if (textarea.value.trim()) queue.add({ text: textarea.value, files, parent, model: otherModel() });
  if (parent) draft.stopEditing();
  if (item.parent) return edit(item);
  draft.change(item.text);
  draft.attach(item.files);
  showDraft();
  textarea.focus();
}

function filesChanged() {
  draft.attach(attachments.files);
  showState();
}

function watchFiles() {
  const take = (files) => attachments.add(files);
  const chooser = find("file-picker");
  find("attach").addEventListener("click", () => chooser.click());
  chooser.addEventListener("change", () => {
    take([...chooser.files]);
    chooser.value = ""; // otherwise choosing the same file again fires no event
    textarea.focus({ preventScroll: true });
  });
  watchDropping(find("drop-zone"), take);
  watchPasting(textarea, take);
  attachments.restore(draft.files);
  addEventListener("beforeunload", (event) => attachments.isSending && event.preventDefault());
}

function watchComposer() {
  textarea.value = draft.textWith(textarea.value);
  find("editing").hidden = !draft.parent;
  find("stop-editing").addEventListener("click", () => {
    draft.stopEditing();
    showDraft();
    textarea.focus();
  });
  watchFiles();
  watchSlash(textarea);
  sendOnEnter(textarea, send);
  textarea.addEventListener("input", () => {
    draft.change(textarea.value);
    showState();
  });
  composer.addEventListener("submit", (event) => {
    event.preventDefault();
    send();
  });
  find("stop").addEventListener("click", () => sending.stop());
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented || document.querySelector("dialog[open]")) return;
    // Escape also closes other things, so it does not stop a turn that is waiting for an answer.
    if (sending.running && !sending.waiting) sending.stop();
    else if (event.target === textarea) textarea.blur();
  });
  if (location.hash === "#attach") find("attach").focus({ preventScroll: true });
  else if (!isTouch() && !location.hash && !location.search) textarea.focus({ preventScroll: true });
}

/* Reading */

function stretchChanged() {
  dividers.refresh();
  showState();
}

const doings = {
  goto: () => open(find("goto")),
  search: () => open(find("search")),
  keys: () => open(find("keys")),
  share: () => share().catch(complain),
};

function watchDialogs() {
  watchClosing();
  watchGoTo(find("goto"), (place) => reading.goTo(place));
  watchSearch(find("search"), { sessionId, goTo: (place) => reading.goTo(place).catch(complain) });
  document.addEventListener("click", ({ target }) => {
    const wanted = target.closest("[data-do]")?.dataset.do;
    if (!wanted) return;
    target.closest("details.menu")?.removeAttribute("open");
    doings[wanted]();
  });
  watchKeys(
    {
      j: () => reading.step(1),
      k: () => reading.step(-1),
      e: () => reading.showNewest(),
      g: doings.goto,
      "/": doings.search,
      "?": doings.keys,
      m: () => textarea?.focus(),
      y: () => (find("announcer").textContent = reading.copyLast() ? gettext("Last answer copied.") : gettext("There is no answer yet.")),
      n: () => location.assign("/"),
      p: () => find("pin")?.click(),
      c: toggleLens,
      i: () => find("inspect-link")?.click(),
    },
    find("keys-on"),
  );
}

/* The lens, and the menu */

const isLensOpen = () => getComputedStyle(find("panels")).display !== "none";

function setLensOpen(isOpen) {
  keepingPlace(() => (find("main").dataset.panels = isOpen ? "open" : "closed"));
  find("context-toggle")?.setAttribute("aria-expanded", String(isOpen));
}

// More of the lens than the context is loaded when it is first wanted.
let lens = null;
async function withLens(act) {
  lens ??= import("../lens/pane.js").then(({ Lens }) => new Lens({ transcript, goTo: (place) => reading.goTo(place).catch(complain), isOpen: isLensOpen, setOpen: setLensOpen }));
  try {
    act(await lens);
  } catch {
    lens = null;
    complain(new Error(gettext("The lens could not be loaded. Try again.")));
  }
}

function toggleLens() {
  const isOpen = !isLensOpen();
  const hadFocus = find("panels").contains(document.activeElement);
  setLensOpen(isOpen);
  if (lens) withLens((its) => its.toggled(isOpen));
  if (!isOpen && hadFocus) find("context-toggle")?.focus();
}

function watchLens() {
  find("context-toggle")?.addEventListener("click", toggleLens);
  find("context-toggle")?.setAttribute("aria-expanded", String(isLensOpen()));
  find("lens-close").addEventListener("click", toggleLens);
  find("panels").addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || event.defaultPrevented) return;
    event.preventDefault();
    toggleLens();
  });
  find("lens-tabs").addEventListener("click", ({ target }) => target.dataset.lensTab && withLens((its) => its.show({ lens: target.dataset.lensTab })));
  find("lens-tabs").addEventListener("keydown", (event) => {
    const tabs = [...find("lens-tabs").children];
    const at = tabs.indexOf(event.target);
    const next = { ArrowRight: (at + 1) % tabs.length, ArrowLeft: at - 1, Home: 0, End: -1 }[asRead(event)];
    if (next === undefined || !isPlain(event)) return;
    event.preventDefault();
    tabs.at(next).focus();
    tabs.at(next).click();
  });
  transcript.root.addEventListener("click", (event) => {
    const link = event.target.closest("a[data-act=call]");
    if (!link || !isPlainClick(event) || !find("lens-tab-saw")) return;
    event.preventDefault();
    withLens((its) => its.show({ lens: "saw", of: link }));
  });
  if (new URLSearchParams(location.search).has("lens")) withLens((its) => its.showAddressed());
}

function watchMenu() {
  watchNotifications(find("notify"), complain);
  find("archive")?.addEventListener("click", () => call("POST", `${api}/archive`).catch(complain));
  find("delete")?.addEventListener("click", ({ target }) => {
    target.closest("details").open = false;
    if ("forGood" in target.dataset) find("delete-dialog").showModal();
    else call("POST", `${api}/trash`).then(sayDeleted, complain);
  });
  find("delete-dialog")?.addEventListener("close", ({ target }) => {
    if (target.returnValue === "delete") call("DELETE", api).then(sayDeleted, complain);
  });
  find("keep")?.addEventListener("click", () => call("POST", `${api}/keep`).catch(complain));
  find("reopen")?.addEventListener("click", () => call("POST", `${api}/reopen`).then(() => location.reload(), complain));
  find("context").addEventListener("click", async (event) => {
    if (event.target.id !== "compact") return;
    event.target.disabled = true;
    try {
      await call("POST", `${api}/compact`, { wait: false });
      find("compact-note").textContent = gettext("A compaction is in progress.");
    } catch (error) {
      find("compact-note").textContent = `${error.message} (${error.code})`;
    }
  });
}

history.scrollRestoration = "manual";
if (composer) watchComposer();
watchDialogs();
const share = watchShareDialog(find("share"), { api });
watchApprovals(transcript.root, api);
new Actions({
  root: transcript.root,
  sessionId,
  api,
  messages: page.dataset.messages,
  edit,
  answerAgain,
  share,
  compare: watchComparing(find("comparing")),
  rate: watchRatingDialog(find("rating"), api),
  onError: complain,
  onBusy: (words) => connection.say(words),
});
watchMenu();
showState();
reading.begin();
watchLens();
edges.watch();
dividers.refresh();
feed.start();
if (location.hash === "#share" && find("share")) doings.share();
performance.mark("mnesis-interactive");
