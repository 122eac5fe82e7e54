// A summary's sentences: pointing at one lights up the sources that it rests on, in the list beside it, and says in words
// what it rests on. A click or Enter holds it until the next one; Escape lets it go.
import { formatNumber, gettext } from "../support/i18n.js";

let held = null; // the sentence that was clicked

const claimAt = (target) => target.closest?.(".claims [data-claim]");
const summaryOf = (claim) => claim.closest("[data-summary]");
const partsOf = (claim) => claim.closest(".claims").querySelectorAll(`[data-claim="${claim.dataset.claim}"]`);
const headOf = (claim) => [...partsOf(claim)].find((part) => part.dataset.rests) ?? claim;

function clear() {
  for (const lit of document.querySelectorAll(".claim-lit, .source-lit")) lit.classList.remove("claim-lit", "source-lit");
  for (const said of document.querySelectorAll(".claim-said")) said.replaceChildren();
}

function light(claim, { far = false } = {}) {
  clear();
  const head = headOf(claim);
  for (const part of partsOf(claim)) part.classList.add("claim-lit");
  const ids = (head.dataset.sources ?? "").split(" ");
  const sources = [...summaryOf(claim).querySelectorAll("[data-source]")].filter(({ dataset }) => ids.includes(dataset.source));
  for (const source of sources) source.classList.add("source-lit");
  if (sources.length) reach(sources[0], far);
  else if (far && head.dataset.sources) summaryOf(claim).querySelector(".source-more button")?.click();
  tell(head);
}

// Scrolls the list of sources, but never the page under the pointer: that only after a click, where the list is far away.
function reach(source, far) {
  const list = source.parentElement;
  const [place, frame] = [source.getBoundingClientRect(), list.getBoundingClientRect()];
  const [top, bottom] = [Math.max(frame.top, 0), Math.min(frame.bottom, innerHeight)];
  if (list.scrollHeight > list.clientHeight + 1 && (place.top < top || place.bottom > bottom)) {
    list.scrollTop += place.top - top - Math.max(0, (bottom - top - place.height) / 2);
  }
  if (!far) return;
  const calm = matchMedia("(prefers-reduced-motion: reduce)").matches;
  source.scrollIntoView({ block: "nearest", behavior: calm ? "auto" : "smooth" });
}

function tell(head) {
  const said = summaryOf(head).querySelector(".claim-said");
  said.textContent = head.dataset.rests ?? "";
  const { session } = head.closest(".claims").dataset;
  const seqs = (head.dataset.messages ?? "").split(" ").filter(Boolean).slice(0, 5);
  if (!session || !seqs.length) return;
  for (const seq of seqs) {
    const link = document.createElement("a");
    link.href = `${session}?at=${seq}#msg-${seq}`;
    link.textContent = gettext("Message %(number)s", { number: formatNumber(Number(seq)) });
    said.append(" ", link);
  }
}

function hold(claim) {
  const head = headOf(claim);
  const before = held;
  letGo();
  if (before === head) return;
  held = head;
  head.setAttribute("aria-pressed", "true");
  light(head, { far: true });
}

function letGo() {
  held?.setAttribute("aria-pressed", "false");
  held = null;
  clear();
}

function back() {
  if (held?.isConnected) light(held);
  else clear();
}

// More sources have come, of which one may be that of the sentence that is held.
document.addEventListener("htmx:afterSettle", () => {
  if (held?.isConnected && !document.querySelector(".source-lit")) light(held, { far: true });
});
document.addEventListener("pointerover", (event) => {
  const claim = event.pointerType === "mouse" && claimAt(event.target);
  if (claim) light(claim);
});
document.addEventListener("pointerout", (event) => {
  if (event.pointerType === "mouse" && claimAt(event.target) && !claimAt(event.relatedTarget ?? document)) back();
});
document.addEventListener("focusin", (event) => {
  const claim = claimAt(event.target);
  if (claim?.matches(":focus-visible")) light(claim);
});
document.addEventListener("focusout", (event) => {
  if (claimAt(event.target) && !event.relatedTarget?.closest(".claim-said")) back();
});
document.addEventListener("click", (event) => {
  const claim = claimAt(event.target);
  if (claim && !event.target.closest("a")) hold(claim);
});
document.addEventListener("keydown", (event) => {
  const claim = claimAt(event.target);
  if (event.key === "Escape" && held) letGo();
  if (!claim || (event.key !== "Enter" && event.key !== " ")) return;
  event.preventDefault();
  hold(claim);
});
