"""The fidelity of a summary: which salient items of its sources stand in it, or in what else a model is shown.

An item stands in a text if what it says does: a number as a number, a day as the same day, a name by all of its words, an
identifier letter by letter, a sentence by most of its telling words in one line. Nothing is asked of a model.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from mnesis_core.compaction.salience import (
    Day,
    ItemKind,
    SalientItem,
    date_of,
    days_in,
    find_items,
    numbers_in,
    windows_of,
)
from mnesis_core.context.entries import SummaryEntry
from mnesis_core.facts.quotes import SPEAKERS
from mnesis_core.files.references import without_footer
from mnesis_core.messages import StoredMessage, TextPart
from mnesis_core.search.forms import FUNCTION_WORDS, stem_of
from mnesis_core.search.words import fold, words_in_order

MOST_COUNTED = 1_000
"""The most items that are counted for one summary."""
FEWEST_COUNTED = 8
"""The fewest items of which a share means something."""
SAID_AGAIN = 0.6
"""The share of a sentence's telling words that a line has which says the same."""
LONGEST_LINE, MOST_PLACES = 2_000, 1_000  # characters of a line, and lines in which a word is looked for
_OF_ITSELF = re.compile(r"^(?:#{1,6} [^\n]*|Messages? \d[^\n]*\.|\[[^\]\n]{0,100}\])[ ]?", re.MULTILINE)
_NEGATION = re.compile(
    r"\b(?:no|not|never|none|without|cannot|\w{1,12}n['\u2019]t|nie|niemals|nicht|kein\w{0,2}|ne|pas|jamais|nunca|\u043d\u0435)\b"
    r"|[\u4e0d\u6ca1\u6c92\u52ff]|\u306a\u3044|\u7981\u6b62",
    re.IGNORECASE,
)


