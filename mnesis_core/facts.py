"""Facts: what was said and holds until it is superseded or withdrawn, each bound to the words it rests on."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum

from mnesis_core.messages import StoredMessage, TextPart
from mnesis_core.search.words import readable, words_in_order
from mnesis_core.text import encode_text

LONGEST_STATEMENT = 300
LONGEST_SUBJECT = 100
USUAL_SALIENCE, HIGHEST_SALIENCE = 50, 100
LONGEST_QUOTE = 2_000
SPEAKERS = ("user", "assistant")
"""The roles whose words a fact may quote. A tool's output or a file states no fact by itself."""
_BEGINNING = (
    r"(?:^|[,;:.!>*(\"'\u201c\u2014-] ?|\b(?:please|pls|just|kindly|bitte) )(?:and |but |so |also |just |please )?"
)
_ORDERS = (
    r"remember(?! (?:when|the time|how|back)\b)(?:\b|:)|(?:do not|don['\u2019]?t|never) forget\b|(?:keep|bear) in mind\b"
    r"|make (?:a )?note\b|note (?:that|:)|take note\b|memori[sz]e\b"
    r"|merk(?:e)? (?:dir|es dir)\b|vergiss nicht\b|denk daran\b|recuerda\b|no olvides\b|souviens-toi\b|n['\u2019]oublie pas\b"
)
_RULES = (
    r"(?:always|never)\b(?! (?:happy|glad|here|nice|great|good|fun|a |an |the |mind\b|been|knew|thought|felt|heard|seen|had"
    r"|did|was|too late|again|say never|gets?\b|looks?\b|feels?\b))"
)
_REQUEST = re.compile(rf"{_BEGINNING}(?:{_ORDERS}|{_RULES})|\b(?:and|but|so|also) (?:{_ORDERS})", re.IGNORECASE)
_FROM_NOW_ON = re.compile(
    r"\bfrom now on\b|\bfrom (?:here|this point) on\b|\b(?:you|we) (?:must|should|shall|have to|need to) (?:always|never)\b"
    r"|\bab (?:jetzt|sofort)\b|\bvon nun an\b|\ba partir de ahora\b|\bd\u00e9sormais\b"
    r"|\u899a\u3048\u3066|\u5fd8\u308c\u306a\u3044\u3067|\u8bb0\u4f4f|\u4e0d\u8981\u5fd8",
    re.IGNORECASE,
)
_COMFORT = re.compile(
    r"\b(?:giv(?:e|ing) up|quit|believe in|keep going|you['\u2019]?(?:r|rs|re|ll|ve)?|yourself|dreams?)\b",
    re.IGNORECASE,
)
_STATED = re.compile(r"\d|(?<![.!?:] )(?<!^)\b(?!I\b)[A-Z]\w|:\s")


# Facts as values: what one says, how it stands, and which fact takes the place of which.


class FactKind(StrEnum):
    PREFERENCE = "preference"
    DECISION = "decision"
    CONSTRAINT = "constraint"
    ENTITY = "entity"  # what someone or something is: "my dog is Rex"
    OPEN_TASK = "open_task"
    INSTRUCTION = "instruction"


class FactState(StrEnum):
    LIVE = "live"
    SUPERSEDED = "superseded"
    WITHDRAWN = "withdrawn"
    FORBIDDEN = "forbidden"  # withdrawn, and no reflection may find it again


FORBIDDEN = "forbidden"
"""The ``ban`` of a forbidden fact; that of any other one is empty."""


class FactScope(StrEnum):
    """Where a fact was said: always in a session."""

    SESSION = "session"


class HeldFor(StrEnum):
    """The sessions whose prompts a fact reaches."""

    SESSION = "session"  # those of its own session
    PERSON = "person"  # those of every session that the owner of its session has in the same organisation
    PROJECT = "project"  # those of every session in the project that its own session is in
    ORGANISATION = "organisation"  # those of every session of the organisation


