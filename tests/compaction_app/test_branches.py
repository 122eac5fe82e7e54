"""Random trees over the real stores: talking, going back, switching, compacting and forking in any order, and nothing is lost.

The test keeps the parent of every message, as no row does. By that, each branch's context must stand for every message of
its path once and in order and for nothing else, now and as of each earlier event.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from agents_app.turns import lifecycle
from agents_app.turns.branches import choose_branch, continue_after
from audit_app.proof.verify import verify_session
from compaction_app import revise
from compaction_app.compact import compact_now
from compaction_app.context import build_context, load_state
from compaction_app.queries import cover, list_summaries
from mnesis_core.context.entries import SummaryEntry
from mnesis_core.messages import Message, TextPart
from mnesis_core.records import SessionRecord, TurnState
from sessions_app.record import branch_queries, message_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import load_session
from tests.support.second_opinion import assert_agreed

pytestmark = pytest.mark.both_databases

WORDS = "The harbour office moved its ledgers to the new building in March. "
CONFIG = {"context_window": 4_000, "compaction": {"model": "demo", "max_compaction_rounds": 3}}


@dataclass
class Talk:
    session: SessionRecord
    tip: str = ""
    parents: dict[str, str] = field(default_factory=dict)
    past: list[tuple[int, list[str], list[str]]] = field(default_factory=list)
    """(event, what the context stood for, its items) after each step."""

    def line(self, tip: str) -> list[str]:
        found = []
        while tip:
            found.append(tip)
            tip = self.parents[tip]
        return found[::-1]

    def say(self, size: int, *, after: str | None = None) -> None:
        with change(self.session.id) as record:
            if after is not None:
                continue_after(record, after or "root")
                self.tip = after
            turn_id = turn_store.start_turn(record, model="demo")
            for role in ("user", "assistant"):
                said = Message(role=role, parts=(TextPart(text=f"{len(self.parents)}: {WORDS * size}"),))
                id = message_store.append_message(record, turn_id=turn_id, message=said)
                self.parents[id], self.tip = self.tip, id
            turn_store.finish_turn(record, turn_id, state=TurnState.COMPLETED)

    def choose(self, which: int) -> None:
        number = which % (load_session(self.session.id).branch_seq + 1)
        choose_branch(self.session.id, number, owner_id=self.session.owner_id)
        self.tip = self.tip_of(number)

    def tip_of(self, number: int) -> str:
        path = branch_queries.load_path(self.session.id, number)
        messages = load_messages(self.session.id, limit=10_000, path=path)
        return messages[-1].id if messages else ""

    def expanded(self, **place: int) -> tuple[list[str], list[str]]:
        sources = {summary.id: [id for _, id in summary.source_ids] for summary in list_summaries(self.session.id)}

        def down(id: str) -> list[str]:
            return [found for source in sources[id] for found in down(source)] if id in sources else [id]

        entries = load_state(self.session.id, **place).entries
        items = [entry.id if isinstance(entry, SummaryEntry) else entry.message.id for entry in entries]
        return [found for item in items for found in down(item)], items

    def revise(self, which: int) -> None:
        newest = [summary for summary in list_summaries(self.session.id) if summary.superseded_seq is None]
        if newest:
            revise.apply(revise.preview(newest[which % len(newest)].id, owner_id=self.session.owner_id))

    def note(self) -> None:
        seq = load_session(self.session.id).event_seq
        self.past.append((seq, *self.expanded()))

    def check(self) -> None:
        report = verify_session(self.session.id)
        assert report.problems == []
        assert_agreed(self.session.id, report)
        for number in range(load_session(self.session.id).branch_seq + 1):
            assert self.expanded(branch=number)[0] == self.line(self.tip_of(number))
        assert self.expanded()[0] == self.line(self.tip)
        assert cover(self.session.id).ok
        for seq, stood_for, items in self.past:
            assert self.expanded(at=seq) == (stood_for, items)
        built = build_context(self.session.id)
        path = {message.id for message in load_messages(self.session.id, limit=10_000)} & set(self.line(self.tip))
        shown = {id for message in built.assembled.messages for id in message.source_ids if id.startswith("msg_")}
        assert shown <= path


steps = st.lists(
    st.one_of(
        st.tuples(st.just("say"), st.integers(1, 12)),
        st.tuples(st.just("say"), st.integers(1, 12)),
        st.tuples(st.just("back"), st.integers(0, 60), st.integers(1, 12)),
        st.tuples(st.just("choose"), st.integers(0, 9)),
        st.tuples(st.just("compact")),
        st.tuples(st.just("revise"), st.integers(0, 9)),
    ),
    min_size=8,
    max_size=30,
)


def walk(talk: Talk, chosen: list[tuple[str, int]]) -> None:
    for kind, *numbers in chosen:
        match kind:
            case "say":
                talk.say(*numbers)
            case "back":
                places = ["", *talk.parents]
                talk.say(numbers[1], after=places[numbers[0] % len(places)])
            case "choose":
                talk.choose(*numbers)
            case "revise":
                talk.revise(*numbers)
            case _:
                compact_now(talk.session.id)
        talk.note()


@pytest.mark.slow
@pytest.mark.parametrize("trees", [25, pytest.param(600, marks=pytest.mark.soak)])
def test_every_branch_stands_for_its_path_whatever_was_done(alice, script, trees: int) -> None:
    script(lambda request: "- The ledgers moved.", window=4_000)

    @settings(
        max_examples=trees,
        deadline=None,
        database=None,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(steps)
    def run(chosen: list[tuple[str, int]]) -> None:
        talk = Talk(session=lifecycle.create_session(owner=alice, config=CONFIG))
        walk(talk, chosen)
        talk.check()

    run()


def test_a_shared_beginning_is_summarised_once_and_serves_all_branches(alice, script) -> None:
    model = script(lambda request: "- The ledgers moved.", window=4_000)
    talk = Talk(session=lifecycle.create_session(owner=alice, config=CONFIG))
    for _ in range(8):
        talk.say(8)
    shared = talk.tip
    for _ in range(3):
        talk.say(2)
    talk.say(2, after=shared)
    talk.say(2)
    compact_now(talk.session.id)
    asked = len(model.requests)
    assert asked
    made = {summary.id for summary in list_summaries(talk.session.id)}
    for number in (0, 1):
        _, items = talk.expanded(branch=number)
        assert made & set(items)
    talk.check()


def test_a_branch_from_the_middle_of_a_summary_reads_the_originals(alice, script) -> None:
    script(lambda request: "- The ledgers moved.", window=4_000)
    talk = Talk(session=lifecycle.create_session(owner=alice, config=CONFIG))
    for _ in range(8):
        talk.say(8)
    middle = list(talk.parents)[5]
    compact_now(talk.session.id)
    assert list_summaries(talk.session.id)
    talk.say(2, after=middle)
    assert talk.expanded()[1] == talk.line(talk.tip)
    compact_now(talk.session.id)
    talk.choose(0)
    compact_now(talk.session.id)
    talk.check()
