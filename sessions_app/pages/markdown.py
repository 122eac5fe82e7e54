"""Safe HTML from code, formulas and Markdown."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from html import unescape
from typing import Any, NamedTuple

import nh3
from django.utils.html import escape, strip_tags
from django.utils.safestring import SafeString, mark_safe
from django.utils.translation import get_language, gettext, gettext_lazy
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from markdown_it.token import Token as MarkdownToken
from math_core import LatexError, LatexToMathML
from pygments.lexers import get_lexer_by_name
from pygments.token import Token, _TokenType

from mnesis_core.text import visible_runs
from sessions_app.pages.formats import format_characters

_KNOWN = {
    "bash": "sh shell zsh console shell-session", "c": "h", "cpp": "c++ cc hpp", "csharp": "c# cs", "css": "",
    "diff": "patch", "docker": "dockerfile", "go": "golang", "html": "", "ini": "", "java": "", "javascript": "js jsx mjs",
    "json": "jsonl jsonc", "kotlin": "kt", "lua": "", "make": "makefile", "markdown": "md", "perl": "pl", "php": "",
    "powershell": "ps1", "python": "py python3", "r": "", "ruby": "rb", "rust": "rs", "scala": "",
    "sql": "postgresql sqlite", "swift": "", "toml": "", "tsx": "", "typescript": "ts", "xml": "svg", "yaml": "yml",
}  # fmt: skip
LEXERS = {name: lexer for lexer, others in _KNOWN.items() for name in (lexer, *others.split())}
"""The lexer of each language name that a code block may have. It is an allow-list: no text picks another lexer."""
# A lexer may be busy for minutes with a longer line, which no person wrote.
LONGEST_LINE = 1_000
# Highlighting takes about a second for a million characters.
LONGEST_CODE = 20_000
HIGHLIGHT_CLASSES = (
    (Token.Comment, "hl-comment"),
    (Token.Literal.String, "hl-string"),
    (Token.Literal.Number, "hl-number"),
    (Token.Keyword, "hl-keyword"),
    (Token.Operator.Word, "hl-keyword"),
    (Token.Name.Function, "hl-name"),
    (Token.Name.Class, "hl-name"),
    (Token.Name.Tag, "hl-keyword"),
    (Token.Name.Attribute, "hl-name"),
    (Token.Name.Decorator, "hl-name"),
    (Token.Name.Builtin, "hl-builtin"),
    (Token.Generic.Heading, "hl-keyword"),
    (Token.Generic.Subheading, "hl-keyword"),
    (Token.Generic.Inserted, "hl-inserted"),
    (Token.Generic.Deleted, "hl-deleted"),
)


def highlight_code(text: str, language: str) -> str | None:
    """Return a block of code as HTML, or ``None`` if its language is unknown or it is too long."""
    lexer = LEXERS.get(language.lower())
    if lexer is None or len(text) > LONGEST_CODE or any(len(line) > LONGEST_LINE for line in text.split("\n")):
        return None
    lines = highlight_lines(text, lexer)
    return "\n".join(lines) if len(lines) == text.count("\n") + 1 else None


def highlight_lines(text: str, lexer: str) -> list[str]:
    """Return the lines of a text as HTML, each complete in itself.

    :param text: decoded, without characters that hide or reorder
    :param lexer: one of the values of ``LEXERS``
    """
    html = [""]
    # get_tokens would turn returns into line breaks and drop empty lines at both ends.
    for _, kind, piece in get_lexer_by_name(lexer).get_tokens_unprocessed(text):
        first, *others = piece.split("\n")
        html[-1] += _span(kind, first)
        html += [_span(kind, other) for other in others]
    return html


@cache
def _span(kind: _TokenType, text: str) -> str:
    shown = escape(text)
    name = next((name for parent, name in HIGHLIGHT_CLASSES if kind in parent), "")
    return f'<span class="{name}">{shown}</span>' if name and shown else shown


# Formulas: ``$…$`` and ``\(…\)`` within a line, ``$$…$$`` and ``\[…\]`` as blocks. Sums of money stay text: a ``$`` opens no
# formula before a space, and closes none after a space or before a digit (pandoc's rule).

INLINE, BLOCK = "math_inline", "math_block"
# Characters and lines of one formula, so that a text full of openings is parsed in bounded time.
LONGEST = 4_000
MOST_LINES = 100
# The TeX parser recurses at each opening and may take 1.6 kB of its thread's stack each time.
MOST_OPENINGS = 500
# Browsers lay out nested formulas ever more slowly.
MOST_LEVELS = 60
TAGS = {
    "math", "semantics", "annotation", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mfrac", "msqrt", "mroot", "msub", "msup",
    "msubsup", "munder", "mover", "munderover", "mmultiscripts", "mprescripts", "mtable", "mtr", "mtd", "mpadded", "menclose",
}  # fmt: skip
# No attribute that lays one text over another or moves it away.
ATTRIBUTES = {
    "math": {"display"}, "annotation": {"encoding"}, "mi": {"mathvariant"}, "mspace": {"width"},
    "mo": {"form", "lspace", "rspace", "stretchy", "symmetric", "minsize", "maxsize", "movablelimits"}, "mover": {"accent"},
    "munder": {"accentunder"}, "munderover": {"accent", "accentunder"}, "mtable": {"displaystyle", "scriptlevel"},
    "mrow": {"displaystyle", "scriptlevel"}, "menclose": {"notation"},
}  # fmt: skip
VALUES = {"mfrac": {"linethickness": {"0"}, "displaystyle": {"true", "false"}}}
# Classes of table cells in place of inline styles, which the content security policy forbids.
MATH_CLASSES = {
    "text-align: left": "math-left", "text-align: right": "math-right",
    "border-left: 0.05em solid currentcolor": "math-line-left", "border-right: 0.05em solid currentcolor": "math-line-right",
    "border-top: 0.05em solid currentcolor": "math-line-top",
}  # fmt: skip
_OPENS = re.compile(r"[\\{\[(^_]")
# Commands that would hide text, or make a long formula of a short one.
_STAYS_TEX = re.compile(r"(?<!\\)%|\\(?:\w*def|let|\w*command|\w*phantom|\w*ref)(?![A-Za-z])")
_STYLE = re.compile(r'\bstyle="([^"<>]*)"')
_TAG = re.compile(r"<(/?)m\w+[^<>]*?(/?)>")
_TEX = LatexToMathML(annotation=True, fancy_error=False)
_MATHML_CLEANER = nh3.Cleaner(
    tags=TAGS, attributes=ATTRIBUTES, tag_attribute_values=VALUES, allowed_classes={"mtd": set(MATH_CLASSES.values())}
)
_INLINE_DELIMITERS = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$"))
_BLOCK_DELIMITERS = {"$$": "$$", "\\[": "\\]"}


def draw_formula(tex: str, *, is_block: bool) -> str | None:
    """Return a formula as MathML Core with its TeX as annotation, or ``None`` if it cannot or should not be drawn."""
    if len(tex) > LONGEST or len(_OPENS.findall(tex)) > MOST_OPENINGS or _STAYS_TEX.search(tex):
        return None
    try:
        drawn = _TEX.convert_with_local_state(tex, displaystyle=is_block)
    except LatexError:
        return None

    def style_as_class(style: re.Match[str]) -> str:
        names = (MATH_CLASSES.get(declaration.strip()) for declaration in style[1].split(";"))
        return f'class="{" ".join(filter(None, names))}"'

    level = 0
    for tag in _TAG.finditer(drawn):
        level += 0 if tag[2] else -1 if tag[1] else 1
        if level > MOST_LEVELS:
            return None
    return _MATHML_CLEANER.clean(_STYLE.sub(style_as_class, drawn))


def _parse_inline_formula(state: StateInline, silent: bool) -> bool:
    for opening, closing in _INLINE_DELIMITERS:
        if not state.src.startswith(opening, state.pos):
            continue
        begin = state.pos + len(opening)
        end = state.src.find(closing, begin, min(state.posMax, begin + LONGEST))
        if end < 0:
            continue
        formula = state.src[begin:end]
        if not formula.strip() or "\n\n" in formula:
            continue
        is_money = formula[0].isspace() or formula[-1].isspace() or state.src[end + 1 : end + 2].isdigit()
        if closing == "$" and (is_money or "\n" in formula):
            continue
        if not silent:
            token = state.push(INLINE, "code", 0)
            token.content, token.markup = formula, opening
        state.pos = end + len(closing)
        return True
    return False


def _parse_block_formula(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    opening = state.src[state.bMarks[first] + state.tShift[first] :][:2]
    closing = _BLOCK_DELIMITERS.get(opening)
    if closing is None or state.is_code_block(first):
        return False
    for line in range(first, min(last, first + MOST_LINES)):
        text = _line(state, line)
        if line == first:
            text = text.removeprefix(opening)
        elif not text or state.sCount[line] < state.blkIndent:
            return False
        if closing in text:
            break
    else:
        return False
    if not text.endswith(closing) or (line == first and not text.removesuffix(closing).strip()):
        return False

    if not silent:
        lines = "\n".join(_line(state, number) for number in range(first, line + 1))
        token = state.push(BLOCK, "figure", 0)
        token.content = lines[2:-2].strip("\n")
        token.map, token.markup = [first, line + 1], opening
        state.line = line + 1
    return True


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]].rstrip()


# Markdown. Two walls stand against hostile text: the parser allows no HTML, and nh3 cleans what it made.

# Characters. Parsing a longer text takes seconds, so it is shown folded and as it is.
MARKDOWN_LIMIT = 40_000
# An answer that is read on more than a screen has an outline.
OUTLINED_FROM, LEAST_HEADINGS = 2_500, 3
_HEADING = re.compile(r"<h(?P<level>[3-6])>(?P<text>.*?)</h(?P=level)>", re.DOTALL)  # as nh3 writes it
# Levels of quotes and lists. markdown-it drops deeper ones, so such a text is shown as it is.
NESTING_LIMIT = 24
# Characters of all drawn formulas of one text, ten times the text's own limit; later formulas stay TeX.
DRAWN_LIMIT = 400_000
PIECE = 100_000  # characters of each further piece of a long text

_TAGS = {
    *("p", "br", "hr", "h3", "h4", "h5", "h6", "blockquote", "ol", "ul", "li", "figure", "figcaption", "pre", "code"),
    *("a", "strong", "em", "s", "del", "table", "thead", "tbody", "tr", "th", "td", "span", "div"),
}
_ALIGNMENTS = {"align": {"left", "center", "right"}}
_NAMES = {
    "span": {"class": {name for _, name in HIGHLIGHT_CLASSES}},
    "div": {"class": {"table-scroll"}},
    "figure": {"class": {"math"}},
    "code": {"class": {"math"}},
    "li": {"class": {"task"}},
}
"""Elements that may have a class, and which."""
# A language as a page may ask for it, to draw a block or to name a file. Others are only shown.
_LANGUAGE = re.compile(r"[a-z0-9+#._-]{1,30}")
# An item of a list that begins with "[ ]" or "[x]" is a task. A sign says which, so it is read aloud, copied and printed.
_TASK = re.compile(r"\[([ xX])\](?=[ \n])")
UNDONE, DONE = "\N{BALLOT BOX}", "\N{BALLOT BOX WITH CHECK}"
# What code blocks are where nothing draws them. Pages draw those of Mermaid themselves (static/js/blocks/diagrams.js).
_LABELS = {
    **dict.fromkeys(("mermaid", "dot", "graphviz", "plantuml", "puml", "d2"), gettext_lazy("a diagram, as its text")),
    **dict.fromkeys(("math", "latex", "tex", "katex"), gettext_lazy("a formula, as TeX")),
}
_CLEANER = nh3.Cleaner(
    tags=_TAGS | TAGS,
    clean_content_tags={"script", "style"},
    attributes={"a": {"href", "title"}, "ol": {"start"}, "figure": {"data-language"}} | ATTRIBUTES,
    tag_attribute_values={"th": _ALIGNMENTS, "td": _ALIGNMENTS} | _NAMES | VALUES,
    allowed_classes={"mtd": set(MATH_CLASSES.values())},
    set_tag_attribute_values={"a": {"target": "_blank"}},
    url_schemes={"http", "https", "mailto"},
    link_rel="noopener nofollow",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class LongText:
    part_id: str
    field: str
    text: str  # ready to be shown
    end: int  # stored characters up to the end of this piece
    length: int

    @property
    def rest(self) -> int:
        return self.length - self.end

    @property
    def size(self) -> str:
        return format_characters(self.length)

    @property
    def next_size(self) -> str:
        return format_characters(min(self.rest, PIECE))


def show_invisible(text: str) -> str:
    """Replace each character that hides or reorders by a mark such as ``⟨U+202E⟩``. The result can always be encoded as UTF-8."""
    return "".join(f"⟨{run.text}⟩" if run.is_mark else run.text for run in visible_runs(text))


def shown_title(title: str) -> str:
    return show_invisible(title).strip() or gettext("Untitled session")


def render_markdown(text: str) -> SafeString:
    """Return Markdown as safe HTML. Raw HTML, images and link definitions stay visible as text."""
    return _render_markdown(text, get_language())


# By language too: the captions of diagrams and formulas are in it.
@lru_cache(maxsize=512)
def _render_markdown(text: str, _language: str | None) -> SafeString:
    shown = show_invisible(text)
    tokens = _MARKDOWN.parse(shown)
    if any(token.level >= NESTING_LIMIT - 1 for token in tokens):
        return mark_safe(_figure(shown))  # noqa: S308 - escaped
    html = _MARKDOWN.renderer.render(tokens, _MARKDOWN.options, {})
    return mark_safe(_CLEANER.clean(html))  # noqa: S308 - nh3 keeps an allow-list of tags and attributes


class Heading(NamedTuple):
    id: str
    text: str
    depth: int  # below the highest heading of the text, from 0


def outline(html: SafeString, prefix: str) -> tuple[SafeString, tuple[Heading, ...]]:
    """Return rendered Markdown with ids at its headings, and these; as it is and none if it is short or has few.

    :param prefix: makes the ids unique on the page
    """
    found = list(_HEADING.finditer(html)) if len(html) >= OUTLINED_FROM else []
    if len(found) < LEAST_HEADINGS:
        return html, ()
    ids = {match.start(): f"{prefix}-h{number}" for number, match in enumerate(found, 1)}
    highest = min(match["level"] for match in found)
    headings = tuple(
        Heading(ids[one.start()], unescape(strip_tags(one["text"])).strip(), int(one["level"]) - int(highest))
        for one in found
    )
    numbered = _HEADING.sub(
        lambda one: f'<h{one["level"]} id="{ids[one.start()]}">{one["text"]}</h{one["level"]}>', html
    )
    return mark_safe(numbered), headings  # noqa: S308 - the ids are ours, the rest was safe


def _render_fence(_: Any, tokens: Sequence[MarkdownToken], index: int, *_rest: Any) -> str:
    text, info = tokens[index].content, tokens[index].info.strip()
    language = info.partition(" ")[0].lower()
    label = _LABELS.get(language, "")
    # Show the whole info string, so that nothing written vanishes.
    caption = f"{info}: {label}" if label else info
    return _figure(text, caption=caption, language=language, html=highlight_code(text, language))


def _render_formula(_: Any, tokens: Sequence[MarkdownToken], index: int, __: Any, env: dict[str, Any]) -> str:
    tex, is_block = tokens[index].content, tokens[index].type == BLOCK
    mathml = draw_formula(tex, is_block=is_block) if env.get("drawn", 0) < DRAWN_LIMIT else None
    env["drawn"] = env.get("drawn", 0) + len(mathml or "")
    if mathml is None:
        return _figure(tex, is_math=True) if is_block else f'<code class="math">{escape(tex)}</code>'
    return f'<figure class="math">{mathml}</figure>\n' if is_block else mathml


def _figure(text: str, *, caption: str = "", language: str = "", html: str | None = None, is_math: bool = False) -> str:
    title = f"<figcaption>{escape(caption)}</figcaption>" if caption else ""
    name = ' class="math"' if is_math else ""
    if _LANGUAGE.fullmatch(language):
        name = f' data-language="{language}"'
    return f"<figure{name}>{title}<pre><code>{escape(text) if html is None else html}</code></pre></figure>\n"


def _adapt_tokens(state: Any) -> None:
    for before, token in zip(state.tokens[:2] + state.tokens, state.tokens, strict=False):
        task = _TASK.match(token.content) if before.type == "list_item_open" and token.type == "inline" else None
        if task:
            before.attrSet("class", "task")
            token.children[0].content = (UNDONE if task[1] == " " else DONE) + token.children[0].content[3:]
        if token.tag in ("h1", "h2", "h3", "h4", "h5", "h6"):
            # The page's own headings are above these.
            token.tag = f"h{min(6, int(token.tag[1]) + 2)}"
        elif token.tag in ("th", "td") and token.attrs.get("style"):
            token.attrs["align"] = str(token.attrs.pop("style")).rpartition(":")[2]


_MARKDOWN = MarkdownIt("commonmark", {"html": False, "breaks": True, "maxNesting": NESTING_LIMIT})
_MARKDOWN.enable(["table", "strikethrough"]).disable(["image", "reference"])
_MARKDOWN.validateLink = lambda url: re.match(r"https?://|mailto:", url, re.IGNORECASE) is not None  # type: ignore[method-assign]
_MARKDOWN.add_render_rule("fence", _render_fence)
_MARKDOWN.add_render_rule("code_block", _render_fence)
_MARKDOWN.add_render_rule(INLINE, _render_formula)
_MARKDOWN.add_render_rule(BLOCK, _render_formula)
# A table that is wider than its message scrolls in a box of its own, and stays a table.
_MARKDOWN.add_render_rule("table_open", lambda *_: '<div class="table-scroll"><table>\n')
_MARKDOWN.add_render_rule("table_close", lambda *_: "</table></div>\n")
_MARKDOWN.inline.ruler.before("escape", "math", _parse_inline_formula)
_MARKDOWN.block.ruler.before("fence", "math", _parse_block_formula, {"alt": ["paragraph", "blockquote", "list"]})
_MARKDOWN.core.ruler.push("mnesis", _adapt_tokens)