class FactMethod(StrEnum):
    PERSON = "person"
    MODEL = "model"
    RULE = "rule"  # what a summary had lost, carried over word for word


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """The characters of a message's part that a fact quotes, counted as the text is stored."""

    part_id: str
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NewFact:
    statement: str
    kind: FactKind
    said_at: datetime
    said_seq: int  # the number of the message it was said in; of a person's fact, the newest one then
    subject: str = ""
    valid_from: datetime | None = None
    valid_to: datetime | None = None
    salience: int = USUAL_SALIENCE
    method: FactMethod = FactMethod.PERSON
    model: str = ""  # the alias of the model that found it
    scope: FactScope = FactScope.SESSION
    places: tuple[Place, ...] = ()
    reflection_id: str | None = None  # that it was found by
    # Of a copy: the held fact that it is a copy of, and the session of that. ``said_seq`` is then a number there.
    of_fact_id: str = ""
    of_session_id: str = ""

    @property
    def is_copy(self) -> bool:
        return bool(self.of_fact_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class QuoteRecord:
    """A quotation of a fact, with the message that it is from."""

    part_id: str
    start: int
    end: int
    message_id: str
    seq: int
    role: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class FactRecord:
    id: str
    session_id: str
    scope: str
    kind: str
    subject: str
    statement: str
    said_at: datetime
    said_seq: int
    valid_from: datetime | None
    valid_to: datetime | None
    salience: int
    method: str
    model: str
    created_at: datetime
    created_seq: int
    superseded_by_id: str | None
    superseded_seq: int | None
    withdrawn_seq: int | None
    ban: str = ""
    held_for: str = HeldFor.SESSION
    of_fact_id: str = ""
    of_session_id: str = ""
    still_held: bool = True  # of a copy: whether the fact that it is a copy of still reaches this session
    quotes: tuple[QuoteRecord, ...] = ()

    @property
    def is_copy(self) -> bool:
        return bool(self.of_fact_id)

    @property
    def state(self) -> FactState:
        return state_of(superseded_seq=self.superseded_seq, withdrawn_seq=self.withdrawn_seq, ban=self.ban)


def state_of(*, superseded_seq: int | None, withdrawn_seq: int | None, ban: str = "") -> FactState:
    if ban:
        return FactState.FORBIDDEN
    if withdrawn_seq is not None:
        return FactState.WITHDRAWN
    return FactState.LIVE if superseded_seq is None else FactState.SUPERSEDED


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A live fact, as far as a new one of its subject has to know it."""

    id: str
    said_seq: int


def plain_subject(subject: str) -> str:
    """Return a subject as facts have it: case and white space do not make another one of it."""
    return " ".join(subject.casefold().split())


def superseded_by_new(standing: Iterable[Standing], *, said_seq: int) -> tuple[list[str], str | None]:
    """Return the live facts of the same subject and kind that a new fact supersedes, and the one that supersedes it.

    What was said later counts, whatever is written first: a leaf may be reflected on after a later one.
    """
    facts = list(standing)
    later = [fact for fact in facts if fact.said_seq > said_seq]
    if later:
        newest = max(later, key=lambda fact: fact.said_seq)
        return [fact.id for fact in facts if fact not in later], newest.id
    return [fact.id for fact in facts], None


# A quotation is a place in what was said, or it is none: the check that no fact is invented.


def find_quote(messages: Iterable[StoredMessage], quote: str) -> Place | None:
    """Return the first place where exactly these words were said; ``None`` if they were not.

    Every character counts, case and white space within the quotation too. A quotation begins and ends with whole words.
    """
    wanted = encode_text(quote.strip())
    if not wanted or len(wanted) > LONGEST_QUOTE:
        return None
    for message in messages:
        for stored in message.parts if message.role in SPEAKERS else ():
            if not isinstance(stored.part, TextPart):
                continue
            start = find_words(encode_text(stored.part.text), wanted)
            if start is not None:
                return Place(part_id=stored.id, start=start, end=start + len(wanted))
    return None


def find_words(text: str, wanted: str) -> int | None:
    """Return where a text has these characters first, with whole words at both ends; both texts as they are stored."""
    start = text.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        if not _is_within_word(text, start) and not _is_within_word(text, end):
            return start
        start = text.find(wanted, start + 1)
    return None


def _is_within_word(text: str, index: int) -> bool:
    return 0 < index < len(text) and _is_of_word(text[index - 1]) and _is_of_word(text[index])


def _is_of_word(character: str) -> bool:
    # Scripts without upper and lower case often have no spaces between words either, so any of their characters may begin one.
    return character.isdigit() or character.lower() != character.upper()


# Statements that a person has forbidden, recognised by their words.


def is_forbidden(statement: str, forbidden: Iterable[str]) -> bool:
    """Return whether a statement says the same as a forbidden one, contains it, or is contained in it.

    Words count in their order, as a search folds them: case, accents and punctuation make no difference.
    """
    said = _words(statement)
    return any(_contains(said, words) or _contains(words, said) for words in map(_words, forbidden))


def _words(text: str) -> list[str]:
    # Signs alone have no words, and are then what they are.
    return words_in_order(readable(text)) or text.split()


def _contains(words: Sequence[str], some: Sequence[str]) -> bool:
    size = len(some)
    return size > 0 and any(words[start : start + size] == some for start in range(len(words) - size + 1))


# Facts that other sessions hold: which of them a session copies, and which fact counts where they contradict its own.


def facts_to_copy(held: Iterable[FactRecord], there: Iterable[FactRecord], *, most: int) -> list[NewFact]:
    """Return copies of the held facts that a session is to take, the most salient first.

    What the session has copied or said before is left alone, whatever became of it since.

    :param held: facts of other sessions that reach this one
    :param there: every fact that the session has or had
    :param most: the number of copies that it may have, together with those that reach it already
    """
    known = list(there)
    copied = {fact.of_fact_id for fact in known}
    said = {_wording(fact) for fact in known if not fact.is_copy}
    new = {
        fact.id: replace(fact, of_fact_id=fact.id, of_session_id=fact.session_id)
        for fact in held
        if fact.id not in copied and _wording(fact) not in said
    }
    standing = [fact for fact in known if fact.state is FactState.LIVE and fact.still_held]
    copies = [fact for fact in without_contradictions([*standing, *new.values()]) if fact.is_copy]
    copies.sort(key=lambda fact: (-fact.salience, -fact.said_at.timestamp(), fact.id))
    return [
        NewFact(
            statement=fact.statement,
            kind=FactKind(fact.kind),
            subject=fact.subject,
            said_at=fact.said_at,
            said_seq=fact.said_seq,
            valid_from=fact.valid_from,
            valid_to=fact.valid_to,
            salience=fact.salience,
            method=FactMethod(fact.method),
            model=fact.model,
            of_fact_id=fact.of_fact_id,
            of_session_id=fact.of_session_id,
        )
        for fact in copies[: max(most, 0)]
        if fact.id in new
    ]


def without_contradictions(facts: Iterable[FactRecord]) -> list[FactRecord]:
    """Return facts without the copies that say again what another one says, and without what a copy contradicts or is contradicted by.

    Of the facts of one kind and subject that was said last counts, as far as one of them is a copy; numbers of
    messages cannot say which, since they are those of several sessions.
    """
    found = sorted(facts, key=lambda fact: (fact.is_copy, -fact.said_at.timestamp(), fact.id))
    by_subject: dict[tuple[str, str], list[FactRecord]] = defaultdict(list)
    for fact in found:
        by_subject[fact.kind, fact.subject or f"\0{fact.id}"].append(fact)
    left_out, seen = set[str](), set[tuple[str, str]]()
    for about in by_subject.values():
        if any(fact.is_copy for fact in about):
            last = max(about, key=lambda fact: (fact.said_at, not fact.is_copy))
            left_out |= {fact.id for fact in about if fact is not last}
    for fact in found:
        words = (fact.kind, fact.statement)
        if fact.id not in left_out and fact.is_copy and words in seen:
            left_out.add(fact.id)
        elif fact.id not in left_out:
            seen.add(words)
    return [fact for fact in found if fact.id not in left_out]


def _wording(fact: FactRecord) -> tuple[str, str, str]:
    return fact.kind, fact.subject, fact.statement


# The facts that a fork begins with: those that its copied messages support, and those that were forbidden.


@dataclass(frozen=True, slots=True, kw_only=True)
class Copied:
    """What a fork copied of its original."""

    parts: Mapping[str, str]  # the id of a part there -> that of its copy
    seqs: Sequence[int]  # the numbers that its messages have there, in order; its own count from 1

    def has(self, fact: FactRecord) -> bool:
        """Return whether a fact rests on what was copied; a person's word without a quotation, if it was written by then.

        A copy of another session's fact rests on nothing here, and is there whatever was copied.
        """
        if fact.is_copy:
            return True
        if fact.quotes:
            return all(quote.part_id in self.parts for quote in fact.quotes)
        return bool(self.seqs) and fact.said_seq <= self.seqs[-1]


def facts_of_fork(facts: Iterable[FactRecord], copied: Copied) -> list[NewFact]:
    """Return the facts of the original that hold in the fork, in the order given.

    A fact that was superseded by what was said after the fork's last message holds in the fork; one that a person corrected
    does not.
    """
    known = {fact.id: fact for fact in facts}
    return [_copy(fact, copied) for fact in known.values() if copied.has(fact) and _holds(fact, known, copied)]


def forbidden_of_fork(facts: Iterable[FactRecord], copied: Copied) -> list[NewFact]:
    """Return what was forbidden in the original, whether or not the fork has the words that it rests on."""
    return [_copy(fact, copied) for fact in facts if fact.state is FactState.FORBIDDEN]


def _holds(fact: FactRecord, known: Mapping[str, FactRecord], copied: Copied) -> bool:
    if fact.state is not FactState.SUPERSEDED:
        return fact.state is FactState.LIVE
    later = known[fact.superseded_by_id or ""]
    return bool(later.quotes) and not copied.has(later)


def _copy(fact: FactRecord, copied: Copied) -> NewFact:
    is_there = copied.has(fact)
    return NewFact(
        statement=fact.statement,
        kind=FactKind(fact.kind),
        subject=fact.subject,
        said_at=fact.said_at,
        said_seq=fact.said_seq if fact.is_copy else bisect_right(copied.seqs, fact.said_seq),
        valid_from=fact.valid_from,
        valid_to=fact.valid_to,
        salience=fact.salience,
        # What rests on words that the fork does not have is there because a person forbade it.
        method=FactMethod(fact.method) if is_there else FactMethod.PERSON,
        model=fact.model if is_there else "",
        places=tuple(
            Place(part_id=copied.parts[quote.part_id], start=quote.start, end=quote.end)
            for quote in (fact.quotes if is_there else ())
        ),
        of_fact_id=fact.of_fact_id,
        of_session_id=fact.of_session_id,
    )


# Requests to remember something: "Remember: …", "don't forget …", "from now on", "always …", "never …".
#
# They are recognised in English and, less completely, in a few other languages. Ordinary talk such as "I remember that
# day" or "I have never been there" is no request, so the words count only at the beginning of a sentence, after a
# punctuation mark, or after a word such as "please".


def asks_to_remember(text: str, *, people: Sequence[str] = ()) -> bool:
    """Return whether a sentence asks to be remembered.

    Between people, words of comfort count only with a number, a third person's name or a colon.
    """
    if text.endswith("?") or not (_REQUEST.search(text) or _FROM_NOW_ON.search(text)):
        return False
    if not people or not _COMFORT.search(text):
        return True
    for name in people:
        text = text.replace(name, "")
    return _STATED.search(text) is not None
