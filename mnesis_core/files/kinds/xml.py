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
        where = (self._open[-1] + "/" if self._open else "") + name[:EXAMPLE_CHARACTERS]
        self._open.append(where)
        self.deepest = max(self.deepest, len(self._open))
        if where not in self.paths and len(self.paths) >= MOST_PATHS:
            self.unnamed += 1
            return
        path = self.paths.setdefault(where, _Path())
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


def explore(source: Source) -> Findings:
    elements = _Elements()
    broken = ""
    read = source.size
    try:
        read = _parse(source, elements)
    except DefusedXmlException as error:
        raise Unreadable(f"it declares entities, which are not read ({type(error).__name__})") from None
    except SAXParseException as error:
        place = f"line {error.getLineNumber():,}"
        broken = f"{place}: {shown(error.getMessage())}"
        if elements.elements < ENOUGH_ELEMENTS:
            raise Unreadable(f"not valid XML: {broken}") from None
    if not elements.elements:
        raise Unreadable("not valid XML: it has no element")
    if broken:
        first = f"Not valid XML after {counted(elements.elements, 'element')}: {broken}"
        return Findings(lines=[first, *_lines(elements)], covered=f"what is before the error in {place}")
    return Findings(lines=_lines(elements), covered=source.covered_by(read))


def _parse(source: Source, elements: _Elements) -> int:
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


def _lines(elements: _Elements) -> list[str]:
    (root, first), *others = elements.paths.items()
    lines = [
        f"{counted(elements.elements, 'element')}, {elements.deepest:,} deep; the root is {_path_line(root, first)}"
    ]
    if elements.namespaces:
        lines.append(f"Namespaces: {listed(elements.namespaces)}")
    lines += [_path_line(path[len(root) + 1 :], told) for path, told in others[:TOLD_PATHS]]
    if len(others) > TOLD_PATHS:
        lines.append(f"{len(others) - TOLD_PATHS:,} more paths" + (", and others" if elements.unnamed else ""))
    return lines


def _path_line(path: str, told: _Path) -> str:
    times = f" ×{told.count:,}" if told.count > 1 else ""
    attributes = ", ".join(
        f'{shown(name, characters=30)}="{shown(value, characters=30)}"' for name, value in told.attributes.items()
    )
    text = shown(told.text, characters=EXAMPLE_CHARACTERS)
    name = shown(path if len(path) <= 120 else f"…{path[-119:]}", characters=120)
    listing = f" ({shown(attributes, characters=200)})" if attributes else ""
    return f"{name}{times}{listing}" + (f": {text}" if text else "")
