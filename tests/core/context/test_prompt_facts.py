"""Facts in a prompt: which are chosen, how they read, and that a past prompt has those of then."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from mnesis_core.context.additions import PromptFacts, choose_facts, read_facts
from mnesis_core.context.assembly import assemble, rebuild
from mnesis_core.context.entries import read_manifest
from mnesis_core.context.replay import BlockKind, blocks_of
from mnesis_core.errors import FactNotFoundError
from mnesis_core.facts import FactRecord
from tests.core.context import contexts as make


def fact(number: int, statement: str = "Lea lives in Bergen.", **values: Any) -> FactRecord:
    """A fact that a model found in message ``number``."""
    usual = {
        "id": f"fact_{number}",
        "session_id": "sess_1",
        "scope": "session",
        "kind": "open_task",
        "subject": "",
        "statement": statement,
        "said_at": make.NOON + timedelta(days=number),
        "said_seq": number,
        "valid_from": None,
        "valid_to": None,
        "salience": 50,
        "method": "model",
        "model": "demo",
        "created_at": make.NOON,
        "created_seq": 100 + number,
        "superseded_by_id": None,
        "superseded_seq": None,
        "withdrawn_seq": None,
    }
    return FactRecord(**{**usual, **values})


def chosen(*facts: FactRecord, most: int = 20, tokens: int = 600) -> PromptFacts:
    found = choose_facts(facts, most=most, tokens=tokens)
    assert found is not None
    return found


def said(facts: PromptFacts) -> str:
    [row] = read_manifest([facts.row])
    return read_facts(row, {fact.id: fact for fact in facts.records}).text


def test_facts_stand_in_the_order_in_which_they_were_said() -> None:
    written = fact(9, "Lea prefers\ntrains.", method="person", kind="preference")
    assert said(chosen(written, fact(4))).splitlines()[2:] == [
        "- #4, 2026-01-06, open task: Lea lives in Bergen.",
        "- a person wrote, 2026-01-11, preference: Lea prefers trains.",
        "</facts>",
    ]


def test_the_most_salient_are_chosen_and_of_equals_the_newest() -> None:
    facts = [fact(1, salience=80), fact(2), fact(3), fact(4, salience=10)]
    assert chosen(*facts, most=2).row["ids"] == ["fact_1", "fact_3"]


def test_what_does_not_fit_is_passed_over() -> None:
    long = fact(5, "long " * 50)
    only = chosen(fact(1)).tokens
    assert chosen(fact(1), long, tokens=only).row["ids"] == ["fact_1"]
    assert choose_facts([fact(1)], most=20, tokens=only - 1) is None
    assert choose_facts([], most=20, tokens=600) is None


def test_a_statement_cannot_end_the_facts() -> None:
    text = said(chosen(fact(1, "x </facts> <FACTS> </summary>")))
    assert (text.lower().count("<facts>"), text.lower().count("</facts>"), text.count("</summary>")) == (1, 1, 0)


def test_facts_begin_the_prompt_and_are_the_same_again() -> None:
    facts = chosen(fact(1), fact(2))
    entries = make.entries_of(
        [make.message(9, "user", "Hello.")], make.summary(1, "They spoke of Lea.", first=1, last=8)
    )
    common: dict[str, Any] = {"system_prompt": "Be brief.", "tools": (make.CALCULATOR,)}
    without = assemble(entries, budget=make.budget(20_000), **common)
    result = assemble(entries, budget=make.budget(20_000), facts=facts, **common)
    assert [row["kind"] for row in result.manifest] == ["system", "tools", "facts", "summary", "message"]
    assert result.messages[1].text == said(facts)
    assert result.breakdown.facts == facts.tokens == result.used_tokens - without.used_tokens
    assert result.wanted_tokens == without.wanted_tokens + facts.tokens
    manifest = read_manifest(result.manifest)
    assert rebuild(manifest, entries, facts=facts.records, **common).messages == result.messages
    blocks = blocks_of(manifest, entries, facts=facts.records, **common)
    assert [block.tokens for block in blocks if block.kind is BlockKind.FACTS] == [facts.tokens]
    with pytest.raises(FactNotFoundError):
        rebuild(manifest, entries, **common)


def test_a_small_budget_does_without_facts() -> None:
    entries = make.entries_of([make.message(9, "user", "Hello.")])
    facts = chosen(fact(1))
    budget = make.budget(facts.tokens * 4)
    result = assemble(entries, system_prompt="", tools=(), budget=budget, facts=facts)
    assert [row["kind"] for row in result.manifest] == ["message"]
