"""The lineage of a summary's sentences: the messages that each of them rests on, found by words alone.

No model is asked, so the same texts always give the same answer. A sentence is compared with passages of its sources: a
piece of a text with its neighbours. What a paraphrase may not change (numbers, dates, names, identifiers) has to stand in the
passage, and most of the other words have to. What a sentence denies or concludes is not understood.

Sentences are places in a summary's text. Headings, the marks of lists, rules and tables, labels, the footer and what the
engine writes itself are none. A block of code is one, since what it says stands or falls as a whole.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date
from enum import StrEnum
from functools import cached_property, lru_cache
from heapq import nlargest
from itertools import islice
from math import log
from typing import NamedTuple

from mnesis_core.compaction.fidelity import Day, ItemKind, SalientItem, date_of, days_in, find_items, numbers_in
from mnesis_core.compaction.transcript import HEADER, texts_of_part
from mnesis_core.facts import find_words
from mnesis_core.files.references import without_footer
from mnesis_core.messages import StoredMessage
from mnesis_core.search.ranking import choose_terms
from mnesis_core.search.words import FUNCTION_WORDS, fold, readable, stem_of, words_in_order
from mnesis_core.text import decode_text, encode_text

LONGEST_SENTENCE = 1_000  # characters; what is longer is cut at white space
MOST_SENTENCES = 1_000
LONGEST_TEXT = 1_000_000  # characters that are looked at; no summary that a model wrote is nearly as long
LONGEST_HEADING = 6  # words of a line that ends with a colon

_FENCE = re.compile(r"[ \t]*(`{3,}|~{3,})")
_HEADING = re.compile(r" {0,3}#{1,6}(?:[ \t]|$)|[ \t]*(\*\*|__)(?![\s*_])[^*_\n]{1,120}\1:?[ \t]*$")
_MARK = re.compile(r"(?:[ \t]|[-*+•>|](?=[ \t|])|\d{1,3}[.)](?=[ \t])|\[[ xX]\](?=[ \t]))*")
_LABEL = re.compile(r"\[\d{1,12}(?:-\d{1,12})?(?: [^\]\n]{0,80})?\] ")
_FRAME = re.compile(r"Messages? \d{1,12}(?: to \d{1,12})?(?:, [^\n]{0,300})?\.$|\[(?:LCM |Level 3 excerpt)[^\n]*\]$")
_CODE = re.compile(r"(?<!`)(`{1,3})(?!`)[^`\n]+\1(?!`)")
_CLOSING = "\"'\u201d\u2019\u00bb)]*_`"
_END = re.compile(
    rf"[.!?\u2026]+[{re.escape(_CLOSING)}]*|[\u3002\uff01\uff1f\uff61][\u300d\u300f\u201d\u2019\uff09]*|[\u0964\u0965\u061f\u06d4\u1362\u166e]"
)
_ABBREVIATION = re.compile(
    r"(?:^|[\s(\"'])(?:dr|mrs?|ms|prof|st|vs|etc|cf|approx|no|nr|fig|inc|ltd|co|jr|sr|bzw|usw|ca|(?:[^\W\d_]\.)*[^\W\d_])\.$",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r"\[\u2026\]")
_NEXT = re.compile(r"\S")
_WORDY = re.compile(r"[^\W_]")


class Sentence(NamedTuple):
    start: int  # characters of the text, from 0 on
    end: int


def sentences_of(text: str) -> list[Sentence]:
    """Return the sentences of a summary in order, at most ``MOST_SENTENCES``; none overlaps another."""
    body = without_footer(text)[:LONGEST_TEXT]
    plain = _CODE.sub(lambda code: "x" * len(code[0]), body)  # a full stop in code ends no sentence
    found: list[Sentence] = []
    for start, end, is_code in _blocks(body):
        pieces = [(start, end)] if is_code else _split(plain, start, end)
        for sentence in (cut for piece in pieces for cut in _cut(body, *piece)):
            found.append(sentence)
            if len(found) == MOST_SENTENCES:
                return found
    return found


def _blocks(text: str) -> Iterator[tuple[int, int, bool]]:
    """Yield lines, or several that go on with one sentence, without their marks; and each block of code."""
    start = end = 0  # of the lines before that may go on
    fence, code = "", 0
    for line in re.finditer(r"[^\n]+", text):
        said, opening = line[0], _FENCE.match(line[0])
        if fence:
            if opening and opening[1].startswith(fence) and not said[opening.end() :].strip():
                yield code, line.start(), True
                fence = ""
            continue
        if opening or _HEADING.match(said):
            yield start, end, False
            start = end = line.end()
            fence, code = (opening[1], line.end()) if opening else ("", 0)
            continue
        mark = _MARK.match(said)
        first = line.start() + (mark.end() if mark else 0)
        if end > start and _goes_on(text, end, first, line.start()):
            end = line.end()
            continue
        yield start, end, False
        label = _LABEL.match(text, first)
        start, end = (label.end() if label else first), line.end()
    yield start, end, False
    if fence:
        yield code, len(text), True


def _goes_on(text: str, end: int, first: int, line: int) -> bool:
    """Return whether a line goes on with the sentence before it: the next line, unmarked, in lower case."""
    return line == end + 1 and not text[line:first].strip() and text[first : first + 1].islower()


def _split(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    said = text[start:end].strip()
    if said == HEADER or _FRAME.match(said) or (said.endswith(":") and len(said.split()) <= LONGEST_HEADING):
        return
    ends = [match.end() for match in _END.finditer(text, start, end) if _ends(text, match, end)]
    ends += [match.end() for match in _BETWEEN.finditer(text, start, end)]
    for after in (*sorted(ends), end):
        yield start, after
        start = after


def _ends(text: str, match: re.Match[str], end: int) -> bool:
    if match[0][0] not in ".!?\u2026":
        return True
    if match.end() < end and not text[match.end()].isspace():
        return False
    after = _NEXT.search(text, match.end(), end)
    if after is not None and after[0].islower():
        return False
    return match[0][0] != "." or not _ABBREVIATION.search(text, max(0, match.start() - 12), match.start() + 1)


def _cut(text: str, start: int, end: int) -> Iterator[Sentence]:
    """Yield a sentence without white space around it, in pieces if it is long; nothing if it has no letter and no digit."""
    while start < end:
        if end - start <= LONGEST_SENTENCE:
            after = end
        else:
            at = max(text.rfind(sign, start + 1, start + LONGEST_SENTENCE) for sign in " \n")
            after = at if at > start else start + LONGEST_SENTENCE
        piece = text[start:after]
        if _WORDY.search(piece):
            first = start + len(piece) - len(piece.lstrip())
            # The edge of a table closes its row.
            yield Sentence(first, start + len(piece.rstrip().rstrip("|").rstrip()))
        start = after


METHOD = "words.2"
"""The version of the rules below. Claims of another version stay beside those of this one."""
SUPPORTED, PARTLY = 60, 45
"""Percent of a sentence's words that its passage has at least."""
PIECE = 800  # characters of a text that count as one place
REACH = 1  # pieces before and after one that belong to its passage
STEM = 6  # letters that words in different forms are likely to share, in languages whose endings are not known here
POSTINGS = 8_000  # places of its words that are looked at for one sentence, those of rare words first
CANDIDATES = 12  # passages that are compared closely
MOST_PLACES = 5  # of one sentence
MOST_MISSING, LONGEST_MISSING = 10, 100
SHORTEST_QUOTE = 8  # characters; what is shorter is found by chance
LEAST_GAIN = 0.15  # the share of a sentence that one more place has to add
NAMED_IN = 200  # pieces that are asked how they write a word


