// The reader is never moved: the page follows the newest text only for who is at its end already.
// The browser's own anchoring is off on this page (session.css), so that nothing is corrected twice.

const NEAR = 96;
const BELOW_HEADER = 72;

// The page may show an older stretch: then its end is not the newest.
const hasNewest = () => !document.querySelector('[data-more="newer"]');

// grown: so much longer has the page become just now
export const isAtEnd = (grown = 0) => {
  const root = document.documentElement;
  return hasNewest() && root.scrollHeight - root.scrollTop - root.clientHeight < NEAR + grown;
};

export function goToEnd() {
  scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
}

// The box and what stands above it lie over the end of the page: who is there stays there while they grow.
export function stayAtEndBelow(dock) {
  let height = dock.offsetHeight;
  new ResizeObserver(() => {
    const grown = dock.offsetHeight - height;
    height += grown;
    if (grown > 0 && isAtEnd(grown)) goToEnd();
  }).observe(dock);
}

// The topmost message or divider of which something is seen.
export function topmost(selector = ".message, .divider") {
  const places = document.querySelectorAll(`#transcript > :is(${selector})`);
  return [...places].find((place) => place.id && place.getBoundingClientRect().bottom > BELOW_HEADER);
}

// Where the reader is: call the answer after a change of the page, and they are there again.
function rememberPlace() {
  if (isAtEnd()) return goToEnd;
  const anchor = topmost();
  if (!anchor) return () => {};
  const before = anchor.getBoundingClientRect().top;
  return () => {
    // By id: the change may have put a newer version of the same message there.
    const now = document.getElementById(anchor.id)?.getBoundingClientRect().top;
    if (now !== undefined && Math.abs(now - before) > 1) scrollBy({ top: now - before, behavior: "instant" });
  };
}

export function keepingPlace(change) {
  const goBack = rememberPlace();
  change();
  goBack();
}

// To a message, which takes the focus: the keyboard goes on from there, and a screen reader says where it is.
export function goToMessage(message) {
  message.tabIndex = -1;
  message.focus({ preventScroll: true });
  message.scrollIntoView({ block: "start", behavior: "instant" });
  message.classList.remove("found");
  void message.offsetWidth; // so that the animation begins again
  message.classList.add("found");
}
