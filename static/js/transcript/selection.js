// The selected text of a message, so that it is selected again in a newer version of it. White space does not count: a
// running answer, which the browser draws, and the server's have it in other places.
const LETTERS = /\S/g;

const lettersIn = (text) => text.match(LETTERS)?.length ?? 0;

function lettersBefore(root, node, offset) {
  const range = document.createRange();
  range.setStart(root, 0);
  range.setEnd(node, offset);
  return lettersIn(range.toString());
}

// Finds the place before a letter, or with isEnd behind it. Letters count from 1.
function placeOf(root, letter, isEnd) {
  const texts = document.createTreeWalker(root, NodeFilter.SHOW_TEXT);
  let left = letter;
  for (let text = texts.nextNode(); text; text = texts.nextNode()) {
    const found = [...text.data.matchAll(LETTERS)][left - 1];
    if (found) return [text, found.index + (isEnd ? 1 : 0)];
    left -= lettersIn(text.data);
  }
  return null;
}

export function selectionIn(root) {
  const selection = getSelection();
  if (selection.isCollapsed || !root.contains(selection.anchorNode) || !root.contains(selection.focusNode)) return null;
  const { startContainer, startOffset, endContainer, endOffset } = selection.getRangeAt(0);
  return { first: lettersBefore(root, startContainer, startOffset) + 1, last: lettersBefore(root, endContainer, endOffset) };
}

export function selectAgain(root, { first, last }) {
  const start = placeOf(root, first, false);
  const end = placeOf(root, last, true);
  if (start && end) getSelection().setBaseAndExtent(...start, ...end);
}
