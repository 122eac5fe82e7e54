"""Words and exact queries: the words of an index and their forms, and the test and rating of a match, the same on every
database.

No database's own tokenizer decides anything: texts and queries become plain words here. Text is folded character for
character (lower case, no accents, a space for what is no letter or digit), so that a place in the folded text is the
same place in the text that is shown.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from heapq import merge
from itertools import chain, islice, pairwise, takewhile
from math import log, log1p
from typing import Protocol

import re2

from mnesis_core.errors import InvalidRequest, gettext_noop
from mnesis_core.text import printable_piece

LONGEST_QUERY = 1_000  # characters
LONGEST_WORD = 64  # Characters of a word that the index knows; PostgreSQL takes no lexeme over 2 kB.
SNIPPET_CHARACTERS = 160
MOST_PLACES = 500  # the most matches of one text that are looked at

# Scripts that put no spaces between words (Thai to Khmer, kana, Han), and Hangul, whose words take endings.
_UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff\U00020000-\U0003ffff"
)
_UNSPACED_RUN = re.compile(f"([{_UNSPACED}]+)")
_IN_WORD = f"[^ {_UNSPACED}]"
_HUMP = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+")
_ASKED = re.compile(r'"([^"]*)"([*]?)|(\S+)')
_BLANK = dict.fromkeys([*range(32), 127], " ")
_FUNCTION_WORDS = """
a about an and any are as at be been being by can could did do does doing during for from had has have having he her
hers him his how i if in into is it its may me might my no not of on or our ours s she should so some t than that the
their theirs them then there these they this those to us was we were what when where which who whom whose why will with
would you your yours
"""
FUNCTION_WORDS = frozenset(_FUNCTION_WORDS.split())
"""Words that are in a question because it is one. They say little about its answer."""

_IRREGULAR = """
become became; begin began begun; bend bent; bite bit bitten; blow blew blown; break broke broken; bring brought;
build built; burn burnt; buy bought; catch caught; child children; choose chose chosen; come came; deal dealt; dig dug;
draw drew drawn; dream dreamt; drink drank drunk; drive drove driven; eat ate eaten; fall fell fallen; feed fed;
feel felt; fight fought; find found; fly flew flown; foot feet; forget forgot forgotten; forgive forgave forgiven;
freeze froze frozen; get got gotten; give gave given; go goes going went gone; grow grew grown; hang hung; hear heard;
hide hid hidden; hold held; keep kept; know knew known; lead led; learn learnt; leave left; lend lent; life lives;
light lit; lose lost; make made; man men; mean meant; meet met; mouse mice; pay paid; person people; ride rode ridden;
ring rang rung; rise rose risen; run ran; say said; see saw seen; seek sought; sell sold; send sent; shake shook shaken;
shoot shot; show shown; sing sang sung; sink sank sunk; sit sat; sleep slept; speak spoke spoken; spend spent;
stand stood; steal stole stolen; stick stuck; strike struck; swear swore sworn; sweep swept; swim swam swum;
take took taken; teach taught; tear tore torn; tell told; think thought; throw threw thrown; tooth teeth;
understand understood; use used using; wake woke woken; wear wore worn; wife wives; win won; woman women; write wrote written
"""


class _Bases(dict[int, str]):
    """Map each character to one: the letter below an accent, or a space."""

    def __missing__(self, code: int) -> str:
        char = chr(code)
        bases = [base for base in unicodedata.normalize("NFKD", char) if not unicodedata.combining(base)]
        # A character that becomes several (a ligature, a Hangul syllable) stays as it is.
        [base] = bases if len(bases) == 1 else [char]
        # Signs inside words (category M, such as Hindi's vowels) are part of them.
        self[code] = base if base.isalnum() or unicodedata.category(base).startswith("M") else " "
        return self[code]


class _Fold(dict[int, str]):
    def __missing__(self, code: int) -> str:
        base = _BASES[code]
        # Some small letters fold too: the last sigma of a Greek word is a sigma.
        self[code] = next(lower for lower in (base.casefold(), base.lower(), base) if len(lower) == 1)
        return self[code]


_BASES, _FOLD = _Bases(), _Fold()


@dataclass(frozen=True, slots=True, kw_only=True)
class Snippet:
    text: str
    matches: tuple[tuple[int, int], ...]  # (first, after the last) character


@dataclass(frozen=True, slots=True, kw_only=True)
class IndexWord:
    text: str
    prefix: bool = False  # The text is only the beginning of a word.


def readable(text: str) -> str:
    """Return text as it is searched and shown: composed (NFC), with U+FFFD for a lone surrogate."""
    if text.isascii():
        return text
    return unicodedata.normalize("NFC", printable_piece(text))


def fold(text: str) -> str:
    """Return a text of the same length in lower case without accents, with a space for every other character."""
    return text.translate(_FOLD)


def words_of(text: str) -> set[str]:
    """Return the words that an index holds for a text.

    Identifiers are in it as a whole and in parts (``getUserName``: getusername, get, user, name); scripts without
    spaces as single characters and as pairs.
    """
    if text.isascii():
        return _truncate(_split_words(text))
    # Characters beyond ASCII take a hundred times as long, so only the words that have some go that way.
    distinct = set(text.split())
    plain = {word for word in distinct if word.isascii()}
    other = _split_words(readable(" ".join(distinct - plain)))
    return _truncate(_split_words(" ".join(plain)).union(*map(_split_unspaced, other)))


def words_in_order(text: str) -> list[str]:
    """Return the words of a readable text as it is asked for, with repetitions; of scripts without spaces the pairs."""
    pieces = _UNSPACED_RUN.sub(r" \1 ", fold(text)).split()
    return [word for piece in pieces for word in (_pairs(piece) or [piece] if is_unspaced(piece) else [piece])]


def _split_words(text: str) -> set[str]:
    cased = set(text.translate(_BASES).split())
    # A set of words is small: the slow work is done for few, and the rest of a text costs 10 microseconds a kilobyte.
    others = [word for word in cased if not word.islower()]
    words = cased.difference(others)
    words.update(map(fold, others))
    humps = [word for word in others if not (word[1:].islower() or word.isupper() or word.isdigit())]
    words.update(hump.lower() for word in humps for hump in _HUMP.findall(word))
    return words


def _truncate(words: set[str]) -> set[str]:
    return {word[:LONGEST_WORD] for word in words} if max(map(len, words), default=0) > LONGEST_WORD else words


def _split_unspaced(word: str) -> list[str]:
    if word.isascii():
        return [word]
    spaced = _UNSPACED_RUN.sub(r" \1 ", word).split()
    return [piece for run in spaced for piece in ([*run, *_pairs(run)] if is_unspaced(run) else [run])]


def _pairs(run: str) -> list[str]:
    return [first + second for first, second in pairwise(run)]


def is_unspaced(run: str) -> bool:
    """Return whether a word begins in a script that puts no spaces between words."""
    return _UNSPACED_RUN.match(run) is not None


@dataclass(frozen=True, kw_only=True)
class _Term:
    pieces: tuple[str, ...]  # one word, or several that stand side by side
    prefix: bool = False

    @cached_property
    def words(self) -> tuple[IndexWord, ...]:
        found = [word for piece in self.pieces[:-1] for word in self._index(piece, prefix=False)]
        return (*found, *self._index(self.pieces[-1], prefix=self.prefix))

    @staticmethod
    def _index(piece: str, *, prefix: bool) -> list[IndexWord]:
        if is_unspaced(piece):
            return [IndexWord(text=pair) for pair in _pairs(piece) or [piece]]
        return [IndexWord(text=piece[:LONGEST_WORD], prefix=prefix)]

    @property
    def needs_proof(self) -> bool:
        return len(self.words) > 1 or len(self.pieces[0]) > LONGEST_WORD

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        first, last = self.pieces[0], self.pieces[-1]
        # Look back from behind the first piece: a pattern that begins with plain letters is found much faster.
        before = "" if is_unspaced(first) else f"(?<!{_IN_WORD}{first})"
        after = "" if self.prefix or is_unspaced(last) else f"(?!{_IN_WORD})"
        # Between a Latin word and a Han one there may be no space.
        further = "".join(
            f"{' *' if is_unspaced(previous) or is_unspaced(piece) else ' +'}{piece}"
            for previous, piece in pairwise(self.pieces)
        )
        return re.compile(f"{first}{before}{further}{after}")

    def is_in(self, folded: str) -> bool:
        return all(piece in folded for piece in self.pieces) and self.pattern.search(folded) is not None


@dataclass(frozen=True, kw_only=True)
class WordQuery:
    terms: tuple[_Term, ...]

    @cached_property
    def words(self) -> tuple[IndexWord, ...]:
        return tuple(dict.fromkeys(word for term in self.terms for word in term.words))

    @cached_property
    def pieces(self) -> tuple[str, ...]:
        return tuple(piece for term in self.terms for piece in term.pieces)

    def rate(self, text: str) -> float:
        """Rate words that come often in a short text higher, and twice as high when they stand side by side as asked."""
        folded = fold(text)
        if not all(term.is_in(folded) for term in self.terms if term.needs_proof):
            return 0.0
        often = sum(1 + log(max(1, folded.count(term.pieces[0]))) for term in self.terms)
        together = 2.0 if len(self.terms) > 1 and " ".join(self.pieces) in folded else 1.0
        return together * often / (1 + log1p(len(text) / 1_000))

    def places(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield where the terms are, in order; inside longer words only if they are nowhere else."""
        folded = fold(text)
        patterns = [term.pattern for term in self.terms if term.pattern.search(folded)]
        patterns = patterns or list(map(re.compile, self.pieces))
        end = 0
        # Lazily, since most callers want only the first match.
        for match in merge(*(pattern.finditer(folded) for pattern in patterns), key=re.Match.span):
            if match.start() >= end:
                yield match.span()
                end = match.end()


