"""YAML: its documents, and which keys hold what; nothing is constructed and no alias is followed. TOML: its sections."""

from __future__ import annotations

import re
import tomllib
from collections import Counter
from itertools import islice
from typing import Any

import yaml

from mnesis_core.errors import fill, gettext_noop
from mnesis_core.files.schemas import ARRAY, BOOLEAN, INTEGER, NULL, NUMBER, OBJECT, STRING, SchemaBuilder, schema_lines
from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown

MOST_EVENTS = 4_000_000
MOST_DOCUMENTS = 20
DEEPEST = 500  # The parser's time grows with the square of the depth.
_PARSER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_WORDS = {"": NULL, "~": NULL, "null": NULL, "true": BOOLEAN, "false": BOOLEAN}
_INTEGER = re.compile(r"[-+]?[0-9]+|0x[0-9a-fA-F]+|0o[0-7]+")
_NUMBER = re.compile(
    r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
)


class _Reading:
    def __init__(self) -> None:
        self.builder = SchemaBuilder()
        self.documents = 0
        self.titles: list[str] = []
        self.aliases = 0
        self.tags: Counter[str] = Counter()
        # What a manifest of Kubernetes is known by: the first ``kind`` and ``name`` of a document.
        self._title: dict[str, str] = {}
        self._key = ""

    def take(self, event: yaml.Event) -> None:
        if isinstance(event, yaml.NodeEvent):
            self._take_node(event)
        elif isinstance(event, yaml.MappingEndEvent):
            self.builder.close(OBJECT)
        elif isinstance(event, yaml.SequenceEndEvent):
            self.builder.close(ARRAY)
        elif isinstance(event, yaml.DocumentStartEvent):
            self.documents += 1
            self._title = {}
        elif isinstance(event, yaml.DocumentEndEvent) and len(self.titles) < MOST_DOCUMENTS and "kind" in self._title:
            self.titles.append(" ".join(self._title[key] for key in ("kind", "name") if key in self._title))

    def _take_node(self, event: Any) -> None:
        if isinstance(event, yaml.AliasEvent):
            self.aliases += 1
            self.builder.scalar("alias", f"*{event.anchor}")
            return
        if event.tag and not event.tag.startswith("tag:yaml.org,2002:str") and len(self.tags) < 200:
            self.tags[event.tag] += 1
        if isinstance(event, yaml.ScalarEvent):
            if self.builder.depth <= 2:
                if self._key in ("kind", "name") and self._key not in self._title:
                    self._title[self._key] = event.value
                self._key = event.value[:10]
            if event.style or not event.implicit[0]:
                self.builder.scalar(STRING, event.value)
            else:
                self.builder.scalar(_type_of_word(event.value), event.value or "null")
            return
        if self.builder.depth >= DEEPEST:
            raise Unreadable(fill(gettext_noop("nested more than %(most)s levels deep"), {"most": str(DEEPEST)}))
        self.builder.open(OBJECT if isinstance(event, yaml.MappingStartEvent) else ARRAY)


def _type_of_word(word: str) -> str:
    if (known := _WORDS.get(word.lower() if len(word) < 6 else word)) is not None:
        return known
    if _INTEGER.fullmatch(word):
        return INTEGER
    return NUMBER if _NUMBER.fullmatch(word) else STRING


def explore(source: Source) -> Findings:
    reading = _Reading()
    try:
        with source.path.open("rb") as file:
            events = yaml.parse(file, Loader=_PARSER)
            for event in islice(events, MOST_EVENTS):
                reading.take(event)
            is_all = next(events, None) is None
    except (yaml.YAMLError, ValueError) as error:
        raise Unreadable(
            fill(gettext_noop("not valid YAML: %(reason)s"), {"reason": shown(str(error), characters=200)})
        ) from None
    if not reading.documents:
        raise Unreadable(gettext_noop("it holds no document"))
    root, has_several = reading.builder.root, reading.documents > 1
    if set(root.types) <= {STRING, NULL} and not has_several:
        raise Unreadable(gettext_noop("it has neither keys nor lists, only text"))
    lines = schema_lines(root, name="Each document:" if has_several else "")
    if has_several:
        titles = f": {listed(reading.titles)}" if reading.titles else ""
        lines.insert(0, f"{counted(reading.documents, 'document')}{titles}")
    if reading.tags:
        lines.append(f"Tags: {listed(f'{tag} ×{count:,}' for tag, count in reading.tags.items())}")
    if reading.aliases:
        lines.append(f"{counted(reading.aliases, 'alias', 'aliases')}, not followed")
    covered = "all of it" if is_all else f"the first {MOST_EVENTS:,} keys and values"
    return Findings(lines=lines, covered=covered)


def explore_toml(source: Source) -> Findings:
    try:
        document = tomllib.loads(source.text())
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise Unreadable(fill(gettext_noop("not valid TOML: %(reason)s"), {"reason": str(error)})) from None
    sections = [name for name, value in document.items() if isinstance(value, dict)]
    keys = [name for name in document if name not in sections]
    counts = counted(len(sections), "section"), counted(len(keys), "top-level key")
    return Findings(lines=(f"{counts[0]}: {listed(sections)}", f"{counts[1]}: {listed(keys)}"))
