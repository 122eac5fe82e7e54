"""Which facts of other sessions one copies, and which of two that contradict each other a prompt has."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from mnesis_core.context.additions import choose_facts
from mnesis_core.facts import FactRecord, facts_to_copy, without_contradictions

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


def fact(id: str, statement: str = "", *, hours: int = 0, of: str = "", **values: object) -> FactRecord:
    """A live fact, said some hours after noon; ``of`` makes it a copy."""
    usual = {
        **{"id": id, "session_id": "sess_b", "scope": "session", "kind": "entity", "subject": "", "salience": 50},
        **{"statement": statement or id, "said_at": NOON + timedelta(hours=hours), "said_seq": 1, "method": "model"},
        **{"model": "demo", "created_at": NOON, "created_seq": 1, "superseded_by_id": None, "superseded_seq": None},
        **{"valid_from": None, "valid_to": None, "withdrawn_seq": None, "of_fact_id": of},
    }
    return FactRecord(**usual | values)  # type: ignore[arg-type]


def ids(facts: list[FactRecord]) -> set[str]:
    return {fact.id for fact in facts}


def test_of_two_facts_about_one_subject_the_last_one_counts_if_one_is_a_copy():
    own, copy = fact("own", hours=1, subject="tea"), fact("copy", subject="tea", of="there")
    assert ids(without_contradictions([own, copy])) == {"own"}
    assert ids(without_contradictions([own, replace(copy, said_at=NOON + timedelta(hours=2))])) == {"copy"}
    assert ids(without_contradictions([own, replace(copy, said_at=own.said_at)])) == {"own"}
    assert ids(without_contradictions([own, replace(copy, kind="decision")])) == {"own", "copy"}
    assert ids(without_contradictions([own, fact("second", subject="tea")])) == {"own", "second"}
    assert ids(without_contradictions([fact("one"), fact("two", of="there")])) == {"one", "two"}


def test_a_copy_that_says_the_same_again_is_left_out():
    said = [fact("own", "Tea."), fact("copy", "Tea.", hours=1, of="a"), fact("other", "Tea.", of="b", kind="decision")]
    assert ids(without_contradictions(said)) == {"own", "other"}
    assert len(without_contradictions([fact("one", "Tea.", of="a"), fact("two", "Tea.", of="b")])) == 1


def test_a_session_takes_the_most_salient_facts_that_it_has_not_had():
    held = [fact("known"), fact("stated", "Tea."), fact("great", salience=90), fact("small", salience=10)]
    there = [fact("copy", of="known", withdrawn_seq=7), fact("own", "Tea.", withdrawn_seq=9)]
    assert [new.of_fact_id for new in facts_to_copy(held, there, most=9)] == ["great", "small"]
    assert [new.of_fact_id for new in facts_to_copy(held, there, most=1)] == ["great"]
    assert facts_to_copy(held, there, most=0) == []
    # What it has copied before counts, as long as it reaches the session.
    older = fact("older", salience=50, of="elsewhere")
    assert [new.of_fact_id for new in facts_to_copy(held, [*there, older], most=2)] == ["great"]
    gone = replace(older, still_held=False)
    assert [new.of_fact_id for new in facts_to_copy(held, [*there, gone], most=2)] == ["great", "small"]


def test_a_prompt_has_no_more_copies_than_it_may_and_of_equals_the_session_s_own():
    facts = [fact("own"), *(fact(f"copy {number}", of=f"of {number}", hours=number) for number in range(3))]
    few = choose_facts(facts, most=9, tokens=999, most_copies=2)
    assert few is not None
    assert [one.is_copy for one in few.records] == [True, True, False]
    one = choose_facts(facts, most=1, tokens=999, most_copies=2)
    assert one is not None
    assert ids(list(one.records)) == {"own"}
