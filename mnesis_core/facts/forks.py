"""The facts that a fork begins with: those that its copied messages support, and those that were forbidden."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from mnesis_core.facts.values import FactKind, FactMethod, FactRecord, FactState, NewFact, Place


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
