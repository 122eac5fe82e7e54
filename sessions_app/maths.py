r"""Formulas in Markdown: where they begin and end, so that nothing else is made of their ``_``, ``*`` and ``\``; and as MathML.

As people and models write them: ``$…$`` and ``\(…\)`` in a line, ``$$…$$`` and ``\[…\]`` by themselves. Sums of money stay
what they are: a ``$`` opens no formula before a space, and closes none after one or before a digit (pandoc's rule).
"""

from __future__ import annotations

import re

import nh3
from markdown_it import MarkdownIt
from markdown_it.rules_block import StateBlock
from markdown_it.rules_inline import StateInline
from math_core import LatexError, LatexToMathML

INLINE, BLOCK = "math_inline", "math_block"
"""The types of the tokens; ``content`` is the TeX without what encloses it."""
LONGEST = 4_000
MOST_LINES = 100
"""Characters and lines of a formula, so that a text full of openings ends in time."""
MOST_OPENINGS = 500
"""Of a formula that is drawn. The parser goes down one level, up to 1.6 kB of its thread's stack, at each of them at the most."""
MOST_LEVELS = 60
"""Of a drawn formula: browsers lay out nested ones ever more slowly."""
TAGS = {
    "math", "semantics", "annotation", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mfrac", "msqrt", "mroot", "msub", "msup",
    "msubsup", "munder", "mover", "munderover", "mmultiscripts", "mprescripts", "mtable", "mtr", "mtd", "mpadded", "menclose",
}  # fmt: skip
ATTRIBUTES = {
    "math": {"display"}, "annotation": {"encoding"}, "mi": {"mathvariant"}, "mspace": {"width"},
    "mo": {"form", "lspace", "rspace", "stretchy", "symmetric", "minsize", "maxsize", "movablelimits"}, "mover": {"accent"},
    "munder": {"accentunder"}, "munderover": {"accent", "accentunder"}, "mtable": {"displaystyle", "scriptlevel"},
    "mrow": {"displaystyle", "scriptlevel"}, "menclose": {"notation"},
}  # fmt: skip
"""Nothing that lays one text over another, or moves it away."""
VALUES = {"mfrac": {"linethickness": {"0"}, "displaystyle": {"true", "false"}}}
CLASSES = {
    "text-align: left": "math-left", "text-align: right": "math-right",
    "border-left: 0.05em solid currentcolor": "math-line-left", "border-right: 0.05em solid currentcolor": "math-line-right",
    "border-top: 0.05em solid currentcolor": "math-line-top",
}  # fmt: skip
"""Of the cells of a table, in place of the styles that say the same: the pages' policy allows none in an element."""
_OPENS = re.compile(r"[\\{\[(^_]")
_STAYS_TEX = re.compile(r"(?<!\\)%|\\(?:\w*def|let|\w*command|\w*phantom|\w*ref)(?![A-Za-z])")
"""What would hide something that was written, or make a long formula of a short one."""
_STYLE = re.compile(r'\bstyle="([^"<>]*)"')
_TAG = re.compile(r"<(/?)m\w+[^<>]*?(/?)>")
_TEX = LatexToMathML(annotation=True, fancy_error=False)
_CLEANER = nh3.Cleaner(
    tags=TAGS, attributes=ATTRIBUTES, tag_attribute_values=VALUES, allowed_classes={"mtd": set(CLASSES.values())}
)
_IN_LINE = (("$$", "$$"), ("\\[", "\\]"), ("\\(", "\\)"), ("$", "$"))
_BY_ITSELF = {"$$": "$$", "\\[": "\\]"}


def find_formulas(markdown: MarkdownIt) -> None:
    """Have a parser know formulas."""
    markdown.inline.ruler.before("escape", "math", _in_line)
    markdown.block.ruler.before("fence", "math", _by_itself, {"alt": ["paragraph", "blockquote", "list"]})


def draw_formula(tex: str, *, is_block: bool) -> str | None:
    """A formula as MathML Core of the elements above, with its TeX as annotation; None where it cannot be drawn, or should not."""
    if len(tex) > LONGEST or len(_OPENS.findall(tex)) > MOST_OPENINGS or _STAYS_TEX.search(tex):
        return None
    try:
        drawn = _TEX.convert_with_local_state(tex, displaystyle=is_block)
    except LatexError:
        return None
    return _CLEANER.clean(_STYLE.sub(_name_style, drawn)) if _levels(drawn) <= MOST_LEVELS else None


def _name_style(style: re.Match[str]) -> str:
    names = (CLASSES.get(declaration.strip()) for declaration in style[1].split(";"))
    return f'class="{" ".join(filter(None, names))}"'


def _levels(mathml: str) -> int:
    deepest = level = 0
    for tag in _TAG.finditer(mathml):
        level += 0 if tag[2] else -1 if tag[1] else 1
        deepest = max(deepest, level)
    return deepest


def _in_line(state: StateInline, silent: bool) -> bool:
    for opening, closing in _IN_LINE:
        if not state.src.startswith(opening, state.pos):
            continue
        begin = state.pos + len(opening)
        end = _end(state.src, begin, min(state.posMax, begin + LONGEST), closing)
        if end < 0:
            continue
        if not silent:
            token = state.push(INLINE, "code", 0)
            token.content, token.markup = state.src[begin:end], opening
        state.pos = end + len(closing)
        return True
    return False


def _end(text: str, begin: int, limit: int, closing: str) -> int:
    """Where the formula that begins here ends; -1 where it is none."""
    end = text.find(closing, begin, limit)
    if end < 0 or not text[begin:end].strip() or "\n\n" in text[begin:end]:
        return -1
    if closing != "$":
        return end
    is_money = text[begin].isspace() or text[end - 1].isspace() or text[end + 1 : end + 2].isdigit()
    return -1 if is_money or "\n" in text[begin:end] else end


def _by_itself(state: StateBlock, first: int, last: int, silent: bool) -> bool:
    if state.is_code_block(first):
        return False
    opening = state.src[state.bMarks[first] + state.tShift[first] :][:2]
    closing = _BY_ITSELF.get(opening)
    if closing is None:
        return False
    for line in range(first, min(last, first + MOST_LINES)):
        text = _line(state, line).removeprefix(opening) if line == first else _line(state, line)
        if line > first and (not text or state.sCount[line] < state.blkIndent):
            return False
        if text.endswith(closing):
            return bool(text.removesuffix(closing).strip() or line > first) and (silent or _push(state, first, line))
        if closing in text:
            return False
    return False


def _push(state: StateBlock, first: int, line: int) -> bool:
    lines = "\n".join(_line(state, number) for number in range(first, line + 1))
    token = state.push(BLOCK, "figure", 0)
    token.content = lines[2:-2].strip("\n")
    token.map, token.markup = [first, line + 1], lines[:2]
    state.line = line + 1
    return True


def _line(state: StateBlock, number: int) -> str:
    return state.src[state.bMarks[number] + state.tShift[number] : state.eMarks[number]].rstrip()