class Support(StrEnum):
    QUOTED = "quoted"  # it was said word for word
    SUPPORTED = "supported"  # a passage has its items and most of its words
    PARTLY = "partly"  # a passage has some of it
    NONE = "none"  # nothing says it, or it has a number, a date or an identifier that no source has


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A text that a sentence may rest on: a part of a message, or a sentence of a summary."""

    source_id: str
    ref: str | int  # the part of the message, or the number of the sentence
    text: str
    about: str = ""  # words that are true of it without standing in it, such as the name of the speaker
    day: date | None = None


def told_in_messages(messages: Iterable[StoredMessage], speakers: Mapping[str, str]) -> Iterator[Told]:
    """Yield what a leaf is made of.

    :param speakers: the names of those who speak, by role, as far as they are known
    """
    for message in messages:
        for stored in message.parts:
            for label, text in texts_of_part(stored.part, role=message.role):
                yield Told(
                    source_id=message.id,
                    ref=stored.id,
                    text=text,
                    about=f"{label} {speakers.get(message.role, '')}",
                    day=message.created_at.astimezone(UTC).date(),
                )


def told_in_summaries(texts: Mapping[str, str]) -> Iterator[Told]:
    """Yield the sentences of the summaries, by their ids, that a condensed one is made of."""
    for id, text in texts.items():
        stored = encode_text(text)
        for number, (start, end) in enumerate(sentences_of(stored), 1):
            yield Told(source_id=id, ref=number, text=decode_text(stored[start:end]))


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    source_id: str
    ref: str | int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """A sentence of a summary and what it rests on. Characters are counted in the text as it is stored."""

    number: int  # from 1 on
    start: int
    end: int
    support: Support
    share: int  # percent of its words that the passage has
    missing: tuple[str, ...] = ()  # its items that the passage lacks
    places: tuple[Place, ...] = ()  # in the order of the sources


def align(text: str, sources: Iterable[Told]) -> list[Claim]:
    """Return the sentences of a summary, each with the places of its sources that it rests on."""
    stored = encode_text(text)
    asked = list(_asked(stored))
    known = _Passages(asked, sources)
    return [known.claim(number, sentence) for number, sentence in enumerate(asked, 1)]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Item:
    """A salient item of a sentence, with what of it is compared: the words of a name, and numbers without their units."""

    kind: ItemKind
    text: str
    tags: frozenset[str] = (
        frozenset()
    )  # of the pieces that have a name or a number; days and identifiers are looked for
    day: Day | None = None
    key: str = ""  # of an identifier, folded, with spaces around it


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """A sentence, as far as passages are compared with it."""

    start: int
    end: int
    text: str
    words: frozenset[str]  # keys, as ``_keys`` gives them
    items: tuple[_Item, ...]
    begins_with: str  # a first word that may be a name which the items lack
    said: str  # the text without who said it


_NUMBER_WORDS = (
    "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen eighteen"
    " nineteen twenty"
)
WORDS_OF_NUMBERS = {word: str(number) for number, word in enumerate(_NUMBER_WORDS.split())}
_FIRST_WORD = re.compile(r"[*_\"'\u201c\u2018(]{0,4}([^\W\d_]+)")
_FIGURES = re.compile(r"\d(?:.*\d)?")
_SAID_BY = re.compile(r"([^:\n]{1,80}): ")


def _asked(text: str) -> Iterator[_Asked]:
    items = [item for item in find_items(text, thorough=True) if not item.kind.is_sentence and fold(item.text).strip()]
    at = 0
    for start, end in sentences_of(text):
        while at < len(items) and items[at].start < start:
            at += 1
        own = [item for item in items[at : at + end - start] if item.end <= end]
        said = text[start:end]
        by = _SAID_BY.match(said)
        words = words_in_order(readable(said))
        first = _FIRST_WORD.match(said)
        named = {item.start - start for item in own if item.kind is ItemKind.NAME}
        yield _Asked(
            start=start,
            end=end,
            text=said,
            words=frozenset(map(_key, [word for word in words if word not in FUNCTION_WORDS] or words)),
            items=tuple(map(_item, own)),
            begins_with=first[1]
            if first and first.start(1) not in named and fold(first[1]) not in FUNCTION_WORDS
            else "",
            said=_plain(said[by.end() :] if by else said),
        )


def _item(item: SalientItem) -> _Item:
    kind, text = item.kind, item.text
    match kind:
        case ItemKind.NAME:
            return _Item(kind=kind, text=text, tags=frozenset(f"={word}" for word in words_in_order(readable(text))))
        case ItemKind.NUMBER:
            figures = _FIGURES.search(text)
            tags = frozenset(f"#{number}" for number in numbers_in(text))
            return _Item(kind=kind, text=figures[0] if figures else text, tags=tags)
        case ItemKind.DATE:
            return _Item(kind=kind, text=text, day=date_of(text))
        case _:
            return _Item(kind=kind, text=text, key=_spaced(text))


@lru_cache(maxsize=16_384)
def _key(word: str) -> str:
    return stem_of(word)[:STEM]


def _plain(text: str) -> str:
    return " ".join(text.translate(_UNMARKED).split()).rstrip(".\u2026\u3002 ")


_UNMARKED = dict.fromkeys(map(ord, "*`"))


@dataclass(slots=True, kw_only=True)
class _Piece:
    told: Told
    text: str
    tags: set[str]
    """What of the summary it has: keys of words, ``=name`` and ``#number``."""


