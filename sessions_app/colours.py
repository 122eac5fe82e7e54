"""Code with colours: what a lexer says of a text, as spans of a few classes that are ours, and nothing else."""

from __future__ import annotations

from functools import cache

from django.utils.html import escape
from pygments.lexer import Lexer
from pygments.lexers import get_lexer_by_name
from pygments.token import Token, _TokenType

_KNOWN = {
    "bash": "sh shell zsh console shell-session",
    "c": "h",
    "cpp": "c++ cc hpp",
    "csharp": "c# cs",
    "css": "",
    "diff": "patch",
    "docker": "dockerfile",
    "go": "golang",
    "html": "",
    "ini": "",
    "java": "",
    "javascript": "js jsx mjs",
    "json": "jsonl jsonc",
    "kotlin": "kt",
    "lua": "",
    "make": "makefile",
    "markdown": "md",
    "perl": "pl",
    "php": "",
    "powershell": "ps1",
    "python": "py python3",
    "r": "",
    "ruby": "rb",
    "rust": "rs",
    "scala": "",
    "sql": "postgresql sqlite",
    "swift": "",
    "toml": "",
    "tsx": "",
    "typescript": "ts",
    "xml": "svg",
    "yaml": "yml",
}
LEXERS = {name: lexer for lexer, others in _KNOWN.items() for name in (lexer, *others.split())}
"""What a block of code may call its language, and the lexer of each. A list, so that no text picks any other."""
LONGEST_LINE = 1_000
"""Characters of a line; what is longer was written by no hand, and may keep a lexer busy for minutes."""
LONGEST_CODE = 20_000
"""Characters of a block in a message. A longer one is shown without colours: they take about a second for a million."""
CLASSES = (
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


def colour_code(text: str, language: str) -> str | None:
    """A block of code as HTML; ``None`` where nobody here knows its language, or it is too long to be looked at."""
    lexer = LEXERS.get(language.lower())
    if lexer is None or len(text) > LONGEST_CODE or any(len(line) > LONGEST_LINE for line in text.split("\n")):
        return None
    lines = colour_lines(text, lexer)
    return "\n".join(lines) if len(lines) == text.count("\n") + 1 else None


def colour_lines(text: str, lexer: str) -> list[str]:
    """The lines of a text as HTML, each whole by itself.

    :param text: as it is to be shown: nothing in it hides or reorders
    :param lexer: one of ``LEXERS``' values
    """
    html = [""]
    # Not get_tokens: it makes line breaks of returns, and drops empty lines at the ends.
    for _, kind, piece in _lexer(lexer).get_tokens_unprocessed(text):
        first, *others = piece.split("\n")
        html[-1] += _span(kind, first)
        html += [_span(kind, other) for other in others]
    return html


def _span(kind: _TokenType, text: str) -> str:
    shown = escape(text)
    name = _class_of(kind)
    return f'<span class="{name}">{shown}</span>' if name and shown else shown


@cache
def _class_of(kind: _TokenType) -> str:
    return next((name for parent, name in CLASSES if kind in parent), "")


@cache
def _lexer(alias: str) -> Lexer:
    return get_lexer_by_name(alias)
