"""Facts that other sessions hold: which of them a session copies, and which fact counts where they contradict its own."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import replace

from mnesis_core.facts.values import FactKind, FactMethod, FactRecord, FactState, NewFact


def facts_to_copy(held: Iterable[FactRecord], there: Iterable[FactRecord], *, most: int) -> list[NewFact]:
    """Return copies of the held facts that a session is to take, the most salient first.

    What the session has copied or said before is left alone, whatever became of it since.

    :param held: facts of other sessions that reach this one
    :param there: every fact that the session has or had
    :param most: the number of copies that it may have, together with those that reach it already
    """
    known = list(there)
    copied = {fact.of_fact_id for fact in known}
    said = {_words(fact) for fact in known if not fact.is_copy}
    new = {
        fact.id: replace(fact, of_fact_id=fact.id, of_session_id=fact.session_id)
        for fact in held
        if fact.id not in copied and _words(fact) not in said
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


def _words(fact: FactRecord) -> tuple[str, str, str]:
    return fact.kind, fact.subject, fact.statement
