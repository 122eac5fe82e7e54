"""Facts as values: what one says, how it stands, and which fact takes the place of which."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

LONGEST_STATEMENT = 300
LONGEST_SUBJECT = 100
USUAL_SALIENCE, HIGHEST_SALIENCE = 50, 100


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
    """The sessions whose prompts a fact reaches. Projects will add a word."""

    SESSION = "session"  # those of its own session
    PERSON = "person"  # those of every session that the owner of its session has in the same organisation
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
