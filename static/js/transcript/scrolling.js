// Keeps the reader's scroll position: the page follows new text only if the reader is already at the end.
// The browser's scroll anchoring is off on this page (session.css), or positions would be corrected twice.

const NEAR = 96;
const BELOW_HEADER = 72;

// False while the page shows an older stretch, whose end is not the newest message.
const hasNewest = () => !document.querySelector('[data-more="newer"]');

// grown: pixels by which the page has just grown
export const isAtEnd = (grown = 0) => {
  const root = document.documentElement;
  return hasNewest() && root.scrollHeight - root.scrollTop - root.clientHeight < NEAR + grown;
};

export function goToEnd() {
  scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
}

// The dock (the composer and what is above it) covers the end of the page. A reader at the end stays there when it grows.
export function stayAtEndBelow(dock) {
  let height = dock.offsetHeight;
  new ResizeObserver(() => {
    const grown = dock.offsetHeight - height;
    height += grown;
    if (grown > 0 && isAtEnd(grown)) goToEnd();
  }).observe(dock);
}

// The topmost message or divider that is at least partly visible.
export function topmost(selector = ".message, .divider") {
  const places = document.querySelectorAll(`#transcript > :is(${selector})`);
  return [...places].find((place) => place.id && place.getBoundingClientRect().bottom > BELOW_HEADER);
}

// Returns a function that restores the reader's position after the page has changed.
function rememberPlace() {
  if (isAtEnd()) return goToEnd;
  const anchor = topmost();
  if (!anchor) return () => {};
  const before = anchor.getBoundingClientRect().top;
  return () => {
    // By id: the change may have replaced the message with a newer version.
    const now = document.getElementById(anchor.id)?.getBoundingClientRect().top;
    if (now !== undefined && Math.abs(now - before) > 1) scrollBy({ top: now - before, behavior: "instant" });
  };
}

export function keepingPlace(change) {
  const goBack = rememberPlace();
  change();
  goBack();
}

// Scrolls to a message and focuses it, so that Tab continues from there and a screen reader announces it.
export function goToMessage(message) {
  message.tabIndex = -1;
  message.focus({ preventScroll: true });
  message.scrollIntoView({ block: "start", behavior: "instant" });
  message.classList.remove("found");
  void message.offsetWidth; // forces a layout, so that the animation restarts
  message.classList.add("found");
}
