// Markdown as safe HTML, by the rules of sessions_app/pages/markdown.py: for answers that are still being written. The server
// draws each again at its end, then also with coloured code and drawn formulas. Loaded when the first answer begins.
import "../../vendor/dompurify/purify.min.js";
import "../../vendor/markdown-it/markdown-it.umd.min.js";
import { gettext } from "../support/i18n.js";

const { DOMPurify, markdownit } = window;
const NESTING_LIMIT = 24;
const LONGEST_FORMULA = 4_000;
const MOST_LINES = 100;
const INLINE_DELIMITERS = { $$: "$$", "\\[": "\\]", "\\(": "\\)", $: "$" };
const BLOCK_DELIMITERS = { $$: "$$", "\\[": "\\]" };
const CLEAN = {
  ALLOWED_TAGS: "p br hr h3 h4 h5 h6 blockquote ol ul li figure figcaption pre code a strong em s del table thead tbody tr th td span div".split(" "),
  ALLOWED_ATTR: ["href", "title", "start", "align", "class", "target", "rel", "data-language"],
  ALLOW_DATA_ATTR: false,
  RETURN_DOM_FRAGMENT: true,
};
const LANGUAGE = /^[a-z0-9+#._-]{1,30}$/;
const TASK = /^\[([ xX])\](?=[ \n])/;
const DIAGRAM = gettext("a diagram, as its text");
const FORMULA = gettext("a formula, as TeX");
const LABELS = {
  __proto__: null, // "constructor" is no language
  ...Object.fromEntries(["mermaid", "dot", "graphviz", "plantuml", "puml", "d2"].map((name) => [name, DIAGRAM])),
  ...Object.fromEntries(["math", "latex", "tex", "katex"].map((name) => [name, FORMULA])),
};
// As _HIDDEN in mnesis_core/text.py: characters that hide or reorder.
const HIDDEN =
  /(?<hidden>[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)|[\ud800-\udfff]|[\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]|[\u00ad\u180e\u200b\u2060-\u2064\ufeff\ufff9-\ufffb]|[\u{e0000}-\u{e007f}]|(?<![^\x00-\x7f\u200b-\u200f])[\u200c\u200d])\k<hidden>*/gu;

const escape = (text) => markdown.utils.escapeHtml(text);

function showInvisible(text) {
  return text.replace(HIDDEN, (run, hidden) => {
    const number = hidden.codePointAt(0);
    const name = number < 0x20 ? String.fromCodePoint(0x2400 + number) : `U+${number.toString(16).toUpperCase().padStart(4, "0")}`;
    const count = run.length / hidden.length;
    return count === 1 ? `⟨${name}⟩` : `⟨${name} x${count}⟩`;
  });
}

function figure(text, { caption = "", language = "", isMath = false } = {}) {
  const title = caption && `<figcaption>${escape(caption)}</figcaption>`;
  const name = LANGUAGE.test(language) ? ` data-language="${language}"` : isMath ? ' class="math"' : "";
  return `<figure${name}>${title}<pre><code>${escape(text)}</code></pre></figure>\n`;
}

function fence(tokens, index) {
  const info = tokens[index].info.trim();
  const language = info.split(" ")[0].toLowerCase();
  const label = LABELS[language];
  return figure(tokens[index].content, { caption: label ? `${info}: ${label}` : info, language });
}

// Formulas, whose TeX is no Markdown.

function parseInlineFormula(state, silent) {
  for (const [opening, closing] of Object.entries(INLINE_DELIMITERS)) {
    if (!state.src.startsWith(opening, state.pos)) continue;
    const begin = state.pos + opening.length;
    const end = formulaEnd(state.src, begin, Math.min(state.posMax, begin + LONGEST_FORMULA), closing);
    if (end < 0) continue;
    if (!silent) state.push("math_inline", "code", 0).content = state.src.slice(begin, end);
    state.pos = end + closing.length;
    return true;
  }
  return false;
}

function formulaEnd(text, begin, limit, closing) {
  const end = text.slice(0, limit).indexOf(closing, begin);
  const tex = text.slice(begin, end);
  if (end < 0 || !tex.trim() || tex.includes("\n\n")) return -1;
  if (closing !== "$") return end;
  return /^\s|\s$|\n/.test(tex) || /\d/.test(text[end + 1] ?? "") ? -1 : end; // sums of money stay text
}

function parseBlockFormula(state, first, last, silent) {
  const lineAt = (line) => state.src.slice(state.bMarks[line] + state.tShift[line], state.eMarks[line]).trimEnd();
  const opening = lineAt(first).slice(0, 2);
  const closing = BLOCK_DELIMITERS[opening];
  if (!closing || state.sCount[first] - state.blkIndent >= 4) return false;
  const lines = [];
  let isOpen = true; // as it is until its end is written, like a fence
  for (let line = first; isOpen && line < Math.min(last, first + MOST_LINES); line += 1) {
    const text = lineAt(line);
    if (line > first && (!text || state.sCount[line] < state.blkIndent)) return false;
    lines.push(text);
    isOpen = !text.slice(line === first ? 2 : 0).includes(closing);
  }
  const whole = lines.join("\n");
  if (isOpen ? first + lines.length < state.lineMax : !whole.endsWith(closing)) return false;
  const tex = whole.slice(2, isOpen ? undefined : -2);
  if ((isOpen || lines.length === 1) && !tex.trim()) return false;
  if (silent) return true;
  const token = state.push("math_block", "figure", 0);
  token.content = tex.replace(/^\n+|\n+$/g, "");
  token.map = [first, first + lines.length];
  state.line = first + lines.length;
  return true;
}

function adaptTokens({ tokens }) {
  for (const [at, token] of tokens.entries()) {
    const task = token.type === "inline" && tokens[at - 2]?.type === "list_item_open" && TASK.exec(token.content);
    if (task) {
      tokens[at - 2].attrSet("class", "task");
      token.children[0].content = (task[1] === " " ? "☐" : "☑") + token.children[0].content.slice(3);
    }
    if (/^h[1-6]$/.test(token.tag)) token.tag = `h${Math.min(6, Number(token.tag[1]) + 2)}`; // below the page's own headings
    const style = /^t[hd]$/.test(token.tag) && token.attrGet("style");
    if (style) token.attrs = [["align", style.split(":").at(-1)]];
  }
}

const markdown = markdownit("commonmark", { html: false, breaks: true, maxNesting: NESTING_LIMIT });
markdown.enable(["table", "strikethrough"]).disable(["image", "reference"]);
markdown.validateLink = (url) => /^(https?:\/\/|mailto:)/i.test(url);
Object.assign(markdown.renderer.rules, {
  fence,
  code_block: fence,
  math_inline: (tokens, index) => `<code class="math">${escape(tokens[index].content)}</code>`,
  math_block: (tokens, index) => figure(tokens[index].content, { isMath: true }),
  table_open: () => '<div class="table-scroll"><table>\n',
  table_close: () => "</table></div>\n",
  link_open(tokens, index, options, env, renderer) {
    tokens[index].attrSet("target", "_blank");
    tokens[index].attrSet("rel", "noopener nofollow");
    return renderer.renderToken(tokens, index, options);
  },
});
markdown.inline.ruler.before("escape", "math", parseInlineFormula);
markdown.block.ruler.before("fence", "math", parseBlockFormula, { alt: ["paragraph", "blockquote", "list"] });
markdown.core.ruler.push("mnesis", adaptTokens);

const render = (tokens) => markdown.renderer.render(tokens, markdown.options, {});
const clean = (html) => [...DOMPurify.sanitize(html, CLEAN).children];

// The rows of the table that was drawn last, by their HTML. Cleaning takes longest, and a table grows by a few rows at a time.
let known = new Map();

function drawTable(tokens) {
  const body = tokens.findIndex(({ type }) => type === "tbody_open");
  if (body < 0) return clean(render(tokens));
  const [table] = clean(render([...tokens.slice(0, body + 1), ...tokens.slice(-2)]));
  const rows = new Map();
  const place = table.querySelector("tbody");
  place.append("\n"); // as between any two elements of a block
  for (let from = body + 1, at = from; at < tokens.length - 2; at += 1) {
    if (tokens[at].type !== "tr_close") continue;
    const html = render(tokens.slice(from, at + 1));
    const row = rows.get(html) ?? known.get(html) ?? clean(`<table><tbody>${html}</tbody></table>`)[0].rows[0];
    rows.set(html, row);
    place.append(row.cloneNode(true), "\n");
    from = at + 1;
  }
  known = rows;
  return [table];
}

// Returns the blocks of a text, in order: the line where each begins, its kind, and draw(), which returns its elements.
export function blocksOf(text) {
  const tokens = markdown.parse(showInvisible(text), {});
  if (tokens.some((token) => token.level >= NESTING_LIMIT - 1)) return [{ line: 0, kind: "text", draw: () => clean(figure(text)) }];
  const starts = tokens.flatMap((token, at) => (token.level === 0 && token.nesting >= 0 ? [at] : []));
  return starts.map((from, at) => {
    const { map, type: kind } = tokens[from];
    const its = tokens.slice(from, starts[at + 1]);
    return { line: map[0], kind, draw: () => (kind === "table_open" ? drawTable(its) : clean(render(its))) };
  });
}
