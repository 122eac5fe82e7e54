"""HTML: its title, outline, and how many links, forms, tables and scripts. Markdown: its outline, and how many words, links
and blocks of code. XML: its elements by path, with attributes, counts and examples; entities are refused, and nothing external
is read.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import dataclass, field
from html.parser import HTMLParser
from typing import Any
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler, feature_external_ges

from defusedxml import sax
from defusedxml.common import DefusedXmlException

from mnesis_core.errors import fill, gettext_noop
from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown

TEXT_CHARACTERS = 300

MOST_PAGE_CHARACTERS = 33_554_432
# Characters of one tag or comment: the parser starts over with it for every piece, and keeps it in memory.
MOST_UNFINISHED = 524_288
MOST_PAGE_HEADINGS = 40
_COUNTED = {
    "a": "link",
    "img": "image",
    "form": "form",
    "table": "table",
    "script": "script",
    "iframe": "frame",
    "video": "video",
    "input": "input",
}
_HEADINGS = ("h1", "h2", "h3", "h4", "h5", "h6")
_SILENT = ("script", "style", "noscript", "template", "head")

MOST_HEADINGS = 60
MOST_FRONT = 30
MOST_LINES = 5_000_000
_HEADING = re.compile(r" {0,3}(#{1,6})[ \t]+(.*)")
_UNDERLINE = re.compile(r" {0,3}(=+|-+)\s*")
_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})\s*([^\s`{]*)")
_LINK = re.compile(r"\]\([^()\[\]\s]")
_IMAGE = re.compile(r"!\[")
_KEY = re.compile(r"[A-Za-z_][\w-]*[ \t]*[:=]")

DEEPEST_PATH = 8  # Deeper elements are counted, but not by path.
MOST_PATHS = 2_000
MOST_ELEMENTS = 4_000_000
ENOUGH_ELEMENTS = 100  # With as many, what precedes a syntax error is still described.
MOST_ATTRIBUTES = 12
TOLD_PATHS = 40
EXAMPLE_CHARACTERS = 60
_PIECE_BYTES = 1_048_576


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.title = ""
        self.description = ""
        self.language = ""
        self.counts: Counter[str] = Counter()
        self.headings: list[tuple[int, str]] = []
        self.targets: dict[str, None] = {}
        self.forms: list[str] = []
        self.tags = 0
        self.words = 0
        self.text = ""
        self._within = ""
        self._silent = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags += 1
        if tag in _COUNTED:
            self.counts[tag] += 1
        if tag in _HEADINGS and len(self.headings) < MOST_PAGE_HEADINGS:
            self.headings.append((int(tag[1]), ""))
            self._within = tag
        elif tag == "title":
            self._within = tag
        self._silent = self._silent or (tag if tag in _SILENT else "")
        attributes = {name: value or "" for name, value in attrs[:50]}
        if tag == "html":
            self.language = attributes.get("lang", "")
        elif tag == "meta" and attributes.get("name", "").lower() == "description":
            self.description = attributes.get("content", "")
        elif tag == "form" and len(self.forms) < 50:
            self.forms.append(
                f"{attributes.get('method', 'get').upper()[:10]} {attributes.get('action', '')[:200]}".strip()
            )
        elif tag == "a" and attributes.get("href", "").startswith(("http:", "https:")) and len(self.targets) < 2_000:
            self.targets[attributes["href"].split("/", 3)[2][:200]] = None

    def handle_endtag(self, tag: str) -> None:
        if tag == self._within:
            self._within = ""
        if tag == self._silent or (self._silent == "head" and tag == "body"):
            self._silent = ""

    def handle_data(self, data: str) -> None:
        if self._within == "title":
            self.title = (self.title + data[:TEXT_CHARACTERS])[:TEXT_CHARACTERS]
        elif self._within:
            level, text = self.headings[-1]
            self.headings[-1] = (level, (text + data[:TEXT_CHARACTERS])[:TEXT_CHARACTERS])
        if not self._silent:
            self.words += len(data.split())
            if len(self.text) < TEXT_CHARACTERS:
                self.text += " " + shown(data, characters=TEXT_CHARACTERS)


def explore_html(source: Source) -> Findings:
    page = _Page()
    characters, covered = 0, "all of it"
    # The parser is not closed: what is open at the end is no content, and looking for its end may take very long.
    for piece in source.pieces():
        characters += len(piece)
        page.feed(piece)
        if characters >= MOST_PAGE_CHARACTERS or len(page.rawdata) > MOST_UNFINISHED:
            covered = f"the first {characters:,} characters"
            break
    if not page.tags:
        raise Unreadable(gettext_noop("it has no HTML tag"))
    counts = [counted(page.counts[tag], name) for tag, name in _COUNTED.items() if page.counts[tag]]
    language = f", language {shown(page.language, characters=20)}" if page.language else ""
    lines = [
        f"Title: {shown(page.title, characters=200) or 'none'}{language}",
        f"{counted(page.words, 'word')}; {', '.join(counts) or 'no links'}",
    ]
    if page.description:
        lines.append(f"Description: {shown(page.description, characters=200)}")
    if headings := [f"{'  ' * (level - 1)}{shown(text)}" for level, text in page.headings if text.strip()]:
        lines += ["Headings:", *headings]
    if page.forms:
        lines.append(f"Forms: {listed(page.forms, most=8)}")
    if page.targets:
        lines.append(f"Links to {listed(page.targets, most=12)}")
    lines.append(f"Text: {shown(page.text, characters=TEXT_CHARACTERS)}")
    return Findings(lines=lines, covered=covered)


@dataclass(slots=True)
class _Markdown:
    words: int = 0
    links: int = 0
    images: int = 0
    table_rows: int = 0
    headings: list[tuple[int, str]] = field(default_factory=list)
    more_headings: int = 0
    languages: Counter[str] = field(default_factory=Counter)
    front: list[str] = field(default_factory=list)
    first_text: str = ""
    fence: str = ""
    in_front: str = ""
    above: str = ""
    lines: int = 0

    def take(self, line: str) -> None:
        self.lines += 1
        if self.lines == 1 and line.strip() in ("---", "+++"):
            self.in_front = line.strip()
        elif self.in_front:
            if line.strip() == self.in_front:
                self.in_front = ""
            elif _KEY.match(line) and len(self.front) < MOST_FRONT:
                self.front.append(shown(line))
        elif (fence := _FENCE.match(line)) is not None:
            self._take_fence(line, *fence.groups())
        elif not self.fence:
            self.words += len(line.split())
            self.links += len(_LINK.findall(line))
            self.images += len(_IMAGE.findall(line))
            self.table_rows += line.startswith("|")
            if (heading := _HEADING.match(line)) is not None:
                self._take_heading(len(heading.group(1)), heading.group(2).strip().rstrip("#"))
                line = ""
            elif self.above and (underline := _UNDERLINE.fullmatch(line)) is not None:
                self._take_heading(1 if underline.group(1)[0] == "=" else 2, self.above)
                line = ""
            elif line.strip() and len(self.first_text) < TEXT_CHARACTERS:
                self.first_text += " " + line.strip()[:TEXT_CHARACTERS]
            self.above = line.strip()[:TEXT_CHARACTERS] if not line.startswith(("|", "-", "*", ">")) else ""

    def _take_fence(self, line: str, marks: str, language: str) -> None:
        if not self.fence:
            self.fence = marks
            if language in self.languages or len(self.languages) < 100:
                self.languages[language[:40]] += 1
        elif marks.startswith(self.fence) and line.strip() == marks:
            self.fence = ""
        self.above = ""

    def _take_heading(self, level: int, title: str) -> None:
        if len(self.headings) < MOST_HEADINGS:
            self.headings.append((level, title[:TEXT_CHARACTERS]))
        else:
            self.more_headings += 1


def explore_markdown(source: Source) -> Findings:
    read = _Markdown()
    covered = source.feed(read.take, most=MOST_LINES)
    if not read.lines:
        raise Unreadable(gettext_noop("it is empty"))
    counts = (
        counted(read.words, "word"),
        counted(len(read.headings) + read.more_headings, "heading"),
        counted(read.links - read.images if read.links > read.images else read.links, "link"),
        counted(read.images, "image"),
        counted(read.languages.total(), "block of code", "blocks of code"),
        counted(read.table_rows, "table row"),
    )
    lines = [", ".join(count for count in counts if not count.startswith("0 ")) or "Nothing but empty lines"]
    if read.front:
        lines.append(f"Front matter: {listed(read.front)}")
    if languages := [f"{language} ×{count:,}" for language, count in read.languages.items() if language]:
        lines.append(f"Code: {listed(languages)}")
    if read.fence:
        lines.append("A block of code is not closed")
    lines.append(f"Begins: {shown(read.first_text, characters=TEXT_CHARACTERS)}")
    lines += [f"{'#' * level} {shown(title)}" for level, title in read.headings]
    if read.more_headings:
        lines.append(f"{read.more_headings:,} more headings")
    return Findings(lines=lines, covered=covered)


@dataclass(slots=True)
class _XmlPath:
    count: int = 0
    attributes: dict[str, str] = field(default_factory=dict)  # Names, with the first value of each.
    text: str = ""  # The first that one of them held.


class _Elements(ContentHandler):
    def __init__(self) -> None:
        super().__init__()
        self.paths: dict[str, _XmlPath] = {}
        self.namespaces: dict[str, None] = {}
        self.elements = 0
        self.deepest = 0
        self.unnamed = 0
        self._open: list[str] = []
        self._hidden = 0
        self._text: list[str] = []

    def startElement(self, name: str, attrs: Any) -> None:
        self.elements += 1
        self._text = []
        if self._hidden or len(self._open) == DEEPEST_PATH:
            self._hidden += 1
            self.deepest = max(self.deepest, DEEPEST_PATH + self._hidden)
            return
        where = (self._open[-1] + "/" if self._open else "") + name[:EXAMPLE_CHARACTERS]
        self._open.append(where)
        self.deepest = max(self.deepest, len(self._open))
        path = self.paths.get(where)
        if path is None:
            if len(self.paths) >= MOST_PATHS:
                self.unnamed += 1
                return
            path = self.paths[where] = _XmlPath()
        path.count += 1
        for attribute in attrs.getNames()[:MOST_ATTRIBUTES]:
            value = attrs.getValue(attribute)
            if attribute.startswith("xmlns"):
                if len(self.namespaces) < MOST_ATTRIBUTES:
                    self.namespaces[value[:200]] = None
            elif len(path.attributes) < MOST_ATTRIBUTES:
                path.attributes.setdefault(attribute[:EXAMPLE_CHARACTERS], value[:EXAMPLE_CHARACTERS])

    def characters(self, content: str) -> None:
        if not self._hidden and len(self._text) < 8:
            self._text.append(content[:EXAMPLE_CHARACTERS])

    def endElement(self, name: str) -> None:
        if self._hidden:
            self._hidden -= 1
            return
        path = self.paths.get(self._open.pop())
        if path is not None and not path.text:
            path.text = "".join(self._text).strip()
        self._text = []


def explore_xml(source: Source) -> Findings:
    elements = _Elements()
    broken = ""
    read = source.size
    try:
        read = _parse_xml(source, elements)
    except DefusedXmlException as error:
        raise Unreadable(
            fill(gettext_noop("it declares entities, which are not read (%(name)s)"), {"name": type(error).__name__})
        ) from None
    except SAXParseException as error:
        place = f"line {error.getLineNumber():,}"
        broken = f"{place}: {shown(error.getMessage())}"
        if elements.elements < ENOUGH_ELEMENTS:
            raise Unreadable(fill(gettext_noop("not valid XML: %(reason)s"), {"reason": broken})) from None
    if not elements.elements:
        raise Unreadable(gettext_noop("not valid XML: it has no element"))
    if broken:
        first = f"Not valid XML after {counted(elements.elements, 'element')}: {broken}"
        return Findings(lines=[first, *_xml_lines(elements)], covered=f"what is before the error in {place}")
    return Findings(lines=_xml_lines(elements), covered=source.covered_by(read))


def _parse_xml(source: Source, elements: _Elements) -> int:
    """Parse a file, or so much of it that ``MOST_ELEMENTS`` are found. Return how many bytes were read."""
    parser = sax.make_parser()
    # A document type names a file elsewhere; many harmless documents have one. It is not fetched.
    parser.forbid_external = False
    parser.setFeature(feature_external_ges, False)
    parser.setContentHandler(elements)
    read = 0
    with source.path.open("rb") as file:
        while data := file.read(_PIECE_BYTES):
            parser.feed(data)
            read += len(data)
            if elements.elements > MOST_ELEMENTS:
                return read
    parser.close()
    return read


def _xml_lines(elements: _Elements) -> list[str]:
    (root, first), *others = elements.paths.items()
    lines = [
        f"{counted(elements.elements, 'element')}, {elements.deepest:,} deep; the root is {_xml_path_line(root, first)}"
    ]
    if elements.namespaces:
        lines.append(f"Namespaces: {listed(elements.namespaces)}")
    lines += [_xml_path_line(path[len(root) + 1 :], told) for path, told in others[:TOLD_PATHS]]
    if len(others) > TOLD_PATHS:
        lines.append(f"{len(others) - TOLD_PATHS:,} more paths" + (", and others" if elements.unnamed else ""))
    return lines


def _xml_path_line(path: str, told: _XmlPath) -> str:
    times = f" ×{told.count:,}" if told.count > 1 else ""
    attributes = ", ".join(
        f'{shown(name, characters=30)}="{shown(value, characters=30)}"' for name, value in told.attributes.items()
    )
    text = shown(told.text, characters=EXAMPLE_CHARACTERS)
    name = shown(path if len(path) <= 120 else f"…{path[-119:]}", characters=120)
    listing = f" ({shown(attributes, characters=200)})" if attributes else ""
    return f"{name}{times}{listing}" + (f": {text}" if text else "")
