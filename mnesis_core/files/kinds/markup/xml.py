"""XML: its elements by path, with attributes, counts and examples. Entities are refused, nothing external is read."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any
from xml.sax import SAXParseException
from xml.sax.handler import ContentHandler, feature_external_ges

from defusedxml import sax
from defusedxml.common import DefusedXmlException

from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown

# Deeper elements are counted, but not by path.
DEEPEST_PATH = 8
MOST_PATHS = 2_000
MOST_ELEMENTS = 4_000_000
# With as many, what precedes a syntax error is still described.
ENOUGH_ELEMENTS = 100
MOST_ATTRIBUTES = 12
TOLD_PATHS = 40
EXAMPLE_CHARACTERS = 60
_PIECE_BYTES = 1_048_576


@dataclass(slots=True)
class _Path:
    count: int = 0
    # Names, with the first value of each.
    attributes: dict[str, str] = field(default_factory=dict)
    # The first that one of them held.
    text: str = ""


class _Elements(ContentHandler):
    def __init__(self) -> None:
        super().__init__()
        self.paths: dict[str, _Path] = {}
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
        above = self._open[-1] + "/" if self._open else ""
        self._open.append(above + name[:EXAMPLE_CHARACTERS])
        self.deepest = max(self.deepest, len(self._open))
        self._count(self._open[-1], attrs)

    def _count(self, where: str, attributes: Any) -> None:
        path = self.paths.get(where)
        if path is None:
            if len(self.paths) >= MOST_PATHS:
                self.unnamed += 1
                return
            path = self.paths[where] = _Path()
        path.count += 1
        for name in attributes.getNames()[:MOST_ATTRIBUTES]:
            if name.startswith("xmlns"):
                if len(self.namespaces) < MOST_ATTRIBUTES:
                    self.namespaces[attributes.getValue(name)[:200]] = None
            elif len(path.attributes) < MOST_ATTRIBUTES:
                path.attributes.setdefault(name[:EXAMPLE_CHARACTERS], attributes.getValue(name)[:EXAMPLE_CHARACTERS])

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


def explore(source: Source) -> Findings:
    elements = _Elements()
    broken = ""
    try:
        read = _parse(source, elements)
    except DefusedXmlException as error:
        raise Unreadable(f"it declares entities, which are not read ({type(error).__name__})") from None
    except SAXParseException as error:
        broken = f"line {error.getLineNumber():,}: {shown(error.getMessage())}"
        if elements.elements < ENOUGH_ELEMENTS:
            raise Unreadable(f"not valid XML: {broken}") from None
        read = source.size
    if not elements.elements:
        raise Unreadable("not valid XML: it has no element")
    lines = ([f"Not valid XML after {counted(elements.elements, 'element')}: {broken}"] if broken else []) + _lines(
        elements
    )
    covered = "all of it" if read >= source.size else f"the first {read:,} of {source.size:,} bytes"
    return Findings(
        lines=lines, covered=f"what is before the error in line {broken.split(':')[0][5:]}" if broken else covered
    )


def _parse(source: Source, elements: _Elements) -> int:
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


def _lines(elements: _Elements) -> list[str]:
    root, first = next(iter(elements.paths.items()))
    lines = [
        f"{counted(elements.elements, 'element')}, {elements.deepest:,} deep; the root is {_path_line(root, first)}"
    ]
    if elements.namespaces:
        lines.append(f"Namespaces: {listed(elements.namespaces)}")
    others = list(elements.paths.items())[1:]
    # Outer elements first: what they hold is then understood.
    others.sort(key=lambda pair: pair[0].count("/") if len(others) > TOLD_PATHS else 0)
    prefix = len(root) + 1
    lines += [f"{_path_line(path[prefix:], told)}" for path, told in others[:TOLD_PATHS]]
    if len(others) > TOLD_PATHS:
        lines.append(f"{len(others) - TOLD_PATHS:,} more paths" + (", and others" if elements.unnamed else ""))
    return lines


def _path_line(path: str, told: _Path) -> str:
    """Return ``channel/item ×30 (id="1", link): its text``."""
    times = f" ×{told.count:,}" if told.count > 1 else ""
    attributes = ", ".join(
        f'{shown(name, characters=30)}="{shown(value, characters=30)}"' for name, value in told.attributes.items()
    )
    text = shown(told.text, characters=EXAMPLE_CHARACTERS)
    name = shown(path if len(path) <= 120 else f"…{path[-119:]}", characters=120)
    return (
        f"{name}{times}"
        + (f" ({shown(attributes, characters=200)})" if attributes else "")
        + (f": {text}" if text else "")
    )
