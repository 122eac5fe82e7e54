"""Find texts that no translation reaches: ``python -m tests.support.unmarked_texts templates/people static/js/code.js``.

A text of a template stands in ``translate`` or ``blocktranslate``, one of a script in ``gettext`` or ``ngettext``.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).parents[2]
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
    "Claude",
    "ChatGPT",
    "LiteLLM",
    "litellm",
    "Markdown",
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
_CODE_BLOCK = r"{% block \w*(?:class|module|modules|data|styles) %}.*?{% endblock %}"
_MARKED = re.compile(
    _CODE_BLOCK
    + r"|{#.*?#}|{% comment.*?{% endcomment %}|{% blocktranslate.*?{% endblocktranslate %}|{% verbatim.*?{% endverbatim %}",
    re.S,
)
_TAG = re.compile(r"{%(.*?)%}|{{(.*?)}}", re.S)
_LITERAL = re.compile(r"""(?P<before>[^"']*)(?P<quote>["'])(?P<text>.*?)(?P=quote)""", re.S)
_WORD = re.compile(r"[^\W\d_][^\W_]+(?:-[^\W_]+)*")
# A script's text: a sentence or label begins with a capital, and has a space or ends like a sentence.
_SCRIPT_TEXT = re.compile(r"""(?P<before>.{0,60})(?P<quote>["'`])(?P<text>[A-Z][^"'`\n]*)(?P=quote)""")
_CALL = re.compile(r"(?:gettext|_)\(\s*$|ngettext\((?:[^()]*,)?\s*$")


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
        if says_something(text) and (is_filter or text[:1].isupper() or " " in text.strip()):
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
    """Yield what reads like a text in this script, and is not given to ``gettext`` or ``ngettext``."""
    for number, line in enumerate(path.read_text().splitlines(), start=1):
        if line.lstrip().startswith("//"):
            continue
        for found in _SCRIPT_TEXT.finditer(line):
            text = found["text"]
            reads = " " in text or text.endswith(("…", ".", "?", ":")) or re.fullmatch("[A-Z][a-z]{3,}", text)
            if reads and says_something(text) and not _CALL.search(found["before"]):
                yield Unmarked(str(path.relative_to(ROOT)), number, text)


def unmarked(*places: Path) -> list[Unmarked]:
    """Return the unmarked texts of these files, and of all templates and scripts below these folders."""
    files = sorted({path for place in places for path in (place, *place.rglob("*")) if path.is_file()})
    templates = [item for path in files if path.suffix in {".html", ".txt"} for item in unmarked_of_template(path)]
    return templates + [item for path in files if path.suffix == ".js" for item in unmarked_of_script(path)]


if __name__ == "__main__":
    for path, line, text in unmarked(*(Path(name).resolve() for name in sys.argv[1:])):
        print(f"{path}:{line}: {text}")
