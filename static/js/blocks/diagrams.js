// Diagrams of Mermaid. Each is drawn in a frame of no origin (sessions_app/pages/frames.py), which gets the source and
// answers with its height or an error. A frame is there while it is near the screen. Loaded when the first diagram is.
import { formatNumber, gettext } from "../support/i18n.js";
import { goToEnd, isAtEnd } from "../transcript/scrolling.js";

const ADDRESS = "/frames/diagram/";
const LONGEST = 20_000; // characters of a source
const MOST = 1_000; // statements of a source: layouts take more than proportional time
const PATIENCE = 20_000; // milliseconds, with the library to load
const TOO_LONG = gettext("it is longer than %(characters)s characters or %(statements)s statements", {
  characters: formatNumber(LONGEST),
  statements: formatNumber(MOST),
});
const NEAR = "1000px 0px";
const TALLEST = 20_000; // pixels
const BELOW_HEADER = 72;

let library = null; // its text, for the frames: a browser keeps nothing that they load
const loadLibrary = () =>
  (library ??= fetch(new URL("../../vendor/mermaid/mermaid.min.js", import.meta.url)).then((answer) => {
    if (!answer.ok) throw new Error(`status ${answer.status}`);
    return answer.text();
  }));

const heights = new Map(); // of sources, so that one that is drawn again moves nothing
const diagrams = new Map(); // by figure
const waiting = new Set(); // those to draw, one after the other
let isDrawing = false;

// A reader who follows the end of a conversation sees the last one first.
const followsEnd = () => document.querySelector(".session-page") && isAtEnd();
const distance = ({ figure }) => {
  const { top, bottom } = figure.getBoundingClientRect();
  return Math.abs(followsEnd() ? innerHeight - bottom : top - BELOW_HEADER);
};

async function drawNext() {
  if (isDrawing) return;
  isDrawing = true;
  while (waiting.size) {
    const [next] = [...waiting].sort((one, other) => distance(one) - distance(other));
    waiting.delete(next);
    await next.draw().catch(() => {});
  }
  isDrawing = false;
}

const isDark = () => {
  const chosen = document.documentElement.dataset.theme;
  return chosen ? chosen === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
};

// Where the browser does not keep the reader's place (transcript/scrolling.js): it stays, whether the figure is above it or the reader
// follows the end of the conversation.
function resizing(figure, change) {
  const { bottom, height } = figure.getBoundingClientRect();
  const follows = followsEnd();
  change();
  if (follows) goToEnd();
  else if (bottom < BELOW_HEADER && document.querySelector(".session-page")) scrollBy({ top: figure.getBoundingClientRect().height - height, behavior: "instant" });
}

class Diagram {
  #frame = null;
  #port = null;
  #stop = () => {}; // ends the wait for an answer
  isNear = false;

