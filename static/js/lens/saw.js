// What the model saw: one call as its page shows it, and in the conversation what that call was not shown as written.
import { isPlainClick } from "../shell/keys.js";
import { fetchJson, fetchPart } from "../support/api.js";
import { enhance } from "../support/enhance.js";
import { dateLanguage, formatNumber, gettext } from "../support/i18n.js";
import { keepingPlace } from "../transcript/scrolling.js";

const PAUSE = 220; // milliseconds: while the bar moves, only the conversation follows
const GATHER = 400; // milliseconds: events come in bursts
const KEPT = 200; // answers that are not asked for again
const WORDS = {
  summarised: gettext("summarised"),
  left_out: gettext("left out, no room"),
  quoted: gettext("only quoted"),
  absent: gettext("not in this prompt"),
  later: gettext("not sent yet"),
  tombstoned: gettext("output replaced by a tombstone"),
  shortened: gettext("shortened"),
  answer: gettext("its answer"),
};
const clock = new Intl.DateTimeFormat(dateLanguage, { day: "numeric", month: "short", year: "numeric", hour: "2-digit", minute: "2-digit", second: "2-digit" });

const isIn = (runs, seq) => runs.some(([first, last]) => first <= seq && seq <= last);

// Returns how a call was shown a message, a key of WORDS; nothing for as it was written.
function seenAs({ dataset }, place, shown) {
  const seq = Number(dataset.seq);
  if (place.answer && seq === place.answer) return "answer";
  if (place.answer && seq > place.answer) return "later";
  if (isIn(shown.shown, seq)) return ["tombstoned", "shortened"].find((how) => isIn(shown[how], seq));
  if (shown.quoted.includes(dataset.message)) return "quoted";
  return ["summarised", "left_out"].find((how) => isIn(shown[how], seq)) ?? "absent";
}

function mark(message, how) {
  if (message.dataset.lens === how) return;
  message.querySelector(".message-lens")?.remove();
  delete message.dataset.lens;
  if (!how) return;
  message.dataset.lens = how;
  const word = Object.assign(document.createElement("span"), { className: "message-lens", textContent: WORDS[how] });
  message.querySelector(".message-head").append(word);
}

export class Saw {
  #places = []; // { id, number, at, answer } of each call on the branch, oldest first
  #kept = new Map(); // what a call was shown, by its id
  #chosen = ""; // the call
  #section = "";
  #shown = null; // [place, what it was shown] while it is marked in the conversation
  #isShown = false;
  #isFollowing = false;
  #asked = 0;
  #pause = 0;
  #gather = 0;
  #watch = new MutationObserver(() => this.#markAll());

