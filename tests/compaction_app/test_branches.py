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
from compaction_app.compact import compact_now, compact_session, request_manual
from compaction_app.context.manifests import load_manifest
from compaction_app.context.state import build_context, load_state, rebuild_payload
from compaction_app.queries import cover, list_summaries
from mnesis_core.context.branches import LINE
from mnesis_core.context.entries import MessageEntry, SummaryEntry
from mnesis_core.errors import ContextChanged
from mnesis_core.messages import Message, TextPart
from mnesis_core.records import SessionRecord, TurnState
from sessions_app.record import branch_queries, context_queries, message_queries, message_store, turn_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import load_session
from sessions_app.record.timeline_queries import load_context_page
from sessions_app.record.turn_queries import load_call
from tests.support.proof.second_opinion import assert_agreed
from tests.support.record.inspected import add_summary, claim, finish

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

    def outlined(self, number: int) -> list[str]:
        path = branch_queries.load_path(self.session.id, number) or LINE
        outlines = context_queries.load_outlines_on(path, self.session.id, at=load_session(self.session.id).event_seq)
        return [outline.id for outline in outlines]

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
            stood_for, items = self.expanded(branch=number)
            assert stood_for == self.line(self.tip_of(number))
            assert self.outlined(number) == items
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
                assert compact_now(talk.session.id).state == "completed"
        talk.note()


def read_at_once(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """Let a statement read so many stretches of messages and so many summaries at the most."""
    for module in (branch_queries, context_queries, message_queries):
        monkeypatch.setattr(module, "STRETCHES_A_STATEMENT", most)
    monkeypatch.setattr(context_queries, "IDS_A_STATEMENT", most)


@pytest.mark.slow
@pytest.mark.parametrize("at_once", [200, 2])
@pytest.mark.parametrize("trees", [15, pytest.param(300, marks=pytest.mark.soak)])
def test_every_branch_stands_for_its_path_whatever_was_done(
    alice, script, monkeypatch: pytest.MonkeyPatch, trees: int, at_once: int
) -> None:
    read_at_once(monkeypatch, at_once)
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
    [first, *_] = list_summaries(talk.session.id)
    assert (first.first_seq, first.last_seq) > (1, 6)
    of_branch_0 = talk.expanded()[1]

    talk.say(2, after=middle)
    assert talk.expanded()[1] == talk.line(talk.tip)
    said = {message.id: message.parts[0].part for message in load_messages(talk.session.id, limit=100)}
    shown = [entry.message for entry in load_state(talk.session.id).entries if isinstance(entry, MessageEntry)]
    assert [message.parts[0].part for message in shown] == [said[id] for id in talk.line(talk.tip)]

    for _ in range(4):
        talk.say(8)
    compact_now(talk.session.id)
    made = [summary for summary in list_summaries(talk.session.id) if summary.id in talk.expanded()[1]]
    assert made
    sources = {id for summary in made for _, id in summary.source_ids}
    assert sources <= set(talk.line(talk.tip))
    assert sources & set(talk.line(middle))
    assert talk.expanded(branch=0)[1] == of_branch_0
    talk.choose(0)
    compact_now(talk.session.id)
    talk.check()


@pytest.mark.parametrize("at_once", [200, 1])
def test_a_summary_between_messages_keeps_its_place(alice, script, monkeypatch: pytest.MonkeyPatch, at_once) -> None:
    script()
    read_at_once(monkeypatch, at_once)
    talk = Talk(session=lifecycle.create_session(owner=alice))
    for branch in range(3):
        for turn in range(3):
            talk.say(1, after=talk.line(talk.tip)[2 * branch - 1] if branch and not turn else None)
    line = talk.line(talk.tip)  # two messages of branch 0, two of branch 1, and six of branch 2
    assert len(line) == 10
    run = claim(talk.session.id)
    shown = [*line]
    # The first summary stands behind messages of two branches; in the end there are more summaries than runs of messages.
    for place in (4, 0, 1, 3):
        first = list(talk.parents).index(shown[place]) + 1
        summary = add_summary(talk.session.id, run, shown[place : place + 2], (first, first + 1), branch=2)
        shown[place : place + 2] = [summary]
        assert_shown(talk, shown)
    finish(talk.session.id, run)
    talk.check()


def assert_shown(talk: Talk, items: list[str]) -> None:
    """Check that each way of reading the context of the chosen branch gives these items in this order."""
    session = load_session(talk.session.id)
    path = branch_queries.load_path(session.id)
    assert talk.expanded()[1] == talk.outlined(session.branch) == items
    assert [item.item_id for item in context_queries.load_context_items(session.id)] == items
    pages = [
        load_context_page(session.id, at=session.event_seq, path=path, offset=place, limit=1)
        for place in range(len(items) + 1)
    ]
    assert [item.item_id for page in pages for item in page] == items
    context = build_context(session.id)
    with change(session.id) as record:
        call_id = turn_store.start_call(
            record,
            turn_id=None,
            message_id=None,
            model="demo",
            provider_model="demo",
            parameters={},
            manifest=context.stored_manifest,
            context_seq=context.context_seq,
            digest=context.digest,
            estimated_tokens=context.estimated_tokens,
        )
    call = load_call(call_id)
    assert load_manifest(call) == context.assembled.manifest
    assert rebuild_payload(call).digest_matches


def test_a_compaction_is_of_the_branch_that_asked_for_it(alice, script) -> None:
    script(lambda request: "- The ledgers moved.", window=4_000)
    talk = Talk(session=lifecycle.create_session(owner=alice, config=CONFIG))
    for _ in range(8):
        talk.say(8)
    first, asked_on = list(talk.parents)[1], talk.tip
    run_id = request_manual(talk.session.id)
    talk.say(8, after=first)
    for _ in range(6):
        talk.say(8)
    run = compact_session(talk.session.id, run_id=run_id)
    assert (run.state, run.branch) == ("completed", 0)
    assert run.summary_ids
    assert set(run.summary_ids) & set(talk.expanded(branch=0)[1])
    assert talk.expanded()[1] == talk.line(talk.tip)
    sources = {id for summary in list_summaries(talk.session.id) for _, id in summary.source_ids}
    assert sources <= set(talk.line(asked_on))
    talk.check()


def test_what_has_left_the_context_of_a_branch_is_not_summarised_again(alice, script) -> None:
    script()
    talk = Talk(session=lifecycle.create_session(owner=alice))
    for _ in range(4):
        talk.say(1)
    run = claim(talk.session.id)
    line = talk.line(talk.tip)
    add_summary(talk.session.id, run, line[:4], (1, 4))
    talk.say(1, after=line[1])  # on branch 1 the originals stand
    talk.say(1, after=line[4])  # on branch 2 the summary stands for them
    for source_ids in (line[:2], line[3:5]):
        with pytest.raises(ContextChanged):
            add_summary(talk.session.id, run, source_ids, (1, 5), branch=2)
    again = add_summary(talk.session.id, run, line[:2], (1, 2), branch=1)
    finish(talk.session.id, run)
    assert talk.expanded(branch=1)[1][0] == again
    assert again not in talk.expanded(branch=2)[1]
