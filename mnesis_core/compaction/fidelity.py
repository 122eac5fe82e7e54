"""The fidelity of a summary: which salient items of its sources stand in it, or in what else a model is shown; and what
is salient.

An item stands in a text if what it says does: a number as a number, a day as the same day, a name by all of its words, an
identifier letter by letter, a sentence by most of its telling words in one line. Nothing is asked of a model.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from itertools import islice
from typing import Any

from mnesis_core.context.entries import SummaryEntry
from mnesis_core.facts import SPEAKERS, asks_to_remember
from mnesis_core.files.references import without_footer
from mnesis_core.messages import StoredMessage, TextPart
from mnesis_core.search.ranking import NUMBER_OF_MONTH
from mnesis_core.search.words import FUNCTION_WORDS, fold, is_unspaced, readable, stem_of, words_in_order

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
LONGEST_TEXT = 200_000
"""Characters of a text that are read: three quarters from its beginning, the rest from its end."""
MOST_ITEMS = 1_000
"""The most items of each kind in one text."""
LONGEST_SENTENCE, SHORTEST_SENTENCE = 300, 4
"""Characters of a sentence that can be a decision or an instruction."""
CAPITALS, WORDS_TO_JUDGE = 0.2, 40
"""The share of capitalised words within sentences above which a capital letter marks no name, as in German; and from how
many words on that is known."""


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
                return set(words_in_order(readable(item.text))) <= self._words
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
        return frozenset(words_in_order(readable(self._text)))

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


# The salient items of a text: what a summary of it must not lose, since nothing else lets it be guessed again.
#
# Rules find them, so the same text has the same items for ever, on every database and without a model. A text may be
# of any length and script: only its beginning and its end are read of a very long one, and every repetition has a
# bound.


class ItemKind(StrEnum):
    INSTRUCTION = "instruction"
    DECISION = "decision"
    DATE = "date"
    NUMBER = "number"
    NAME = "name"
    IDENTIFIER = "identifier"  # ids, paths, addresses, hashes, versions

    @property
    def is_sentence(self) -> bool:
        return self in (ItemKind.INSTRUCTION, ItemKind.DECISION)


@dataclass(frozen=True, slots=True, kw_only=True)
class SalientItem:
    kind: ItemKind
    text: str
    start: int  # characters of the text that it is in
    end: int


@dataclass(frozen=True, slots=True)
class Day:
    """A day as it was written: the year may be missing, or the day of a month."""

    month: int
    day: int | None = None
    year: int | None = None

    def may_be(self, other: Day) -> bool:
        return self.month == other.month and all(
            mine is None or theirs is None or mine == theirs
            for mine, theirs in ((self.day, other.day), (self.year, other.year))
        )


_MONTH = rf"(?:{'|'.join(sorted(NUMBER_OF_MONTH, key=len, reverse=True))})"
_DAY = r"(?:0?[1-9]|[12]\d|3[01])"
_DATE = re.compile(
    rf"\b(?P<iso_year>[12]\d{{3}})[-/.](?P<iso_month>0?[1-9]|1[0-2])[-/.](?P<iso_day>{_DAY})(?![\d_])"
    rf"|\b(?P<day>{_DAY})(?:st|nd|rd|th)?\.?(?: of)? (?P<month>{_MONTH})\.?(?:,? (?P<year>[12]\d{{3}}))?\b"
    rf"|\b(?P<month_2>{_MONTH})\.? (?P<day_2>{_DAY})(?:st|nd|rd|th)?\b(?!:)(?:,? (?P<year_2>[12]\d{{3}})\b)?"
    rf"|\b(?P<month_3>{_MONTH}),? (?P<year_3>[12]\d{{3}})\b"
    r"|(?P<year_4>[12]\d{3})\u5e74(?P<month_4>1[0-2]|0?[1-9])\u6708(?:(?P<day_4>3[01]|[12]\d|0?[1-9])\u65e5)?",
    re.IGNORECASE | re.ASCII,
)
_DIGITS = re.compile(r"\d{1,30}(?:[.,:]\d{1,30}){0,8}")
_THOUSANDS = re.compile(r",(?=\d{3}(?:\D|$))")
_ZERO_OF_TIME = re.compile(r"^0(?=\d:)")
_COUNTED = re.compile(r"[ \u00a0\u202f-]?[^\W\d_]{1,20}|[ \u00a0\u202f]?[%\u2030\u00b0$\u20ac\u00a3\u00a5]")
_MONEY = frozenset("$\u20ac\u00a3\u00a5#")
_IDENTIFIER = re.compile(
    r"https?://[^\s<>\"'`\u3000-\u303f]{3,300}"
    r"|(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}"
    r"|(?<![\w`])`[^`\s]{2,80}`(?!`)"
    r"|(?<![\w/.:@+-])(?:~|\.{1,2})?(?:/[\w.@+-]{1,100}){2,30}/?"
    r"|(?<![\w/.:@+-])[\w@+-][\w.@+-]{0,99}(?:/[\w.@+-]{1,100}){0,30}/[\w@+-]{1,100}\.\w{1,8}\b"
    r"|(?<![\w/.:@+-])[A-Za-z_][\w-]{0,80}\.(?:py|js|ts|tsx|md|txt|json|ya?ml|toml|html?|css|csv|sql|sh|rs|go|java|cpp|rb|pdf|ini|log|xml)\b"
    r"|(?<![\w.-])[A-Z][A-Z0-9]{1,9}-\d{1,9}(?![\w-])"
    r"|(?<![\w.-])v?\d{1,5}\.\d{1,5}\.\d{1,5}(?:[.-][\w.]{1,20})?(?![\w-])"
    r"|(?<![\w-])[0-9a-fA-F]{8}-(?:[0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}(?![\w-])"
    r"|(?<![\w-])(?=[A-Za-z_]{0,40}\d)(?=\d{0,40}[A-Za-z_])[A-Za-z0-9_]{6,64}(?![\w-])"
)
_THOROUGH_IDENTIFIER = re.compile(
    _IDENTIFIER.pattern
    + r"|(?<![\w.-])[A-Za-z][A-Za-z0-9]{1,40}(?:[._@#\\]{1,2}[A-Za-z0-9]{1,40}){1,10}(?![\w-])"
    + r"|(?<![\w.-])[A-Za-z]{1,20}\d{1,20}[A-Za-z0-9]{0,20}(?![\w-])"
)
_TRAILING = ".,;:!?)]}'\"\u201d\u2019"
_FENCE = re.compile(r"^ {0,3}(?:```|~~~)[^\n]{0,200}$", re.MULTILINE)
_HEADING = re.compile(r"^#{1,6} [^\n]{0,200}$", re.MULTILINE)
# With the accents of decomposed letters, as file names of macOS have them.
_WORD = re.compile(r"(?<!\w)[^\W\d_](?:[\w\u0300-\u036f\u2019'-]{0,60}[\w\u0300-\u036f])?")
_BEFORE_NAME = re.compile(r"[.!?:\u2026>\]*#|\u2022-]\s*[\"'\u201c\u2018(]?$")
_POSSESSIVE = re.compile(r"['\u2019](?:s|d|m|t|ll|re|ve)?$", re.IGNORECASE)
_CAPITALISED = """
monday tuesday wednesday thursday friday saturday sunday yes no ok okay oh hi hello hey thanks please also just but now then
well let here not never always must user assistant system tool todo i'm i'll i've i'd
"""
_NO_NAMES = FUNCTION_WORDS | frozenset(NUMBER_OF_MONTH) | frozenset(_CAPITALISED.split())
_SENTENCE = re.compile(
    r"[^\s](?:[^\n.!?\u2026\u3002\uff01\uff1f]|[.!?\u2026](?=[^\s\"'\u201d\u2019)\]])){0,2000}[.!?\u2026\u3002\uff01\uff1f]*[\"'\u201d\u2019)\]]*"
)
_LIST_MARK = re.compile(r"(?:[-*+\u2022>|]+\s+|#{1,6}\s+|\d{1,3}[.)]\s+)+")
_INSTRUCTION = re.compile(
    r"\b(?:must(?! have been)|shall not|may not|do not ever|i(?:['\u2019]d| would)? (?:much |really )?prefer|make sure"
    r"|no matter what|under no circumstances"
    r"|(?:du|sie|ihr|wir|es|das) (?:darfst|d\u00fcrfen|darf|d\u00fcrft|musst|m\u00fcssen|muss|m\u00fcsst)|niemals|ich bevorzuge"
    r"|(?:il faut|tu dois|vous devez|ne jamais|je pr\u00e9f\u00e8re)|(?:hay que|debes|debe|nunca|prefiero)\b"
    r"|nie wolno|zawsze|\u043d\u0438\u043a\u043e\u0433\u0434\u0430 \u043d\u0435|\u0432\u0441\u0435\u0433\u0434\u0430|\u0434\u043e\u043b\u0436\u043d\u044b?)\b"
    r"|\u5fc5\u987b|\u5fc5\u9808|\u5fc5\u305a|\u4e0d\u8981|\u4e0d\u5f97|\u7981\u6b62|\u603b\u662f|\u7e3d\u662f|\u7d76\u5bfe\u306b|\u306a\u3051\u308c\u3070\u306a\u3089\u306a\u3044"
    r"|\ubc18\ub4dc\uc2dc|\uc808\ub300|\u064a\u062c\u0628|\u0644\u0627 \u062a",
    re.IGNORECASE,
)
_DECISION = re.compile(
    r"\b(?:we|i|they|he|she)(?:['\u2019](?:ve|ll)| have| had| will)? (?:finally )?(?:decided?|agreed?|settled? on|chosen?|chose|opted|go(?:ing)? with)\b"
    r"|\b(?:it (?:is|was) decided|the decision (?:is|was)|decision:|let['\u2019]s (?:use|go with))"
    r"|\b(?:haben wir|wir haben|ich habe)\b.{0,80}\b(?:entschieden|beschlossen|vereinbart)\b"
    r"|\b(?:nous avons|j['\u2019]ai|on a) (?:d\u00e9cid\u00e9|choisi)\b|\b(?:hemos|he) (?:decidido|acordado|elegido)\b|\b(?:\u0440\u0435\u0448\u0438\u043b\u0438?)\b"
    r"|\u51b3\u5b9a|\u6c7a\u5b9a|\u6c7a\u3081\u305f|\uacb0\uc815",
    re.IGNORECASE,
)


def find_items(text: str, *, thorough: bool = False) -> list[SalientItem]:
    """Return the salient items of a text in their order, each place once for its kind.

    Code between fences states nothing, so only its identifiers count. Names need a script that has capital letters, and a
    language that does not write every noun with one.

    :param thorough: also find what a summary may leave out but not change: all kinds within code, digits that count nothing,
        such as that of "Step 1", and words joined by a sign or with digits, such as ``user_id``, ``enum.map`` and ``h3``
    """
    found: list[SalientItem] = []
    for offset, window in windows_of(text):
        found += [
            SalientItem(kind=kind, text=window[start:end], start=offset + start, end=offset + end)
            for kind, start, end in _find(window, thorough=thorough)
        ]
    return sorted(found, key=lambda item: (item.start, item.end, item.kind))


def days_in(text: str) -> Iterator[Day]:
    return map(day_of, _DATE.finditer(text))


def numbers_in(text: str) -> Iterator[str]:
    """Return the numbers of a text as they are compared: ``1,204.50`` is 1204.5, and digits of any script are digits."""
    return (number_of(found[0]) for found in _DIGITS.finditer(text))


def number_of(digits: str) -> str:
    plain = digits if digits.isascii() else "".join(str(unicodedata.decimal(sign, sign)) for sign in digits)
    plain = _ZERO_OF_TIME.sub("", _THOUSANDS.sub("", plain))
    has_fraction = plain.partition(".")[2].isdecimal()
    return plain.rstrip("0").removesuffix(".") if has_fraction else plain


def day_of(found: re.Match[str]) -> Day:
    named = {name.rpartition("_")[2] if name.startswith("iso") else name.partition("_")[0]: value
             for name, value in found.groupdict().items() if value}  # fmt: skip
    month = named["month"].lower()
    return Day(
        month=int(month) if month.isdecimal() else NUMBER_OF_MONTH[month],
        day=int(named["day"]) if "day" in named else None,
        year=int(named["year"]) if "year" in named else None,
    )


def date_of(text: str) -> Day | None:
    found = _DATE.search(text)
    return None if found is None else day_of(found)


def windows_of(text: str) -> list[tuple[int, str]]:
    """Return what is read of a text, in one or two pieces, each with its place."""
    if len(text) <= LONGEST_TEXT:
        return [(0, text)]
    tail = len(text) - LONGEST_TEXT // 4
    return [(0, text[: LONGEST_TEXT * 3 // 4]), (tail, text[tail:])]


def _find(text: str, *, thorough: bool) -> Iterator[tuple[ItemKind, int, int]]:
    identifiers = list(islice(_identifiers(text, thorough=thorough), MOST_ITEMS))
    prose = _blank(text, identifiers if thorough else [*_fenced(text), *identifiers])
    dates = [found.span() for found in islice(_DATE.finditer(prose), MOST_ITEMS)]
    undated = _blank(prose, dates)
    unheaded = _blank(undated, [found.span() for found in _HEADING.finditer(undated)])
    yield from ((ItemKind.IDENTIFIER, *span) for span in identifiers)
    yield from ((ItemKind.DATE, *span) for span in dates)
    yield from ((ItemKind.NUMBER, *span) for span in islice(_numbers(undated, thorough=thorough), MOST_ITEMS))
    yield from ((ItemKind.NAME, *span) for span in islice(_names(unheaded, text), MOST_ITEMS))
    yield from islice(_sentences(_blank(text, _fenced(text))), MOST_ITEMS)


def _blank(text: str, spans: list[tuple[int, int]]) -> str:
    """Return a text of the same length without these places, so that what is in them is found as one kind only."""
    pieces, at = [], 0
    for start, end in sorted(spans):
        if start >= at:
            pieces += [text[at:start], "\n" * (end - start)]
            at = end
    return "".join([*pieces, text[at:]])


def _fenced(text: str) -> list[tuple[int, int]]:
    marks = [found.span() for found in _FENCE.finditer(text)]
    spans = [(opening[0], closing[1]) for opening, closing in zip(marks[::2], marks[1::2], strict=False)]
    return spans + ([(marks[-1][0], len(text))] if len(marks) % 2 else [])


def _identifiers(text: str, *, thorough: bool) -> Iterator[tuple[int, int]]:
    for found in (_THOROUGH_IDENTIFIER if thorough else _IDENTIFIER).finditer(text):
        start, end = found.span()
        if text[start] == "`":
            start, end = start + 1, end - 1
        while end > start + 1 and text[end - 1] in _TRAILING:
            end -= 1
        if end - start > 1:
            yield start, end


def _numbers(text: str, *, thorough: bool) -> Iterator[tuple[int, int]]:
    """Yield numbers that count or measure something, or have two digits: a single digit alone is hardly one."""
    for found in _DIGITS.finditer(text):
        start, end = found.span()
        before = text[start - 1 : start]
        if before == "_" or (before.isalnum() and not is_unspaced(before)):
            continue
        begins = start - (start > 0 and text[start - 1] in _MONEY)
        unit = _COUNTED.match(text, end)
        if unit and unit[0].strip().lower() in FUNCTION_WORDS:
            unit = None
        if unit is None and text[end : end + 1].isalpha():
            continue
        if thorough or unit or begins < start or len(found[0]) > 1:
            yield begins, unit.end() if unit else end


def _names(text: str, whole: str) -> Iterator[tuple[int, int]]:
    """Yield words with a capital letter that is not there because a sentence begins, neighbouring ones as one name.

    :param whole: the text with what is blank in the other
    """
    words = [word for word in _WORD.finditer(text) if _is_whole(whole, *word.span())]
    lower = {word[0] for word in words if word[0].islower()}

    def begins_sentence(at: int) -> bool:
        before = text[max(0, at - 6) : at]
        return not before.strip() or "\n" in before or _BEFORE_NAME.search(before) is not None

    within = [word[0] for word in words if not begins_sentence(word.start())]
    inner = {word for word in within if word[:1].isupper()}
    capitals = sum(word in inner and word.lower() not in _NO_NAMES for word in within)
    if len(within) >= WORDS_TO_JUDGE and capitals > CAPITALS * len(within):
        return
    at = 0
    while at < len(words):
        end = at
        while (
            end < len(words)
            and _may_be_name(words[end][0], lower, inner)
            and (end == at or text[words[end - 1].end() : words[end].start()] == " ")
        ):
            end += 1
        if end > at:
            last = words[end - 1]
            yield words[at].start(), last.end() - len(_possessive(last[0]))
        at = max(end, at + 1)


def _is_whole(text: str, start: int, end: int) -> bool:
    """Return whether a word ends where it seems to: marks of other scripts are parts of words too, and no ``\\w``."""
    neighbours = text[max(0, start - 1) : start] + text[end : end + 1]
    return not any(char.isalnum() or unicodedata.category(char)[0] == "M" for char in neighbours)


def _may_be_name(word: str, lower: set[str], inner: set[str]) -> bool:
    plain = word[: len(word) - len(_possessive(word))]
    return (
        plain[:1].isupper()
        and len(plain) > 1
        and _NO_NAMES.isdisjoint((plain.lower(), plain.lower().removesuffix("s")))
        and plain.lower() not in lower
        and (word in inner or plain in inner)
    )


def _possessive(word: str) -> str:
    found = _POSSESSIVE.search(word)
    return found[0] if found else ""


def _sentences(text: str) -> Iterator[tuple[ItemKind, int, int]]:
    for found in _SENTENCE.finditer(text):
        mark = _LIST_MARK.match(text, found.start(), found.end())
        start, end = mark.end() if mark else found.start(), found.end()
        sentence = text[start:end]
        end = start + len(sentence.rstrip())
        if SHORTEST_SENTENCE <= end - start <= LONGEST_SENTENCE and (kind := kind_of(sentence.rstrip())):
            yield kind, start, end


def sentence_around(text: str, start: int, end: int) -> str:
    """Return the sentence that has these characters, or as much of the text around them as a sentence may have."""
    begin = max(0, start - LONGEST_SENTENCE)
    window = text[begin : end + LONGEST_SENTENCE]
    found = (match for match in _SENTENCE.finditer(window) if begin + match.end() >= end)
    match = next(found, None)
    said = match[0].strip() if match and begin + match.start() <= start else text[start:end]
    return said if len(said) <= LONGEST_SENTENCE else text[start:end]


def kind_of(sentence: str) -> ItemKind | None:
    """Return whether a sentence says by its words that it decides or instructs; a question does neither."""
    if sentence.endswith(("?", "\uff1f")):
        return None
    if _DECISION.search(sentence):
        return ItemKind.DECISION
    if asks_to_remember(sentence) or _INSTRUCTION.search(sentence):
        return ItemKind.INSTRUCTION
    return None