@dataclass(frozen=True, kw_only=True)
class PatternQuery:
    """A regular expression in RE2's syntax, which takes linear time on every text."""

    pattern: re2._Regexp[str]
    words: tuple[IndexWord, ...] = ()  # No index helps.

    def rate(self, text: str) -> float:
        return 1.0 if self.pattern.search(text) else 0.0

    def places(self, text: str) -> Iterator[tuple[int, int]]:
        return (match.span() for match in self.pattern.finditer(text))


class Marks(Protocol):
    """A source of the places to mark in a text."""

    def places(self, text: str) -> Iterator[tuple[int, int]]: ...


# The ``words`` of a query are in the index of every text that matches it.
Query = WordQuery | PatternQuery


def parse_words(text: str) -> WordQuery:
    """Return a query as people type it: words that must all be there, ``"two words"`` side by side, ``begin*``.

    :raises InvalidRequest: it is too long, or has no word in it.
    """
    refuse_long(text)
    terms: dict[_Term, None] = {}  # a set in order
    for match in _ASKED.findall(re.sub("[“”„]", '"', readable(text))):
        asked = "".join(match)
        pieces = tuple(_UNSPACED_RUN.sub(r" \1 ", fold(asked)).split())
        if pieces:
            terms[_Term(pieces=pieces, prefix=asked.endswith("*"))] = None
    if not terms:
        raise InvalidRequest(
            gettext_noop("The search has no word in it. Search for punctuation with mode=regex."), field="q"
        )
    return WordQuery(terms=tuple(terms))


