// The viewer of pictures: one over the page, and to and fro between those of the conversation. Loaded when the first is opened.
import { asRead } from "../shell/keys.js";
import { gettext } from "../support/i18n.js";

const LINKS = "a.picture:has(> img)";

let viewer = null;
let shown = null; // the link of the picture in it

function button(icon, label) {
  const made = Object.assign(document.createElement("button"), { type: "button", className: "icon-button", title: label });
  made.setAttribute("aria-label", label);
  made.append(document.getElementById("copy-icon").content.cloneNode(true));
  made.querySelector("use").setAttribute("href", `#icon-${icon}`);
  return made;
}

const links = () => [...document.querySelectorAll(LINKS)];
// Its message may have been drawn anew since, and another link stands there now.
const current = () => (shown.isConnected ? shown : (links().find(({ href }) => href === shown.href) ?? shown));

function neighbour(by) {
  const at = links().indexOf(current());
  return at < 0 ? undefined : links()[at + by];
}

function show(link) {
  shown = link;
  const { alt } = link.querySelector("img");
  const picture = Object.assign(document.createElement("img"), { src: link.href, alt });
  viewer.querySelector(".viewer-picture").replaceChildren(picture);
  viewer.querySelector("bdi").textContent = alt;
  viewer.querySelector("a").href = link.href;
  viewer.querySelector("[data-step='-1']").disabled = !neighbour(-1);
  viewer.querySelector("[data-step='1']").disabled = !neighbour(1);
}

function step(by) {
  const link = neighbour(by);
  if (link) show(link);
}

function makeViewer() {
  const made = Object.assign(document.createElement("dialog"), { className: "dialog viewer" });
  made.setAttribute("aria-labelledby", "viewer-title");
  const head = Object.assign(document.createElement("header"), { className: "dialog-head" });
  const title = Object.assign(document.createElement("h2"), { id: "viewer-title" });
  title.append(document.createElement("bdi"));
  const page = Object.assign(document.createElement("a"), { target: "_blank", rel: "noopener", className: "small", textContent: gettext("Open by itself") });
  const [back, on, close] = [button("back", gettext("Previous picture")), button("back", gettext("Next picture")), button("close", gettext("Close"))];
  back.dataset.step = "-1";
  on.dataset.step = "1";
  close.addEventListener("click", () => made.close());
  head.append(title, page, back, on, close);
  made.append(head, Object.assign(document.createElement("div"), { className: "viewer-picture" }));
  made.addEventListener("click", ({ target }) => {
    const by = Number(target.closest("[data-step]")?.dataset.step ?? 0);
    if (by) step(by);
    else if (target === made) made.close(); // its backdrop
  });
  made.addEventListener("keydown", (event) => {
    const by = { ArrowLeft: -1, ArrowRight: 1 }[asRead(event)];
    if (by) step(by);
  });
  made.addEventListener("close", () => {
    current().focus();
    made.querySelector(".viewer-picture").replaceChildren();
  });
  document.body.append(made);
  return made;
}

export function showPicture(link) {
  viewer ??= makeViewer();
  show(link);
  viewer.showModal();
}