  constructor(panel, { page, transcript, onChange, onError }) {
    Object.assign(this, { panel, page, transcript, onChange, onError });
    this.range = panel.querySelector("input");
    this.range.addEventListener("input", () => this.#moved());
    this.#at("newest").addEventListener("click", () => this.#choose(this.#places.at(-1).id));
    // Before htmx, which would put the address of the call's page in the place of this one's.
    panel.addEventListener("click", (event) => this.#follow(event), true);
    panel.addEventListener("change", ({ target }) => target.matches("[data-submits]") && target.form.requestSubmit());
    panel.addEventListener("submit", (event) => this.#compare(event));
  }

  // call: an id; or of: the link in an answer to the calls that saw it. Without either, the newest call.
  async show({ call, of, section }) {
    if (call && call === this.#chosen && this.#isShown && (section ?? "") === this.#section) return;
    this.#isShown = true;
    const asked = (this.#asked += 1);
    await this.#load();
    if (asked !== this.#asked) return; // something else was chosen meanwhile
    const seq = Number(of?.closest(".message").dataset.seq);
    const id = of ? this.#places.findLast(({ answer }) => answer === seq)?.id : call || this.#chosen || this.#places.at(-1)?.id;
    if (id) await this.#show(id, section ?? "", "replaceState");
    else if (of) throw Object.assign(new Error(gettext("The record has no call that wrote this answer.")), { page: of.href });
  }

  hide() {
    this.#asked += 1;
    this.#isShown = false;
    clearTimeout(this.#gather);
    clearTimeout(this.#pause);
    this.#watch.disconnect();
    delete this.transcript.root.dataset.lens;
    keepingPlace(() => this.transcript.messages.forEach((message) => mark(message)));
  }

  take(type) {
    if (!/^(message|turn|branch)\./.test(type)) return;
    clearTimeout(this.#gather);
    this.#gather = setTimeout(() => this.#renew().catch(this.onError), GATHER);
  }

  #at(name) {
    return this.panel.querySelector(`[data-${name}]`);
  }

  #index() {
    return this.#places.findIndex(({ id }) => id === this.#chosen);
  }

  async #load() {
    const { calls } = await fetchJson(this.transcript.onBranch(this.panel.dataset.places));
    this.#places = calls.map(([id, number, at, answer]) => ({ id, number, at, answer }));
    this.#at("empty").hidden = calls.length > 0;
    this.#at("bar").hidden = calls.length === 0 || !this.#chosen;
    this.range.max = calls.length;
  }

  // There may be a new call, or the newest has ended. A reader of the newest goes on to it, also one who chose it meanwhile.
  async #renew() {
    const newest = this.#places.at(-1)?.id ?? "";
    await this.#load();
    if (this.#chosen === newest && this.#places.length) await this.#show(this.#places.at(-1).id, this.#section, "replaceState");
    else this.#showPlace();
  }

  #moved() {
    const { id } = this.#places[this.range.value - 1];
    this.#chosen = id;
    this.#showPlace();
    if (!this.#isFollowing) this.#followBar().catch(this.onError);
    clearTimeout(this.#pause);
    this.#pause = setTimeout(() => this.#choose(id, this.#section, "replaceState"), PAUSE);
  }

  // One request at a time, and the next one is for where the bar is by then.
  async #followBar() {
    this.#isFollowing = true;
    try {
      for (let id = ""; id !== this.#chosen; ) {
        id = this.#chosen;
        this.#markWith(id, await this.#shownBy(id));
      }
    } finally {
      this.#isFollowing = false;
    }
  }

  #choose(id, section = this.#section, how = "pushState") {
    this.#show(id, section, how).catch(this.onError);
  }

  async #show(id, section, how) {
    this.#section = section;
    this.onChange({ how, page: this.#pageOf(id), call: id, section });
    await Promise.all([this.#mark(id), this.#showCall(`${this.#pageOf(id)}${section ? `?section=${encodeURIComponent(section)}` : ""}`)]);
  }

  #pageOf(id) {
    return `${this.page}${encodeURIComponent(id)}/`;
  }

  async #showCall(address) {
    const asked = (this.#asked += 1);
    const place = this.#at("call");
    place.setAttribute("aria-busy", "true");
    try {
      const part = await fetchPart(address, { "HX-Target": "call" });
      if (asked !== this.#asked) return;
      const focused = place.contains(document.activeElement) && document.activeElement.id;
      place.replaceChildren(part.querySelector("#call"));
      window.htmx.process(place);
      enhance(place);
      if (focused) document.getElementById(focused)?.focus({ preventScroll: true });
    } finally {
      if (asked === this.#asked) place.removeAttribute("aria-busy");
    }
  }

  async #mark(id) {
    this.#chosen = id;
    this.#at("bar").hidden = this.#places.length === 0;
    this.#showPlace();
    const shown = await this.#shownBy(id);
    if (id === this.#chosen) this.#markWith(id, shown);
  }

  // Marks in the conversation what a call was not shown as it was written.
  #markWith(id, told) {
    if (!this.#isShown) return;
    const place = this.#places.find((one) => one.id === id);
    const shown = place ? told : { words: gettext("This call does not belong to a turn on this branch, so no messages are greyed.") };
    this.#at("words").textContent = shown.words ?? gettext("Messages that this call did not see word for word are greyed in the conversation.");
    this.#shown = [place, shown];
    this.transcript.root.dataset.lens = "";
    this.#watch.observe(this.transcript.root, { childList: true });
    this.#markAll();
  }

  async #shownBy(id) {
    if (!this.#kept.has(id)) {
      if (this.#kept.size >= KEPT) this.#kept.clear();
      this.#kept.set(id, await fetchJson(`${this.#pageOf(id)}messages.json`));
    }
    return this.#kept.get(id);
  }

  #markAll() {
    const [place, shown] = this.#shown;
    keepingPlace(() => {
      for (const message of this.transcript.messages) mark(message, shown.words ? undefined : seenAs(message, place, shown));
    });
  }

  #showPlace() {
    const at = this.#index();
    this.#at("newest").hidden = at === this.#places.length - 1;
    if (at < 0) return;
    const { number, at: seconds } = this.#places[at];
    const said = gettext("Call %(number)s, %(time)s", { number: formatNumber(number), time: clock.format(seconds * 1_000) });
    this.range.value = at + 1;
    this.range.setAttribute("aria-valuetext", said);
    this.#at("now").textContent = said;
  }

  #follow(event) {
    const link = event.target.closest("a[href]");
    if (!link || !isPlainClick(event)) return;
    const { pathname, search } = new URL(link.href);
    const [id, rest] = pathname.startsWith(this.page) ? pathname.slice(this.page.length).split("/") : [];
    if (!id || rest !== "") return;
    event.preventDefault();
    event.stopPropagation();
    this.#go(decodeURIComponent(id), search);
  }

  #compare(event) {
    event.preventDefault();
    this.#go(this.#chosen, `?${new URLSearchParams(new FormData(event.target))}`);
  }

  // search: what of a call's page is wanted. Of that, the address of the lens keeps only the section.
  #go(id, search) {
    const wanted = new URLSearchParams(search);
    const section = wanted.get("section") ?? this.#section;
    if ([...wanted.keys()].every((name) => name === "section")) return this.#choose(id, section);
    return this.#showCall(`${this.#pageOf(id)}${search}`).catch(this.onError);
  }
}