class _Passages:
    """The sources of a summary in pieces, with an index of what of the summary's words each of them has."""

    def __init__(self, asked: Sequence[_Asked], sources: Iterable[Told]) -> None:
        self._wanted = _wanted(asked)
        self.pieces = [piece for told in sources for piece in self._cut(told)]
        self.places: dict[str, list[int]] = defaultdict(list)
        for index, piece in enumerate(self.pieces):
            for tag in piece.tags:
                self.places[tag].append(index)

    def _cut(self, told: Told) -> Iterator[_Piece]:
        text = encode_text(told.text)
        about = f"{told.about} {told.day:%B %A %Y}" if told.day else told.about
        always = self._tags(about)
        at = 0
        while at < len(text) or at == 0:
            after = at + PIECE
            if after < len(text):
                after = max(text.rfind(sign, at + 1, after) + 1 for sign in " \n") or after
            piece = text[at:after]
            yield _Piece(told=told, text=piece, tags=self._tags(piece) | always)
            at = after

    def _tags(self, text: str) -> set[str]:
        words = set(words_in_order(readable(text)))
        tags = {_key(word) for word in words}
        tags |= {f"={word}" for word in words}
        tags |= {f"#{number}" for number in numbers_in(text)}
        tags |= {f"#{WORDS_OF_NUMBERS[word]}" for word in words if word in WORDS_OF_NUMBERS}
        return tags & self._wanted

    def claim(self, number: int, asked: _Asked) -> Claim:
        items = self._items(asked)
        found = [self._compare(asked, items, center) for center in self._candidates(asked)]
        best = max(found, key=lambda match: match.rank, default=None)
        if best is None:
            best = _Match(share=0, missing=tuple(items))
        support = Support.PARTLY if best.missing or best.share < SUPPORTED else Support.SUPPORTED
        if best.quoted:
            support = Support.QUOTED
        elif best.share < PARTLY or any(not self._is_anywhere(item) for item in best.missing):
            support = Support.NONE
        return Claim(
            number=number,
            start=asked.start,
            end=asked.end,
            support=support,
            share=best.share,
            missing=tuple(item.text[:LONGEST_MISSING] for item in best.missing[:MOST_MISSING]),
            places=() if support is Support.NONE else self._rests_on(asked, items, best),
        )

    def _items(self, asked: _Asked) -> list[_Item]:
        """Return what a passage must have: a first word too, if the sources write it with a capital letter only."""
        word, plain = asked.begins_with, fold(asked.begins_with)
        known = self.places.get(f"={plain}", [])[:NAMED_IN] if word[:1].isupper() else []
        if known and not any(re.search(rf"\b{re.escape(word.lower())}\b", self.pieces[at].text) for at in known):
            return [_Item(kind=ItemKind.NAME, text=word, tags=frozenset({f"={plain}"})), *asked.items]
        return list(asked.items)

    def _candidates(self, asked: _Asked) -> list[int]:
        """Return the middles of the passages that have most of a sentence's words, those of rare words before others."""
        tags = sorted(asked.words) + sorted(_tags_of(asked.items))
        counts = [len(self.places.get(tag, ())) for tag in tags]
        scores: dict[int, float] = defaultdict(float)
        for term in choose_terms(counts, most=POSTINGS) if any(counts) else ():
            weight = log(1 + len(self.pieces) / counts[term])
            near = {at + step for at in self.places[tags[term]] for step in range(-REACH, REACH + 1)}
            for at in near:
                scores[at] += weight
            for at in self.places[tags[term]]:
                scores[at] += weight / 4  # The middle of a passage is where most of it is said.
        middles = ((score, -at) for at, score in scores.items() if 0 <= at < len(self.pieces))
        rarest = min((self.places.get(word, []) for word in asked.words), key=len, default=[])
        whole = (at for at in rarest[:POSTINGS] if asked.words <= self.pieces[at].tags)
        return [*(-at for _, at in nlargest(CANDIDATES, middles)), *islice(whole, CANDIDATES)]

    def _passage(self, center: int) -> list[_Piece]:
        return self.pieces[max(0, center - REACH) : center + REACH + 1]

    def _compare(self, asked: _Asked, items: Sequence[_Item], center: int) -> _Match:
        passage = self._passage(center)
        has = set().union(*(piece.tags for piece in passage))
        missing = tuple(item for item in items if not _has(passage, has, item))
        quoted = self._quoted(asked, passage) if not missing else None
        share = 100 * len(asked.words & has) // max(1, len(asked.words))
        return _Match(center=center, share=100 if quoted else share, missing=missing, quoted=quoted, items=len(items))

    def _quoted(self, asked: _Asked, passage: Sequence[_Piece]) -> Told | None:
        if len(asked.said) < SHORTEST_QUOTE:
            return None
        said: dict[int, str] = defaultdict(str)
        for piece in passage:
            said[id(piece.told)] += piece.text
        return next(
            (piece.told for piece in passage if find_words(_plain(said[id(piece.told)]), asked.said) is not None), None
        )

    def _is_anywhere(self, item: _Item) -> bool:
        """Return whether some source has an item. Names always count as found: models capitalise words that are no names."""
        if item.kind is ItemKind.NAME:
            return True
        if item.day:
            return any(_is_told(item.day, other) for other in self._days)
        if item.kind is ItemKind.NUMBER:
            return item.tags <= self.places.keys()
        where = min((self.places.get(_key(word), []) for word in item.key.split()), key=len, default=[])
        return any(item.key in _spaced(self.pieces[at].text) for at in where)

    @cached_property
    def _days(self) -> set[Day]:
        return set().union(*(_days_of(piece) for piece in self.pieces))

    def _rests_on(self, asked: _Asked, items: Sequence[_Item], match: _Match) -> tuple[Place, ...]:
        """Return the places of a passage that are needed for what it has of a sentence, the one that says most first chosen."""
        if match.quoted:
            return (Place(source_id=match.quoted.source_id, ref=match.quoted.ref),)
        left = asked.words | _tags_of(items)
        passage, chosen = self._passage(match.center), set[int]()
        least = len(left) * LEAST_GAIN
        while len(chosen) < MOST_PLACES:
            gains = [len(left & piece.tags) for piece in passage]
            gain = max(gains)
            if chosen and gain <= least:
                break
            at = gains.index(gain)
            chosen.add(at)
            left = left - passage[at].tags
        told = dict.fromkeys(passage[at].told for at in sorted(chosen))
        return tuple(Place(source_id=one.source_id, ref=one.ref) for one in told)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Match:
    center: int = 0
    share: int
    missing: tuple[_Item, ...]
    quoted: Told | None = None
    items: int = 0

    @property
    def rank(self) -> tuple[bool, float, int]:
        has = self.share * (1 + self.items - len(self.missing)) / (1 + self.items)
        return self.quoted is not None, has, -self.center


def _tags_of(items: Iterable[_Item]) -> set[str]:
    return {tag for item in items for tag in item.tags}


def _wanted(asked: Iterable[_Asked]) -> frozenset[str]:
    tags: set[str] = set()
    for one in asked:
        tags |= one.words | {f"={fold(one.begins_with)}"} | _tags_of(one.items)
    return frozenset(tags)


def _has(passage: Sequence[_Piece], tags: Collection[str], item: _Item) -> bool:
    if item.day:
        return any(_is_told(item.day, other) for piece in passage for other in _days_of(piece))
    if item.tags:
        return all(tag in tags for tag in item.tags)
    return any(item.key in _spaced(piece.text) for piece in passage)


def _spaced(text: str) -> str:
    return f" {' '.join(fold(text).split())} "


def _days_of(piece: _Piece) -> set[Day]:
    sent = piece.told.day
    known = {Day(month=sent.month, day=sent.day, year=sent.year)} if sent else set()
    return {*days_in(piece.text), *days_in(piece.told.about), *known}


def _is_told(day: Day, told: Day) -> bool:
    """Return whether a day may be one that was told. The year may be missing on either side, the day of the month may not."""
    return day.may_be(told) and (day.day is None or told.day is not None)
