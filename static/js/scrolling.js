// The reader is never moved: the page follows the newest text only for who is at its end already.
// The browser's own anchoring is off on this page (session.css), so that nothing is corrected twice.

const NEAR = 96;
const BELOW_HEADER = 72;

export const isAtEnd = () => {
  const root = document.documentElement;
  return root.scrollHeight - root.scrollTop - root.clientHeight < NEAR;
};

export function goToEnd() {
  scrollTo({ top: document.documentElement.scrollHeight, behavior: "instant" });
}

// Where the reader is: call the answer after a change of the page, and they are there again.
export function rememberPlace() {
  if (isAtEnd()) return goToEnd;
  const seen = document.elementFromPoint(innerWidth / 2, BELOW_HEADER)?.closest(".message, .divider, .more");
  const anchor = seen?.matches(".more") ? seen.nextElementSibling : seen;
  if (!anchor?.id) return () => {};
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