def parse_pattern(text: str) -> PatternQuery:
    """:raises InvalidRequest: it is too long, or not RE2 syntax (which has no look-around and no back references)."""
    refuse_long(text)
    options = re2.Options()
    options.log_errors = False
    try:
        return PatternQuery(pattern=re2.compile(text, options))
    except UnicodeEncodeError:
        raise InvalidRequest(gettext_noop("The pattern is not valid Unicode."), field="q") from None
    except re2.error as error:
        problem = error.args[0] if error.args else ""
        said = problem.decode(errors="replace") if isinstance(problem, bytes) else str(problem)
        raise InvalidRequest(
            gettext_noop("This is not a pattern that RE2 knows: %(said)s"), {"said": said[:200]}, field="q"
        ) from None


def refuse_long(text: str) -> None:
    """:raises InvalidRequest: a search is empty or too long."""
    if not text.strip():
        raise InvalidRequest(gettext_noop("The search is empty."), field="q")
    if len(text) > LONGEST_QUERY:
        raise InvalidRequest(
            gettext_noop("A search has at most %(most)s characters, not %(count)s."),
            {"most": LONGEST_QUERY, "count": len(text)},
            field="q",
        )


def snippet(text: str, query: Marks, *, size: int = SNIPPET_CHARACTERS, is_densest: bool = False) -> Snippet:
    """Return a piece of a text around the first match, or around most different ones, as one line."""
    text = text.translate(_BLANK)
    if is_densest:
        start, end = densest(text, query, size=size)
        known = islice(query.places(text), MOST_PLACES)
        places = iter([place for place in known if place[0] >= start])
    else:
        places = query.places(text)
        first = next(places, (0, 0))
        start = max(0, first[0] - size // 3)
        end = min(len(text), start + size)
        places = iter(chain([first], places))
    lead = "…" if start else ""
    shift = len(lead) - start
    inside = takewhile(lambda place: place[0] < end, places)
    matches = tuple((first + shift, min(last, end) + shift) for first, last in inside if first < last)
    return Snippet(text=lead + text[start:end] + ("…" if end < len(text) else ""), matches=matches)


def densest(text: str, query: Marks, *, size: int) -> tuple[int, int]:
    """Return where a piece of a text begins and ends that has most different matches, with some of what is before them."""
    places = list(islice(query.places(text), MOST_PLACES))
    best = _densest(fold(text), places, size - size // 3)
    first = places[best][0] if places else 0
    # Near the end of the text the piece begins earlier, so that it is full.
    start = min(max(0, first - size // 3), max(0, len(text) - size))
    return start, min(len(text), start + size)


def _densest(folded: str, places: Sequence[tuple[int, int]], size: int) -> int:
    """Return the place from which on a piece of a text has most different words, as near before the last of them as may be.

    What answers a question often follows its words, and would be cut off behind a piece that began earlier.
    """
    words = [folded[first:last] for first, last in places]
    counts: dict[str, int] = {}
    best, most, behind = 0, 0, 0
    for at, (start, _) in enumerate(places):
        while behind < len(places) and places[behind][1] <= start + size:
            counts[words[behind]] = counts.get(words[behind], 0) + 1
            behind += 1
        if len(counts) > most:
            best, most = at, len(counts)
        if behind > at:
            counts[words[at]] -= 1
            if not counts[words[at]]:
                del counts[words[at]]
    # Of all pieces that end where the last of these words comes first, the shortest one that has them all.
    last_places: dict[str, int] = {}
    for at, word in enumerate(words[best:], best):
        last_places[word] = at
        if len(last_places) == most:
            break
    return min(last_places.values(), default=best)


# The forms of a word: what else says the same thing, such as ``paints`` and ``painted`` for ``paint``.
#
# The index holds words as they were said. A question asks for all forms of its words, so nothing has to be known of a
# text when it is written, and a better list helps with old texts too. The endings are English ones; words of other
# languages are also found by their beginnings (``mnesis_core.search.ranking``).

_FAMILIES = [family.split() for family in _IRREGULAR.split(";")]
_BASE = {form: family[0] for family in _FAMILIES for form in family}

_VOWELS = frozenset("aeiouy")
_ENDINGS = ("ingly", "edly", "ings", "ing", "ied", "ers", "ed", "er", "ly")
SHORTEST = 3  # letters that an ending leaves


def stem_of(word: str) -> str:
    """Return what the regular forms of an English word have in common; a word of four letters or fewer may be its own."""
    word = _BASE.get(word, word)
    if len(word) <= SHORTEST or not word.isascii() or not word.isalpha():
        return word
    if word.endswith("ies") and len(word) > 4:
        word = f"{word[:-3]}y"
    elif word.endswith(("sses", "shes", "ches", "xes", "zes")):
        word = word[:-2]
    elif word.endswith("s") and not word.endswith(("ss", "us", "is")):
        word = word[:-1]
    ending = next((ending for ending in _ENDINGS if word.endswith(ending) and _may_end(word, ending)), "")
    if ending:
        word = word[: -len(ending)] + ("y" if ending == "ied" else "")
        if len(word) > SHORTEST and word[-1] == word[-2] and word[-1] not in "lsz":
            word = word[:-1]
    if word.endswith("e") and len(word) > SHORTEST:
        word = word[:-1]
    return f"{word[:-1]}i" if word.endswith("y") and len(word) > SHORTEST else word


def _may_end(word: str, ending: str) -> bool:
    rest = word[: -len(ending)]
    # A family is nothing that is done in the way of a "fami".
    return len(rest) >= SHORTEST and not _VOWELS.isdisjoint(rest) and not (ending == "ly" and rest.endswith("i"))


_IRREGULAR_FORMS = {stem_of(family[0]): family for family in _FAMILIES}


@lru_cache(maxsize=4_096)
def forms_of(word: str) -> tuple[str, ...]:
    """Return the word first, then its other forms, irregular ones too. Some that nobody uses are among them."""
    stem = stem_of(word)
    if len(stem) < SHORTEST and word not in _BASE:
        return (word,)
    regular: Iterable[str] = _regular(stem) if stem.isascii() and stem.isalpha() else ()
    # A herring is not hers.
    regular = (form for form in regular if form not in FUNCTION_WORDS and stem_of(form) == stem)
    return tuple(dict.fromkeys([word, *_IRREGULAR_FORMS.get(stem, ()), *regular]))


def _regular(stem: str) -> Iterator[str]:
    if stem.endswith("i"):
        yield from (stem[:-1] + ending for ending in ("y", "ies", "ied", "ier", "ying"))
        return
    yield from (stem + ending for ending in ("", "s", "es", "ed", "ing", "ings", "er", "ers", "ly"))
    yield from (stem + ending for ending in ("e", "ely"))
    if stem[-1] not in _VOWELS and stem[-2:-1] and stem[-2] in _VOWELS:
        yield from (stem + stem[-1] + ending for ending in ("ed", "ing", "er", "ers"))
