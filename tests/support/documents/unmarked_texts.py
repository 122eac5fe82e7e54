"""Find texts that no translation reaches: ``python -m tests.support.documents.unmarked_texts templates/people static/js/blocks/code.js``.

A text of a template stands in ``translate`` or ``blocktranslate``, one of a script or module in ``gettext`` or its like.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[3]
EXPORTS = ("audit_app/transfer/transcript.", "audit_app/transfer/_entry.html")
"""Templates of files, which are in English for everyone."""
PAGE_MODULES = (
    *("sessions_app/pages", "sessions_app/templatetags", "sessions_app/llm/usage.py", "sessions_app/llm/keys.py"),
    *("sessions_app/llm/catalogue.py", "compaction_app/templatetags", "compaction_app/inspector"),
    *(
        "compaction_app/facts/views.py",
        "compaction_app/views.py",
        "compaction_app/search.py",
        "agents_app/templatetags",
    ),
    *("agents_app/maps/views.py", "agents_app/tools/pages.py", "agents_app/turns/pages.py", "files_app/views.py"),
    *("agents_app/turns/session_settings.py", "agents_app/turns/default_pages.py", "audit_app/templatetags"),
    *("audit_app/health.py", "audit_app/ledger.py", "audit_app/observe", "audit_app/evaluation/views.py"),
    *("audit_app/evaluation/charts.py", "mnesis_site/views.py", "mnesis_site/health.py", "mnesis_site/people"),
)
"""The modules whose texts reach a page."""
# The same in every language: names, units, commands and code.
NAMES = {
    "Mnesis",
    "API",
    "REST",
    "JSON",
    "JSONL",
    "JSON-RPC",
    "HTML",
    "SVG",
    "CSV",
    "PDF",
    "PNG",
    "JPEG",
    "WebP",
    "GIF",
    "MCP",
    "URL",
    "HTTP",
    "OpenAI",
    "Anthropic",
    "Google",
    "Gemini",
    "Claude",
    "ChatGPT",
    "LiteLLM",
    "litellm",
    "Markdown",
    "Mermaid",
    "Dockerfile",
    "Makefile",
    "Python",
    "SHA",
    "SHA-256",
    "BM25",
    "p50",
    "p90",
    "p95",
    "p99",
    "UTC",
    "USD",
    "ID",
    "sess",
    "OK",
    "md",
    "txt",
    "ms",
    "min",
    "kB",
    "MB",
    "GB",
    "KB",
    "px",
    "Ctrl",
    "Cmd",
    "Esc",
    "Enter",
    "Shift",
    "Alt",
    "Tab",
    "Home",
    "End",
}
TEXT_ATTRIBUTES = {
    "aria-label",
    "title",
    "placeholder",
    "alt",
    "label",
    "aria-description",
    "aria-valuetext",
    "data-confirm",
    "data-label",
}
SILENT_TAGS = {"script", "style", "code", "kbd", "pre", "samp"}

# Blocks that hold names of classes and modules.
_CODE_BLOCK = r"{% block \w*(?:class|module|modules|data|styles|coltype) %}.*?{% endblock %}"
_MARKED = re.compile(
    _CODE_BLOCK
    + r"|{#.*?#}|{% comment.*?{% endcomment %}|{% blocktranslate.*?{% endblocktranslate %}|{% verbatim.*?{% endverbatim %}",
    re.S,
)
_TAG = re.compile(r"{%(.*?)%}|{{(.*?)}}", re.S)
_LITERAL = re.compile(r"""(?P<before>[^"']*)(?P<quote>["'])(?P<text>.*?)(?P=quote)""", re.S)
_WORD = re.compile(r"[^\W\d_][^\W_]+(?:-[^\W_]+)*")
# A script's text has words and no sign of code, and begins like a sentence or label, or has several words.
_CODE_SIGNS = re.compile(
    r"[<>{}\[\]=#$_|*\\@~+]|/\w|\w[:(]\w|\w\(|\b[\w-]+\.[a-z]{2,4}\b|^[.:]\w|\w-\w.*\w-\w|^[A-Z_]+$|^Arrow[A-Z]\w+$|^\w+:$"
)
_READS = re.compile(r"[A-Z][\w\u2019-]{2,}|[A-Z]\w* |.*\w[ ,:] ?.*[^\W\d_]|.*[….?!:]$|.*\w, $|.* · ", re.S)
_VALUE = "${"
_PLACE = "\ufffc"  # of a value in a text that is glued together
# What takes a text to show: there a single word is one, too.
_SHOWN = re.compile(
    r"(?:textContent|innerText|title|placeholder|alt|label)\s*[:=]\s*$|Attribute\(\"(?:aria-label|title)\",\s*$"
)
# What takes no text: selectors, names of classes, keys, types and headers.
_SILENT = re.compile(
    r"(?:querySelector(?:All)?|closest|matches|[gs]etAttribute|getResponseHeader|getElementById|createElement|Listener|Event|"
    r"add|remove|toggle|find|DateTimeFormat|getContext|getEntriesByType|replace|supports|matchMedia|trigger|call)\(\s*$"
    r"|(?<!textContent\.)\b(?:startsWith|endsWith|includes|indexOf)\(\s*$|(?<!textContent )[!=]==\s*$|\bcase\s*$|\bfrom\s*$"
    r"|\b(?:rel|rows|facts|src|font|fontFamily|sandbox|rootMargin|take|FONT|BLOCKS|DROPPED|LINKS|NEAR)\s*[:=]\s*$"
    r"|\bclassName\s*[:=][^;,]*$|\"rel\",\s*$"
)
_KEY = re.compile(r"\s*(?::|in\b)")
_TOKEN = re.compile(r"//[^\n]*|/\*.*?\*/|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'|[`()\[\]{}/]", re.S)
_TEMPLATE = re.compile(r"((?:[^`$\\]|\\.|\$(?!\{))*)(`|\$\{)", re.S)
_REGEX = re.compile(r"/(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\[\n])+/")
_BEFORE_REGEX = re.compile(r"(?:^|[(,=:\[!&|?{};>]|\breturn)\s*$")


class Unmarked(NamedTuple):
    path: str
    line: int
    text: str


def says_something(text: str) -> bool:
    return any(word not in NAMES for word in _WORD.findall(text))


def unmarked_of_template(path: Path) -> Iterator[Unmarked]:
    """Yield the texts of this template that are not marked for translation."""
    name = str(path.relative_to(ROOT))
    source = _MARKED.sub(_blank, path.read_text())
    for tag in _TAG.finditer(source):
        for text in _literals_of(tag[1] or tag[2]):
            yield Unmarked(name, source.count("\n", 0, tag.start()) + 1, text)
    parser = _Texts()
    parser.feed(_TAG.sub(_blank, source))
    parser.close()
    yield from (Unmarked(name, line, text) for line, text in parser.found)


def _blank(found: re.Match[str]) -> str:
    return "\n" * found[0].count("\n")


def _literals_of(tag: str) -> Iterator[str]:
    """Yield the texts within a template's tag: ``with label="Copy"``, ``|default:"none"``, ``|pluralize``."""
    words = tag.split()
    if not words or words[0] in {"translate", "url", "static", "load", "extends", "cache", "now"}:
        return
    if "|pluralize" in tag:
        yield "|pluralize"
    for literal in _LITERAL.finditer(tag):
        before, text = literal["before"].rstrip(), literal["text"]
        if before.endswith(
            ("_(", "==", "!=", "date:", "time:", " in", "stringformat:", "urlize", "cut:", "split:")
        ) or before.split()[-1:] == ["include"]:
            continue
        is_filter = before.endswith(("default:", "yesno:", "default_if_none:", "add:"))
        if (
            says_something(text)
            and not text.startswith("?")
            and (is_filter or text[:1].isupper() or " " in text.strip())
        ):
            yield text


class _Texts(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[int, str]] = []
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._silent += tag in SILENT_TAGS
        for name, value in attrs:
            if name in TEXT_ATTRIBUTES and value and says_something(value):
                self.found.append((self.getpos()[0], f'{name}="{value}"'))

    def handle_endtag(self, tag: str) -> None:
        self._silent -= tag in SILENT_TAGS

    def handle_data(self, data: str) -> None:
        if not self._silent and says_something(data):
            line = self.getpos()[0] + len(data[: len(data) - len(data.lstrip())].splitlines()[1:])
            self.found.append((line, " ".join(data.split())))


def unmarked_of_script(path: Path) -> Iterator[Unmarked]:
    """Yield what reads like a text in this script and is not given to ``gettext`` or ``ngettext`` as a literal."""
    source = path.read_text()
    for literal in _literals_of_script(source):
        before, after = source[: literal.start].rsplit("\n\n", 1)[-1], source[literal.end :]
        if literal.call in {"gettext", "ngettext"}:
            marked = source[literal.start] != "`" and after.lstrip()[:1] in {",", ")"}
        else:
            marked = not _is_shown(literal.text, before, after)
        if not marked:
            line = source.count("\n", 0, literal.start) + 1
            yield Unmarked(str(path.relative_to(ROOT)), line, literal.text.replace(_PLACE, "${…}"))


def _is_shown(text: str, before: str, after: str) -> bool:
    if not says_something(text) or _CODE_SIGNS.search(text):
        return False
    if _SHOWN.search(before):
        return True
    is_key = (_KEY.match(after) and re.search(r"(?:[{,(]|&&)\s*$", before)) or after.startswith(".split(")
    return not is_key and not _SILENT.search(before) and bool(_READS.match(text))


class _Literal(NamedTuple):
    start: int
    end: int
    text: str
    call: str  # the function that it is given to


def _literals_of_script(source: str) -> Iterator[_Literal]:
    """Yield the strings and templates of a script, those within the values of a template as well."""
    calls = [""]  # what is called by each open bracket
    templates: list[tuple[int, list[str]]] = []  # the open ones: where they begin, and their text between values so far
    at = 0
    while token := _TOKEN.search(source, at):
        at, sign = token.end(), token[0]
        if sign[0] in "\"'":
            yield _Literal(token.start(), at, sign[1:-1], calls[-1])
        elif sign == "`" or (sign == "}" and calls[-1] == _VALUE):
            if sign == "`":
                templates.append((token.start(), []))
            else:
                calls.pop()
            at, is_over = _take_piece(source, at, templates[-1][1])
            if is_over:
                start, pieces = templates.pop()
                yield _Literal(start, at, _PLACE.join(pieces), calls[-1])
            else:
                calls.append(_VALUE)
        else:
            at = _take_sign(source, at, sign, calls)


def _take_piece(source: str, at: int, pieces: list[str]) -> tuple[int, bool]:
    """Take a template's text up to its next value or its end, and return the place behind and whether it is the end."""
    piece = _TEMPLATE.match(source, at)
    assert piece, f"a template without an end: {source[at:][:40]}"
    pieces.append(piece[1])
    return piece.end(), piece[2] == "`"


def _take_sign(source: str, at: int, sign: str, calls: list[str]) -> int:
    before = source[max(0, at - 40) : at - 1]
    if sign == "(":
        calls.append("".join(re.findall(r"(?<!function )\b\w+$", before)))
    elif sign in "[{":
        calls.append(sign)
    elif sign in ")]}":
        calls.pop()
    elif sign == "/" and _BEFORE_REGEX.search(before) and (regex := _REGEX.match(source, at - 1)):
        return regex.end()
    return at


# What marks a text, under its own name or as ``_``.
_MARKS = {"_", "gettext", "gettext_lazy", "gettext_noop", "ngettext", "ngettext_lazy", "pgettext", "pgettext_lazy"}
# What takes texts for the log, for programs and for the record, never for a page.
_UNSEEN = {
    *(
        "debug",
        "info",
        "warning",
        "error",
        "exception",
        "critical",
    ),  # of a logger: those of Django's messages have a request
    *("_note", "note", "compile", "fetch", "execute", "set_cookie", "TypeVar", "getattr", "hasattr"),
}
# Words that the demo model answers to, and code.
_AS_THEY_ARE = {"Remember: the harbour code is Tern-4471.", 'Promise.resolve().then(() => $load("'}
_SQL = re.compile(r"\s*(?:SELECT|WITH|UPDATE|INSERT|DELETE|PRAGMA|FROM|WHERE|ORDER BY|AND|OR|LIMIT)\b")


def unmarked_of_module(path: Path) -> Iterator[Unmarked]:
    """Yield what reads like a text for people in a module that makes pages, and is not given to ``gettext`` or its like."""
    tree = ast.parse(path.read_text())
    passed_over = {id(inner) for node in ast.walk(tree) for part in _not_shown(node) for inner in ast.walk(part)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in passed_over:
            text = node.value.strip()
            reads = text[:1].isupper() and (" " in text or text.endswith((".", "…", "?", ":")))
            if reads and says_something(text) and not _SQL.match(text) and text not in _AS_THEY_ARE:
                yield Unmarked(str(path.relative_to(ROOT)), node.lineno, text)


def _not_shown(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the parts of a node whose texts reach no page, or are marked."""
    if isinstance(node, ast.Raise):
        yield node
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):  # docstrings, also of attributes
        yield node
    if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
        yield from node.decorator_list
    if isinstance(node, ast.Call):
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        is_of_messages = isinstance(node.func, ast.Attribute) and getattr(node.func.value, "id", "") == "messages"
        if name in _MARKS or (name in _UNSEEN and not is_of_messages):
            yield node


def unmarked(*places: Path) -> list[Unmarked]:
    """Return the unmarked texts of these files, and of all templates and scripts below these folders."""
    files = sorted({path for place in places for path in (place, *place.rglob("*")) if path.is_file()})
    templates = [item for path in files if path.suffix in {".html", ".txt"} for item in unmarked_of_template(path)]
    scripts = [item for path in files if path.suffix == ".js" for item in unmarked_of_script(path)]
    return templates + scripts + [item for path in files if path.suffix == ".py" for item in unmarked_of_module(path)]


if __name__ == "__main__":
    for path, line, text in unmarked(*(Path(name).resolve() for name in sys.argv[1:])):
        print(f"{path}:{line}: {text}")