class Shown:
    """Texts with their indexes, prepared once and searched for many items."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._text = "\n".join(window for text in texts for _, window in windows_of(text))

    def has(self, item: SalientItem) -> bool:
        match item.kind:
            case ItemKind.NUMBER:
                numbers = set(numbers_in(item.text))
                return numbers <= self._numbers or numbers <= self._numbers_apart
            case ItemKind.DATE:
                day = date_of(item.text)
                return day is not None and any(day.may_be(other) for other in self._days.get(day.month, ()))
            case ItemKind.NAME:
                return set(words_in_order(item.text)) <= self._words
            case ItemKind.IDENTIFIER:
                return item.text.casefold() in self._folded
            case ItemKind.DECISION | ItemKind.INSTRUCTION:
                plain = " ".join(item.text.casefold().split())
                if plain in self._spaced:
                    return True
                wanted = stems_of(item.text)
                shared = Counter(number for stem in wanted for number in self._places.get(stem, ()))
                alike = [number for number, count in shared.items() if count >= max(1.0, SAID_AGAIN * len(wanted))]
                numbers, is_negative = set(numbers_in(item.text)), _NEGATION.search(item.text) is not None
                return any(
                    numbers <= set(numbers_in(self._lines[number]))
                    and (not is_negative or _NEGATION.search(self._lines[number]) is not None)
                    for number in alike
                )

    @cached_property
    def _folded(self) -> str:
        return self._text.casefold()

    @cached_property
    def _words(self) -> frozenset[str]:
        return frozenset(words_in_order(self._text))

    @cached_property
    def _numbers(self) -> frozenset[str]:
        return frozenset(numbers_in(self._text))

    @cached_property
    def _numbers_apart(self) -> frozenset[str]:
        """The numbers that are left when identifiers and days are taken out, such as the 00 of ``/0/0,00``."""
        items = (item for item in find_items(self._text) if item.kind is ItemKind.NUMBER)
        return frozenset(number for item in items for number in numbers_in(item.text))

    @cached_property
    def _days(self) -> dict[int, set[Day]]:
        """Map each month to its days."""
        months: dict[int, set[Day]] = defaultdict(set)
        for day in days_in(self._text):
            months[day.month].add(day)
        return months

    @cached_property
    def _lines(self) -> list[str]:
        return [
            line[start : start + LONGEST_LINE]
            for line in self._text.split("\n")
            for start in range(0, len(line), LONGEST_LINE)
        ]

    @cached_property
    def _places(self) -> dict[str, list[int]]:
        """Map each stem to the first lines that have it."""
        places: dict[str, list[int]] = defaultdict(list)
        for number, line in enumerate(self._lines):
            for stem in stems_of(line):
                if len(places[stem]) < MOST_PLACES:
                    places[stem].append(number)
        return places

    @cached_property
    def _spaced(self) -> str:
        return " ".join(self._folded.split())


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceText:
    """A text that a summary stands for: a part of a message, or a summary of such."""

    text: str
    may_instruct: bool = True  # What an assistant says that it must do is no instruction.
    message_id: str = ""
    seq: int = 0  # the number of its message
    part_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceItem:
    item: SalientItem
    source: SourceText


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    counted: int
    sentences: int = 0  # instructions and decisions among them
    missing: tuple[SourceItem, ...] = ()  # instructions and decisions first, each kind in the order of the sources

    def passes(self, bound: float) -> bool:
        """Return whether more than this share is missing, of all items or of the sentences among them; never at 1."""
        is_sentence_missing = bound < 1 and len(self._sentences) > bound * self.sentences
        return is_sentence_missing or is_alarm(self.counted, len(self.missing), bound=bound)

    def keeps_more(self, other: Fidelity) -> bool:
        """Return whether less is missing than from another text, of instructions and decisions first."""
        return (len(self._sentences), len(self.missing)) < (len(other._sentences), len(other.missing))

    @property
    def _sentences(self) -> list[SourceItem]:
        return [one for one in self.missing if one.item.kind.is_sentence]


def is_alarm(counted: int, missing: int, *, bound: float) -> bool:
    """Return whether a share of the items above ``bound`` is missing, of enough of them for a share to mean something."""
    return bound < 1 and counted >= FEWEST_COUNTED and missing > bound * counted


def spoken_texts(messages: Iterable[StoredMessage]) -> list[SourceText]:
    """Return what users and assistants said. Outputs of tools and contents of files state nothing by themselves."""
    return [
        SourceText(
            text=stored.part.text,
            may_instruct=message.role == "user",
            message_id=message.id,
            seq=message.seq,
            part_id=stored.id,
        )
        for message in messages
        if message.role in SPEAKERS
        for stored in message.parts
        if isinstance(stored.part, TextPart)
    ]


def summary_texts(summaries: Iterable[SummaryEntry]) -> list[SourceText]:
    """Return what summaries say, without the lines that only say what they are of."""
    return [SourceText(text=_OF_ITSELF.sub("", without_footer(summary.text))) for summary in summaries]


def items_of(sources: Iterable[SourceText]) -> list[SourceItem]:
    """Return the items of texts, what is said twice at its last place only, since it may have been repeated much later."""
    found: dict[tuple[Any, ...], SourceItem] = {}
    for source in sources:
        for item in find_items(source.text):
            if source.may_instruct or item.kind is not ItemKind.INSTRUCTION:
                key = (item.kind, _key(item))
                found.pop(key, None)
                found[key] = SourceItem(item=item, source=source)
    kinds = [[one for one in found.values() if one.item.kind is kind] for kind in ItemKind]
    # The newest of each kind, as many as there may be in all.
    kept: list[SourceItem] = []
    for place, items in enumerate(kinds):
        most = (MOST_COUNTED - len(kept)) // (len(kinds) - place)
        kept += items[-most:]
    return kept


def measure(items: Sequence[SourceItem], shown: Shown) -> Fidelity:
    """Return which of the items are in none of the texts that are shown."""
    return Fidelity(
        counted=len(items),
        sentences=sum(one.item.kind.is_sentence for one in items),
        missing=tuple(one for one in items if not shown.has(one.item)),
    )


def stems_of(text: str) -> frozenset[str]:
    words = (word for word in words_in_order(text) if word not in FUNCTION_WORDS and not word.isdecimal())
    return frozenset(map(stem_of, words))


def _key(item: SalientItem) -> Any:
    match item.kind:
        case ItemKind.NUMBER:
            return tuple(numbers_in(item.text))
        case ItemKind.DATE:
            return date_of(item.text)
        case ItemKind.NAME | ItemKind.IDENTIFIER:
            return item.text.casefold()
        case _:
            return tuple(fold(item.text).split())