  constructor(figure) {
    this.figure = figure;
    this.source = figure.querySelector("code").textContent;
    this.place = Object.assign(document.createElement("div"), { className: "diagram" });
    this.toggle = Object.assign(document.createElement("button"), { type: "button", className: "button button-small", hidden: true });
    this.toggle.addEventListener("click", () => this.#show(figure.dataset.shows === "diagram" ? "source" : "diagram"));
    figure.querySelector("figcaption").textContent = "Mermaid";
    figure.querySelector(":scope > .code-tools").prepend(this.toggle);
    figure.insertBefore(this.place, figure.querySelector(":scope > pre"));
    figure.dataset.shows = "source";
    const height = heights.get(this.source);
    if (height) this.#take({ height });
  }

  comeNear(isNear) {
    this.isNear = isNear;
    if (!isNear) return this.#leave();
    waiting.add(this);
    return queueMicrotask(drawNext); // with the others that came at once
  }

  // Draws it in other colours, if it is drawn.
  recolour() {
    this.#ask();
  }

  async draw() {
    if (this.#frame || this.problem || !this.isNear || !this.figure.isConnected) return;
    const statements = this.source.split(/[\n;&]/).length;
    if (this.source.length > LONGEST || statements > MOST) {
      this.#fail(TOO_LONG);
      return;
    }
    this.#frame = Object.assign(document.createElement("iframe"), { title: gettext("Diagram"), src: ADDRESS });
    this.#frame.setAttribute("sandbox", "allow-scripts");
    this.place.replaceChildren(this.#frame);
    let timer;
    const isLate = new Promise((resolve) => (timer = setTimeout(resolve, PATIENCE, true)));
    const isLeft = new Promise((resolve) => (this.#stop = resolve));
    const isUnanswered = await Promise.race([this.#begin(this.#frame), isLate, isLeft]);
    clearTimeout(timer);
    if (isUnanswered) this.#fail(gettext("it takes too long, or could not be loaded"));
  }

  // Resolves when the frame has answered, or with true if it never will.
  async #begin(frame) {
    await new Promise((resolve) => frame.addEventListener("load", resolve, { once: true }));
    const text = await loadLibrary().catch(() => (library = null));
    if (frame !== this.#frame) return undefined;
    if (!text) return true;
    const { port1, port2 } = new MessageChannel();
    const answered = new Promise((resolve) => {
      port1.onmessage = ({ data }) => {
        if (port1 === this.#port) this.#take(data);
        resolve();
      };
    });
    frame.contentWindow.postMessage(text, "*", [port2]); // it has no origin that could be named
    this.#port = port1;
    this.#ask();
    return answered;
  }

  #ask() {
    this.#port?.postMessage({ source: this.source, isDark: isDark() });
    this.figure.dataset.colours = isDark() ? "dark" : "light";
  }

  #leave() {
    this.#stop();
    this.#port?.close();
    this.#port = null;
    this.#frame?.remove();
    this.#frame = null;
  }

  #take({ height, error, isTooLong }) {
    if (isTooLong) return this.#fail(TOO_LONG);
    if (typeof error === "string") return this.#fail(error.trim().split("\n", 1)[0].replace(/:$/, "").slice(0, 200));
    if (!Number.isFinite(height) || height <= 0) return undefined;
    heights.set(this.source, Math.min(height, TALLEST));
    resizing(this.figure, () => {
      this.place.style.height = `${heights.get(this.source)}px`;
      if (this.toggle.hidden) this.#show("diagram");
    });
    return undefined;
  }

  #show(what) {
    this.figure.dataset.shows = what;
    this.toggle.textContent = what === "diagram" ? gettext("Source") : gettext("Diagram");
    this.toggle.hidden = false;
  }

  #fail(reason) {
    this.#leave();
    heights.delete(this.source);
    const words = gettext("This diagram cannot be drawn: %(reason)s", { reason });
    this.problem = Object.assign(document.createElement("p"), { className: "diagram-problem small", textContent: words });
    resizing(this.figure, () => {
      this.figure.dataset.shows = "source";
      this.toggle.hidden = true;
      this.figure.append(this.problem);
    });
  }
}

const watcher = new IntersectionObserver(
  (entries) => {
    for (const { target, isIntersecting } of entries) diagrams.get(target)?.comeNear(isIntersecting);
    for (const figure of diagrams.keys()) if (!figure.isConnected) forget(figure);
  },
  { rootMargin: NEAR },
);

function forget(figure) {
  watcher.unobserve(figure);
  diagrams.get(figure).comeNear(false);
  diagrams.delete(figure);
}

export function drawDiagrams(figures) {
  for (const figure of figures) {
    if (diagrams.has(figure)) continue;
    diagrams.set(figure, new Diagram(figure));
    watcher.observe(figure);
  }
}

function recolour() {
  for (const diagram of diagrams.values()) diagram.recolour();
}
new MutationObserver(recolour).observe(document.documentElement, { attributeFilter: ["data-theme"] });
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", recolour);
