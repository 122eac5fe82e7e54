// The scrub bar: click or drag the drawing, or use the arrow keys, to choose the call to show.
// Without this script the browser's own slider is shown below the drawing, with a button.
import { formatNumber, formatPercent, gettext } from "../support/i18n.js";

const PAUSE = 220; // milliseconds: while an arrow key is held down, the calls in between are not loaded

const form = () => document.getElementById("scrub");
const range = () => document.getElementById("scrub-place");
let places = [];
let waiting = 0;

function begin() {
  const values = document.getElementById("scrub-places");
  places = values ? JSON.parse(values.textContent) : [];
  if (range()) form().dataset.live = "";
}

function follow() {
  const [number, tokens, percent] = places[range().value - 1];
  const said = gettext("Call %(number)s: %(tokens)s tokens, %(percent)s of usable", {
    number: formatNumber(number),
    tokens: formatNumber(tokens),
    percent: formatPercent(percent),
  });
  range().setAttribute("aria-valuetext", said);
  form().querySelector(".scrub-said").textContent = said;
  const cursor = form().querySelector(".scrub-cursor");
  cursor.setAttribute("x", ((range().value - 1) * 1000) / places.length);
}

function show(pause) {
  clearTimeout(waiting);
  waiting = setTimeout(() => form()?.requestSubmit(), pause);
}

function moveTo(event, plot) {
  const box = plot.getBoundingClientRect();
  const place = Math.floor(((event.clientX - box.left) / box.width) * places.length) + 1;
  range().value = Math.min(Math.max(place, 1), places.length);
  follow();
}

document.addEventListener("pointerdown", (event) => {
  const plot = event.target.closest(".scrub-form[data-live] .scrub-plot");
  if (!plot || event.button !== 0) return;
  event.preventDefault();
  plot.setPointerCapture(event.pointerId);
  range().focus({ focusVisible: false });
  moveTo(event, plot);
  const move = (next) => moveTo(next, plot);
  const end = (next) => {
    plot.removeEventListener("pointermove", move);
    if (next.type === "pointerup") show(0);
  };
  plot.addEventListener("pointermove", move);
  plot.addEventListener("pointerup", end, { once: true });
  plot.addEventListener("pointercancel", end, { once: true });
});

document.addEventListener("input", (event) => event.target === range() && follow());
// On the page of a call a change loads the chosen call. Above the list it only chooses; Enter or the button opens it.
document.addEventListener("change", (event) => {
  if (event.target === range() && form().hasAttribute("hx-get")) show(PAUSE);
  if (event.target.matches("[data-submits]")) event.target.form.requestSubmit();
});
document.addEventListener("keydown", (event) => {
  if (event.target === range() && event.key === "Enter") show(0);
});

// After a link has shown another call, move the bar there.
document.addEventListener("htmx:afterSettle", () => {
  const call = document.getElementById("call");
  if (!call || !range() || !places.length) return;
  const away = (place) => Math.abs(place[0] - Number(call.dataset.number));
  const nearest = places.reduce((best, place, index) => (away(place) < away(places[best]) ? index : best), 0);
  if (away(places[range().value - 1]) === away(places[nearest])) return;
  range().value = nearest + 1;
  follow();
});
document.addEventListener("htmx:historyRestore", begin);

begin();
