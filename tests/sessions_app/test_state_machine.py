"""The store against a model that fits on a page: whatever is done in whatever order, the record says what was done.

Two people do everything the store can do, right and wrong. After each walk every read is what the model says, the
context as of every earlier event is what it was then, and every ledger proves its rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule, run_state_machine_as_test

from audit_app.verify import verify_session
from files_app.queries import find_file_by_path
from files_app.store import store_file_reference
from mnesis_core.errors import (
    Conflict,
    ContextChanged,
    DuplicateIDError,
    ImmutableFieldError,
    MessageNotFoundError,
    MnesisError,
    PartNotFoundError,
    SessionArchived,
    SessionBusy,
    SessionNotFoundError,
    TurnNotFoundError,
)
from mnesis_core.messages import Message, Part, ReasoningPart, TextPart, ToolPart, ToolState
from mnesis_core.record import MessageEnd, TurnState, UsageRecord
from sessions_app import queries, store
from sessions_app.forking import fork_session
from sessions_app.ledger import Change, change
from tests.support.cast import make_user
from tests.support.inspected import add_summary, claim, finish
from tests.support.record_model import Said, Talk

TEXTS = st.text(st.characters(), max_size=12)
PICKS = st.integers(0, 1_000)
Action = Callable[[Change], object]
ENDS = [state for state in TurnState if state is not TurnState.RUNNING]


def parts() -> st.SearchStrategy[Part]:
    """What a message may hold; tools wait for their result."""
    calls = st.builds(ToolPart, tool_name=TEXTS, tool_call_id=TEXTS, input=TEXTS)
    return st.one_of(st.builds(TextPart, text=TEXTS), st.builds(ReasoningPart, text=TEXTS), calls)


class Store(RuleBasedStateMachine):
    """Everything that can be done to the record of two people."""

    owners = ()

    def __init__(self) -> None:
        super().__init__()
        self.talks = [Talk(store.create_session(owner=owner, model="demo"), owner.pk) for owner in self.owners]

    def talk(self, pick: int) -> Talk:
        return self.talks[pick % len(self.talks)]

    def open_talks(self) -> list[Talk]:
        return [talk for talk in self.talks if not talk.deleted]

    @contextmanager
    def changing(self, talk: Talk) -> Iterator[Change]:
        with change(talk.id) as record:
            yield record
        talk.seq = record.event_seq
        self.remember(talk)

    def remember(self, talk: Talk) -> None:
        talk.past[talk.seq] = (list(talk.context), talk.tombstones)

    def refused(self, talk: Talk, error: type[MnesisError], action: Action) -> None:
        """The change fails in this way; that it leaves nothing behind is seen at the end."""
        with pytest.raises(error) as failure, change(talk.id) as record:
            action(record)
        assert type(failure.value) is error

    # --- what is right ---------------------------------------------------------------------------------------------

    @rule(pick=PICKS)
    def start_turn(self, pick: int) -> None:
        talk = self.talk(pick)
        if talk.deleted:
            with pytest.raises(SessionNotFoundError), change(talk.id):
                pass
        elif talk.archived or talk.running:
            error = SessionArchived if talk.archived else SessionBusy
            self.refused(talk, error, lambda record: store.start_turn(record, model="demo"))
        else:
            with self.changing(talk) as record:
                talk.turns[store.start_turn(record, model="demo")] = TurnState.RUNNING
                with pytest.raises(SessionBusy):
                    store.start_turn(record, model="demo")

    @precondition(lambda self: any(talk.running for talk in self.open_talks()))
    @rule(
        pick=PICKS, role=st.sampled_from(["user", "assistant"]), said=st.lists(parts(), max_size=3), done=st.booleans()
    )
    def append_message(self, pick: int, role: str, said: list[Part], done: bool) -> None:
        talk = self.one_of([talk for talk in self.open_talks() if talk.running], pick)
        end = MessageEnd(outcome="complete") if done else None
        with change(talk.id) as record:
            message = Message(role=role, parts=tuple(said))  # type: ignore[arg-type]
            id = store.append_message(record, turn_id=talk.running or "", message=message, end=end)
        talk.seq = record.event_seq
        written = queries.load_parts(id, session_id=talk.id)
        talk.said.append(Said(id, talk.running or "", role, {part.id: part.part for part in written}, end))
        assert list(talk.said[-1].parts.values()) == said
        talk.context.append(id)
        self.remember(talk)

    @precondition(lambda self: any(talk.said for talk in self.open_talks()))
    @rule(pick=PICKS, more=st.lists(parts(), min_size=1, max_size=3))
    def append_parts(self, pick: int, more: list[Part]) -> None:
        talk = self.one_of([talk for talk in self.open_talks() if talk.said], pick)
        said = self.one_of(talk.said, pick)
        with self.changing(talk) as record:
            ids = store.append_parts(record, message_id=said.id, parts=more)
            said.parts |= dict(zip(ids, more, strict=True))

    @precondition(lambda self: any(talk.tools for talk in self.open_talks()))
    @rule(pick=PICKS)
    def start_tool(self, pick: int) -> None:
        talk, part_id, part = self.tool(pick)
        if part.state is not ToolState.PENDING:
            self.refused(talk, PartNotFoundError, lambda record: store.start_tool(record, part_id))
            return
        with self.changing(talk) as record:
            store.start_tool(record, part_id)
            talk.replace_tool(part_id, state=ToolState.RUNNING, started_at=record.now)

    @precondition(lambda self: any(talk.tools for talk in self.open_talks()))
    @rule(pick=PICKS, result=TEXTS, failed=st.booleans())
    def finish_tool(self, pick: int, result: str, failed: bool) -> None:
        talk, part_id, part = self.tool(pick)
        values = {"output": None, "error": result} if failed else {"output": result, "error": None}
        if part.state in (ToolState.COMPLETED, ToolState.ERROR):
            self.refused(talk, ImmutableFieldError, lambda record: store.finish_tool(record, part_id, **values))
            return
        with self.changing(talk) as record:
            store.finish_tool(record, part_id, **values)
            state = ToolState.ERROR if failed else ToolState.COMPLETED
            talk.replace_tool(part_id, state=state, completed_at=record.now, **values)

    @precondition(lambda self: any(talk.tools for talk in self.open_talks()))
    @rule(pick=PICKS)
    def tombstone(self, pick: int) -> None:
        talk, part_id, part = self.tool(pick)
        with self.changing(talk) as record:
            changed = store.tombstone_parts(record, [part_id])
            assert changed == int(part.compacted_at is None)
            if changed:
                talk.replace_tool(part_id, compacted_at=record.now)

    @precondition(lambda self: any(talk.said for talk in self.open_talks()))
    @rule(pick=PICKS, tokens=st.integers(0, 2**53 - 1))
    def finalize(self, pick: int, tokens: int) -> None:
        talk = self.one_of([talk for talk in self.open_talks() if talk.said], pick)
        said = self.one_of(talk.said, pick)
        end = MessageEnd(finish_reason="stop", outcome="complete", usage=UsageRecord(tokens_output=tokens))
        if said.end is not None:
            self.refused(talk, ImmutableFieldError, lambda record: store.finalize_message(record, said.id, end))
            return
        with self.changing(talk) as record:
            store.finalize_message(record, said.id, end)
            said.end = end

    @precondition(lambda self: any(talk.turns for talk in self.open_talks()))
    @rule(pick=PICKS, state=st.sampled_from(ENDS))
    def finish_turn(self, pick: int, state: TurnState) -> None:
        talk = self.one_of([talk for talk in self.open_talks() if talk.turns], pick)
        turn_id = self.one_of(list(talk.turns), pick)
        if talk.turns[turn_id] is not TurnState.RUNNING:
            self.refused(talk, Conflict, lambda record: store.finish_turn(record, turn_id, state=state))
            return
        with self.changing(talk) as record:
            store.finish_turn(record, turn_id, state=state)
            talk.turns[turn_id] = state

    @precondition(lambda self: any(self.messages_in_context(talk) for talk in self.open_talks()))
    @rule(pick=PICKS, length=st.integers(1, 4))
    def compact(self, pick: int, length: int) -> None:
        talk = self.one_of([talk for talk in self.open_talks() if self.messages_in_context(talk)], pick)
        ids = self.messages_in_context(talk)[:length]
        seqs = [number for number, said in enumerate(talk.said, 1) if said.id in ids]
        run = claim(talk.id)
        summary_id = add_summary(talk.id, run, ids, (seqs[0], seqs[-1]))
        finish(talk.id, run)
        place = talk.context.index(ids[0])
        talk.context[place : place + len(ids)] = [summary_id]
        talk.seq = queries.load_session(talk.id).event_seq
        self.remember(talk)

    @precondition(lambda self: self.open_talks())
    @rule(pick=PICKS, path=TEXTS, summary=TEXTS)
    def add_file(self, pick: int, path: str, summary: str) -> None:
        talk = self.one_of(self.open_talks(), pick)
        with self.changing(talk) as record:
            file_id = store_file_reference(record, content_id="ab" * 32, path=path, exploration_summary=summary)
        found = find_file_by_path(path, session_id=talk.id)
        assert (found.id, found.exploration_summary) == (file_id, summary)

    @precondition(lambda self: len(self.talks) < 5 and any(self.written(talk) for talk in self.open_talks()))
    @rule(pick=PICKS)
    def fork(self, pick: int) -> None:
        talk = self.one_of([talk for talk in self.open_talks() if self.written(talk)], pick)
        last = self.one_of(self.written(talk), pick)
        owner = next(owner for owner in self.owners if owner.pk == talk.owner_id)
        source = queries.load_session(talk.id)
        fork_id = fork_session(source, owner=owner, at_message_id=last.id, title="fork")
        talk.seq += 1
        self.remember(talk)
        copies = queries.load_messages(fork_id)
        originals = queries.load_messages(talk.id)[: talk.said.index(last) + 1]
        assert [(copy.role, len(copy.parts)) for copy in copies] == [(old.role, len(old.parts)) for old in originals]
        assert not verify_session(fork_id).problems
        made = Talk(fork_id, talk.owner_id, seq=queries.load_session(fork_id).event_seq, past={})
        made.turns = {turn.id: TurnState(turn.state) for turn in reversed(queries.list_turns(fork_id))}
        for copy, old in zip(copies, talk.said, strict=False):
            new_parts = {stored.id: stored.part for stored in copy.parts}
            made.said.append(Said(copy.id, copy.turn_id or "", old.role, new_parts, old.end))
        made.context = [said.id for said in made.said]
        self.remember(made)
        self.talks.append(made)

    @precondition(lambda self: self.open_talks())
    @rule(pick=PICKS)
    def archive(self, pick: int) -> None:
        talk = self.one_of(self.open_talks(), pick)
        if pick % 4 == 0:  # not too early, since little can be done afterwards
            with self.changing(talk) as record:
                store.archive_session(record)
                talk.archived = True

    @precondition(lambda self: len(self.open_talks()) > 1)
    @rule(pick=PICKS)
    def delete(self, pick: int) -> None:
        talk = self.one_of(self.open_talks(), pick)
        if pick % 8 == 0 and not talk.running:
            with self.changing(talk) as record:
                store.soft_delete_session(record)
                talk.deleted = True

    # --- what is wrong ---------------------------------------------------------------------------------------------

    @precondition(lambda self: self.open_talks())
    @rule(pick=PICKS, unknown=st.sampled_from(["msg_nosuch", "", "'; --"]))
    def ids_that_are_not_there(self, pick: int, unknown: str) -> None:
        wrong = self.wrong(message_id=unknown, part_id=unknown, turn_id=unknown)
        self.refused(self.one_of(self.open_talks(), pick), *self.one_of(wrong, pick // 8))

    def wrong(self, *, message_id: str, part_id: str, turn_id: str) -> list[tuple[type[MnesisError], Action]]:
        """Each operation with an id that the session does not have, and what it says to that."""
        message, end = Message(role="user", parts=()), MessageEnd()
        return [
            (MessageNotFoundError, lambda r: store.append_parts(r, message_id=message_id, parts=[TextPart(text="x")])),
            (MessageNotFoundError, lambda r: store.finalize_message(r, message_id, end)),
            (PartNotFoundError, lambda r: store.start_tool(r, part_id)),
            (PartNotFoundError, lambda r: store.finish_tool(r, part_id, output="x", error=None)),
            (PartNotFoundError, lambda r: store.tombstone_parts(r, [part_id])),
            (TurnNotFoundError, lambda r: store.append_message(r, turn_id=turn_id, message=message)),
            (TurnNotFoundError, lambda r: store.finish_turn(r, turn_id, state=TurnState.FAILED)),
            (ContextChanged, lambda r: store.swap_context_items(r, removed_ids=[message_id], summary_id="sum_x")),
        ]

    @precondition(
        lambda self: any(talk.said for talk in self.talks) and any(talk.running for talk in self.open_talks())
    )
    @rule(pick=PICKS)
    def ids_that_are_taken(self, pick: int) -> None:
        talk = self.one_of([talk for talk in self.open_talks() if talk.running], pick)
        said = self.one_of(self.one_of([talk for talk in self.talks if talk.said], pick).said, pick)
        with pytest.raises(DuplicateIDError):
            store.create_session(owner=self.owners[0], model="demo", session_id=self.talk(pick).id)
        message = Message(role="user", parts=())
        self.refused(
            talk,
            DuplicateIDError,
            lambda record: store.append_message(
                record, turn_id=talk.running or "", message=message, message_id=said.id
            ),
        )

    # --- and what it comes to --------------------------------------------------------------------------------------

    def teardown(self) -> None:
        for owner in self.owners:
            listed = {session.id for session in queries.list_sessions(owner_id=owner.pk, archived=None, limit=500)}
            mine = [talk for talk in self.talks if talk.owner_id == owner.pk]
            assert {talk.id for talk in mine if not talk.deleted} == listed & {talk.id for talk in mine}
            assert not listed & {talk.id for talk in self.talks if talk.owner_id != owner.pk}
        for talk, other in pairwise([*self.talks, self.talks[0]]):
            if other.said and not talk.deleted:
                self.attack(talk, other)
        for talk in self.talks:
            self.check(talk)

    def attack(self, talk: Talk, other: Talk) -> None:
        """Each operation with ids of another session, of which some wait for just that."""
        said = next((said for said in other.said if said.end is None), other.said[0])
        waits = [id for id, part in other.tools.items() if part.state is ToolState.PENDING]
        part_id = next(iter([*waits, *other.tools, "part_nosuch"]))
        turn_id = other.running or said.turn_id
        for error, action in self.wrong(message_id=said.id, part_id=part_id, turn_id=turn_id):
            self.refused(talk, error, action)

    def check(self, talk: Talk) -> None:
        assert verify_session(talk.id).problems == []
        assert talk.deleted or queries.load_session(talk.id).event_seq == talk.seq
        messages = queries.load_messages(talk.id, limit=1_000)
        assert [
            (message.id, message.turn_id, message.role, {stored.id: stored.part for stored in message.parts})
            for message in messages
        ] == [(said.id, said.turn_id, said.role, said.parts) for said in talk.said]
        assert [message.seq for message in messages] == list(range(1, len(talk.said) + 1))
        rows = queries.load_message_rows(talk.id, [said.id for said in talk.said])
        for said in talk.said:
            row = rows[said.id]
            assert (row.finalized_at is not None) == (said.end is not None)
            if said.end is not None:
                assert (row.outcome, row.tokens_output) == (said.end.outcome, said.end.usage.tokens_output)
        assert {turn.id: turn.state for turn in queries.list_turns(talk.id, limit=500)} == talk.turns
        assert [item.item_id for item in queries.load_context_items(talk.id)] == talk.context
        for seq, (context, tombstones) in talk.past.items():
            assert [item.item_id for item in queries.load_context_items(talk.id, at=seq)] == context
            parts = [part for entry in queries.load_context(talk.id, at=seq).messages for part in entry.message.parts]
            shown = {part.id for part in parts if isinstance(part.part, ToolPart) and part.part.compacted_at}
            assert shown == tombstones & {part.id for part in parts}

    @staticmethod
    def one_of(items: list[Any], pick: int) -> Any:
        return items[pick % len(items)]

    def tool(self, pick: int) -> tuple[Talk, str, ToolPart]:
        talk = self.one_of([talk for talk in self.open_talks() if talk.tools], pick)
        part_id = self.one_of(list(talk.tools), pick)
        return talk, part_id, talk.tools[part_id]

    def messages_in_context(self, talk: Talk) -> list[str]:
        """The first messages of the context that stand side by side."""
        ids = {said.id for said in talk.said}
        first = next((place for place, id in enumerate(talk.context) if id in ids), len(talk.context))
        after = next((place for place in range(first, len(talk.context)) if talk.context[place] not in ids), None)
        return talk.context[first:after]

    def written(self, talk: Talk) -> list[Said]:
        """Messages at which a session can be forked."""
        return [said for said in talk.said if said.role == "user" or said.end is not None]


@pytest.mark.django_db
def test_the_record_says_what_was_done() -> None:
    Store.owners = (make_user("alice"), make_user("bob"))  # type: ignore[assignment]
    chosen = settings(
        max_examples=30,
        stateful_step_count=40,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # making a failure smaller takes minutes here
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    run_state_machine_as_test(Store, settings=chosen)
