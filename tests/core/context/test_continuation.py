"""A prompt begins with what the call before was sent: for any session, and not where that would show too little."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mnesis_core.context.additions import Found, Passages, PromptFacts, choose_facts, choose_passages
from mnesis_core.context.assembly import assemble, rebuild
from mnesis_core.context.continuation import SentPrompt
from mnesis_core.context.entries import Assembled, ContextEntry, MessageEntry
from mnesis_core.context.fitting import whole
from mnesis_core.context.manifests import fold_manifest, outlines_of, unfold_manifest
from mnesis_core.messages import StoredMessage, ToolPart
from mnesis_core.search.ranking import parse_question
from tests.core.context import contexts as make
from tests.core.context.test_prompt_facts import fact

SUMMARY = make.summary(1, make.prose(200), first=1, last=9)
QUOTED = make.message(3, "assistant", f"The gauge at Portwell reads nine. {make.prose(60)}")
TASK = make.message(8, "user", "Read the gauges.")
FACTS = [fact(1), fact(2, "The crane waits."), fact(4, "The gauge is new.")]


def passages_for(question: StoredMessage) -> Passages | None:
    wanted = parse_question("What does the gauge at Portwell read?")
    found = choose_passages([[Found(message=QUOTED, rank=0)]], wanted, most=5, tokens=500)
    return found and found.before(question.id)


def facts_of(number: int) -> PromptFacts | None:
    return choose_facts(FACTS[:number], most=20, tokens=600)


def prompt(
    entries: Sequence[ContextEntry], last: Assembled | None = None, *, usable: int = 8_000, **beside: Any
) -> Assembled:
    """The prompt behind the last one, which was folded and unfolded as a call keeps it."""
    sent, new = None, None
    if last is not None:
        before = entries[: beside.pop("before", len(entries) - 1)]
        rows = unfold_manifest(fold_manifest(last.manifest, before), outlines_of(before), at=0)
        told = {id for row in rows if row["kind"] == "facts" for id in row["ids"]}
        known = FACTS[: beside.get("known_facts", 0)]
        new = choose_facts([each for each in known if each.id not in told], most=20, tokens=600)
        facts = [each for each in FACTS if each.id in told]
        sent = SentPrompt(rows=rows, messages=[QUOTED, TASK], facts=facts, new_facts=new)
    return assemble(
        entries,
        system_prompt="Be brief.",
        tools=(make.CALCULATOR,),
        budget=make.budget(usable),
        facts=facts_of(beside.get("known_facts", 0)),
        sent=sent,
        **{name: value for name, value in beside.items() if name != "known_facts"},
    )


said = st.lists(
    st.tuples(st.sampled_from(["user", "assistant", "assistant"]), st.lists(make.parts, max_size=3)),
    min_size=2,
    max_size=9,
)


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(said, st.sampled_from([4_000, 12_000]), st.integers(0, 3))
@example(
    said=[
        ("user", [make.text("Read.")]),
        ("assistant", [make.tool(output=make.prose(300))]),
        ("user", [make.text("And?")]),
    ],
    usable=8_000,
    facts=1,
)
def test_what_was_sent_changes_in_no_session_while_there_is_room(said: list[Any], usable: int, facts: int) -> None:
    entries: list[ContextEntry] = [SUMMARY]
    last: Assembled | None = None
    for seq, (role, parts) in enumerate(said, start=10):
        message = make.message(seq, role, *parts)
        entries = [*entries, MessageEntry(position=seq, message=message)]
        asks = role == "user"
        passages = passages_for(message) if asks else None
        pinned = [] if any(role == "user" for role, _ in said[: seq - 9]) else [TASK]
        now = prompt(entries, last, usable=usable, passages=passages, pinned=pinned, known_facts=min(facts, seq - 10))
        assert now.used_tokens <= usable
        read = [MessageEntry(position=0, message=each) for each in (QUOTED, TASK)]
        again = rebuild(
            now.manifest, [*read, *entries], system_prompt="Be brief.", tools=(make.CALCULATOR,), facts=FACTS
        )
        assert again.messages == now.messages
        if last is not None and now.messages[: len(last.messages)] != last.messages:
            rows = [row["kind"] for row in last.manifest]
            more = (passages.tokens if passages else 0) + 200 * asks
            is_full = last.used_tokens + whole(entries[-1]).tokens + more > usable
            end = len(rows) - 1 - rows[::-1].index("retrieved") if asks and "retrieved" in rows else 0
            assert is_full or now.manifest[:end] == last.manifest[:end] != []
        last = now


def agent_turn(first: int, *sizes: int) -> list[ContextEntry]:
    """A question and a step of so many tokens each."""
    steps = [
        make.message(seq, "assistant", make.tool(output=make.prose(size), tool_call_id=f"call_{seq}"))
        for seq, size in enumerate(sizes, start=first + 1)
    ]
    return make.entries_of([make.message(first, "user", f"What does the gauge of dock {first} read?"), *steps])


def question_of(entries: Sequence[ContextEntry]) -> StoredMessage:
    return next(
        entry.message for entry in reversed(entries) if isinstance(entry, MessageEntry) and entry.message.role == "user"
    )


def kinds(shown: Assembled) -> list[str]:
    return [row["kind"] for row in shown.manifest if row["kind"] not in ("system", "tools")]


@pytest.mark.parametrize(("size", "stay"), [(200, True), (10, False)])
def test_passages_stay_before_a_long_turn_and_leave_before_a_short_one(size: int, stay: bool) -> None:
    turn = [SUMMARY, *agent_turn(10, size)]
    last = prompt(turn, passages=passages_for(question_of(turn)), pinned=[TASK])
    assert kinds(last) == ["summary", "pinned", "retrieved", "message", "message"]
    more = [*turn, *agent_turn(12)]
    now = prompt(more, last, passages=passages_for(question_of(more)))
    first = [*(["retrieved"] if stay else []), "message", "message"]
    assert kinds(now) == ["summary", "pinned", *first, "retrieved", "message"]
    assert (now.messages[: len(last.messages)] == last.messages) is stay
    assert now.breakdown.passages == sum(passages_for(TASK).tokens for kind in kinds(now) if kind == "retrieved")


def test_a_fact_that_is_new_comes_with_the_next_question_and_a_refill_does_not_come_back() -> None:
    turn = [SUMMARY, *agent_turn(10, 100)]
    last = prompt(turn, known_facts=1)
    step = [*turn, *make.entries_of([make.message(12, "assistant", "Done.")])]
    same = prompt(step, last, known_facts=2, refill=[TASK], refill_room=900)
    assert kinds(same) == ["facts", "summary", "message", "message", "message"]
    asked = [*step, *agent_turn(13)]
    now = prompt(asked, same, known_facts=2)
    assert kinds(now) == [*kinds(same), "facts", "message"]
    assert [row["ids"] for row in now.manifest if row["kind"] == "facts"] == [["fact_1"], ["fact_2"]]
    assert "The crane waits." in now.messages[-2].text


def tombstoned(entry: ContextEntry) -> ContextEntry:
    assert isinstance(entry, MessageEntry)
    [stored] = entry.message.parts
    assert isinstance(stored.part, ToolPart)
    gone = replace(stored, part=replace(stored.part, compacted_at=make.NOON))
    return replace(entry, message=replace(entry.message, parts=(gone,)))


def test_after_a_compaction_a_prompt_is_made_anew() -> None:
    question, first, second = agent_turn(10, 300, 300)
    last = prompt([SUMMARY, question, first], pinned=[TASK])
    sent = SentPrompt(rows=last.manifest, messages=[TASK])
    other = make.summary(2, make.prose(100), first=1, last=9)
    for entries in (
        [SUMMARY, question, tombstoned(first), second],
        [other, question, first, second],
        [question, first],
    ):
        arguments: dict[str, Any] = {
            "system_prompt": "Be brief.",
            "tools": (make.CALCULATOR,),
            "budget": make.budget(8_000),
        }
        assert assemble(entries, sent=sent, **arguments) == assemble(entries, **arguments)
    whole_context, between = [SUMMARY, question, first], replace(other, position=9)
    for entries, pinned in (
        ([SUMMARY, between, question, first], []),
        (whole_context, [make.message(7, "user", "And?")]),
    ):
        assert assemble(entries, sent=sent, pinned=pinned, **arguments) == assemble(entries, pinned=pinned, **arguments)
    forgotten = SentPrompt(rows=prompt([SUMMARY, question], known_facts=2).manifest, facts=FACTS[:1])
    assert assemble([SUMMARY, question], sent=forgotten, **arguments) == assemble([SUMMARY, question], **arguments)


def test_what_was_left_out_for_lack_of_room_comes_back_when_there_is_some() -> None:
    turn = [SUMMARY, *agent_turn(10, 2_000, 2_000)]
    last = prompt(turn, usable=3_000)
    assert "gap" in kinds(last) or any(row.get("shortened") for row in last.manifest)
    assert kinds(prompt(turn, last, before=len(turn), usable=8_000)) == ["summary", "message", "message", "message"]


def test_passages_may_quote_a_message_of_the_context_that_there_is_no_room_for() -> None:
    old = make.message(11, "assistant", f"The gauge at Portwell reads nine. {make.prose(60)}")
    later = make.message(13, "assistant", make.prose(1_200))
    talk = make.entries_of([make.message(10, "user", "Read it."), old, make.message(12, "user", "More."), later])
    turn = [SUMMARY, *talk, *agent_turn(14, 20)]
    found = choose_passages(
        [[Found(message=old, rank=0)]], parse_question("What does the gauge at Portwell read?"), most=5, tokens=200
    )
    assert found is not None
    last = prompt(turn, passages=found.before(question_of(turn).id), usable=1_500)
    assert {"gap", "retrieved"} <= {*kinds(last)}
    assert old.id not in [row["id"] for row in last.manifest]
    now = prompt([*turn, *make.entries_of([make.message(16, "assistant", "Nine.")])], last, usable=1_500)
    assert kinds(now) == [*kinds(last), "message"]
    assert now.messages[: len(last.messages)] == last.messages
