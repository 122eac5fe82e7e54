"""A walk through everything that can rightly be done to the record of two people, beside a model of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, precondition, rule

from audit_app.proof.verify import verify_session
from files_app.queries import find_file_by_path
from files_app.store import store_file_reference
from mnesis_core.errors import (
    Conflict,
    ImmutableFieldError,
    MnesisError,
    PartNotFoundError,
    SessionArchived,
    SessionBusy,
    SessionNotFoundError,
)
from mnesis_core.messages import Message, Part, ReasoningPart, TextPart, ToolPart, ToolState
from mnesis_core.records import MessageEnd, TurnState, UsageRecord
from sessions_app.record import message_queries, message_store, session_queries, session_store, turn_queries, turn_store
from sessions_app.record.change import Change, change
from sessions_app.record.histories import begin_fork, copy_messages
from tests.support.proof.record_model import Said, Talk
from tests.support.record.inspected import add_summary, claim, finish

TEXTS = st.text(st.characters(), max_size=12)
PICKS = st.integers(0, 1_000)
Action = Callable[[Change], object]
ENDS = [state for state in TurnState if state.is_end]


def parts() -> st.SearchStrategy[Part]:
    """What a message may hold; tools wait for their result."""
    calls = st.builds(ToolPart, tool_name=TEXTS, tool_call_id=TEXTS, input=TEXTS)
    return st.one_of(st.builds(TextPart, text=TEXTS), st.builds(ReasoningPart, text=TEXTS), calls)


def on(has: Callable[[Talk], object], **choices: st.SearchStrategy[Any]) -> Callable[..., Any]:
    """A rule about one of the sessions that are not deleted and have this; it is told which, and a number to pick by."""

    def rule_of(act: Callable[..., None]) -> Any:
        def run(self: Walk, pick: int, **chosen: Any) -> None:
            act(self, self.one_of([talk for talk in self.open_talks() if has(talk)], pick), pick, **chosen)

        run.__name__ = act.__name__
        return precondition(lambda self: any(map(has, self.open_talks())))(rule(pick=PICKS, **choices)(run))

    return rule_of


class Walk(RuleBasedStateMachine):
    """Everything that can rightly be done; sometimes it is too late for it, and refused."""

    owners = ()

    def __init__(self) -> None:
        super().__init__()
        self.talks = [Talk(session_store.create_session(owner=owner, model="demo"), owner.pk) for owner in self.owners]
        for talk in self.talks:
            self.begin(talk)
            calls = [ToolPart(tool_name="t", tool_call_id=id, input="") for id in "abc"]
            self.append(talk, "assistant", calls, None)

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

    @staticmethod
    def one_of(items: list[Any], pick: int) -> Any:
        return items[pick % len(items)]

    def tool(self, talk: Talk, pick: int) -> tuple[str, ToolPart]:
        part_id = self.one_of(list(talk.tools), pick)
        return part_id, talk.tools[part_id]

    @rule(pick=PICKS)
    def start_turn(self, pick: int) -> None:
        talk = self.talk(pick)
        if talk.deleted:
            with pytest.raises(SessionNotFoundError), change(talk.id):
                pass
        elif talk.archived or talk.running:
            error = SessionArchived if talk.archived else SessionBusy
            self.refused(talk, error, lambda record: turn_store.start_turn(record, model="demo"))
        else:
            self.begin(talk)

    def begin(self, talk: Talk) -> None:
        with self.changing(talk) as record:
            turn_id = turn_store.start_turn(record, model="demo")
            talk.turns[turn_id], talk.fences[turn_id] = TurnState.RUNNING, 1
            with pytest.raises(SessionBusy):
                turn_store.start_turn(record, model="demo")

    @on(
        lambda talk: talk.running,
        role=st.sampled_from(["user", "assistant"]),
        said=st.lists(parts(), max_size=3),
        done=st.booleans(),
    )
    def append_message(self, talk: Talk, pick: int, role: str, said: list[Part], done: bool) -> None:
        self.append(talk, role, said, MessageEnd(outcome="complete") if done else None)

    def append(self, talk: Talk, role: str, said: list[Part], end: MessageEnd | None) -> None:
        with change(talk.id) as record:
            message = Message(role=role, parts=tuple(said))  # type: ignore[arg-type]
            id = message_store.append_message(record, turn_id=talk.running or "", message=message, end=end)
        talk.seq = record.event_seq
        written = message_queries.load_message(id, session_id=talk.id).parts
        talk.said.append(Said(id, talk.running or "", role, {part.id: part.part for part in written}, end))
        assert list(talk.said[-1].parts.values()) == said
        talk.context.append(id)
        self.remember(talk)

    @on(lambda talk: talk.said, more=st.lists(parts(), min_size=1, max_size=3))
    def append_parts(self, talk: Talk, pick: int, more: list[Part]) -> None:
        said = self.one_of(talk.said, pick)
        with self.changing(talk) as record:
            ids = message_store.append_parts(record, message_id=said.id, parts=more)
            said.parts |= dict(zip(ids, more, strict=True))

    @on(lambda talk: talk.tools)
    def start_tool(self, talk: Talk, pick: int) -> None:
        part_id, part = self.tool(talk, pick)
        if part.state not in (ToolState.PENDING, ToolState.APPROVED):
            self.refused(talk, PartNotFoundError, lambda record: message_store.start_tool(record, part_id))
            return
        with self.changing(talk) as record:
            message_store.start_tool(record, part_id)
            talk.replace_tool(part_id, state=ToolState.RUNNING, started_at=record.now)

    @on(lambda talk: talk.tools, result=TEXTS, failed=st.booleans())
    def finish_tool(self, talk: Talk, pick: int, result: str, failed: bool) -> None:
        part_id, part = self.tool(talk, pick)
        values = {"output": None, "error": result} if failed else {"output": result, "error": None}
        if part.state in (ToolState.COMPLETED, ToolState.ERROR):
            self.refused(talk, ImmutableFieldError, lambda record: message_store.finish_tool(record, part_id, **values))
            return
        with self.changing(talk) as record:
            message_store.finish_tool(record, part_id, **values)
            state = ToolState.ERROR if failed else ToolState.COMPLETED
            talk.replace_tool(part_id, state=state, completed_at=record.now, **values)

    @on(lambda talk: talk.tools)
    def tombstone(self, talk: Talk, pick: int) -> None:
        part_id, part = self.tool(talk, pick)
        with self.changing(talk) as record:
            changed = message_store.tombstone_parts(record, [part_id])
            assert changed == int(part.compacted_at is None)
            if changed:
                talk.replace_tool(part_id, compacted_at=record.now)

    @on(lambda talk: talk.said, tokens=st.integers(0, 2**53 - 1))
    def finalize(self, talk: Talk, pick: int, tokens: int) -> None:
        said = self.one_of(talk.said, pick)
        end = MessageEnd(finish_reason="stop", outcome="complete", usage=UsageRecord(tokens_output=tokens))
        if said.end is not None:
            self.refused(talk, ImmutableFieldError, lambda record: message_store.finalize_message(record, said.id, end))
            return
        with self.changing(talk) as record:
            message_store.finalize_message(record, said.id, end)
            said.end = end

    @on(lambda talk: talk.turns, state=st.sampled_from(ENDS))
    def finish_turn(self, talk: Talk, pick: int, state: TurnState) -> None:
        turn_id = self.one_of(list(talk.turns), pick)
        held = {"fence": talk.fences[turn_id]}
        if talk.turns[turn_id] is not TurnState.RUNNING:
            self.refused(talk, Conflict, lambda record: turn_store.finish_turn(record, turn_id, state=state, **held))
            return
        with self.changing(talk) as record:
            turn_store.finish_turn(record, turn_id, state=state, **held)
            talk.turns[turn_id] = state

    @on(lambda talk: talk.turns)
    def suspend_turn(self, talk: Talk, pick: int) -> None:
        turn_id, held = self.turn(talk, pick)
        if talk.turns[turn_id] is not TurnState.RUNNING:
            self.refused(talk, Conflict, lambda record: turn_store.suspend_turn(record, turn_id, part_ids=[], **held))
            return
        with self.changing(talk) as record:
            assert turn_store.suspend_turn(record, turn_id, part_ids=[], **held)
            talk.turns[turn_id] = TurnState.SUSPENDED

    @on(lambda talk: talk.turns, is_cancelled=st.booleans())
    def leave_suspension(self, talk: Talk, pick: int, is_cancelled: bool) -> None:
        turn_id, held = self.turn(talk, pick)

        def leave(record: Change) -> None:
            if is_cancelled:
                state, before = TurnState.CANCELLED, TurnState.SUSPENDED
                turn_store.finish_turn(record, turn_id, state=state, before=before, **held)
            else:
                turn_store.resume_turn(record, turn_id, lease_owner="", lease_seconds=0.0, **held)

        if talk.turns[turn_id] is not TurnState.SUSPENDED:
            self.refused(talk, Conflict, leave)
            return
        with self.changing(talk) as record:
            leave(record)
        talk.turns[turn_id] = TurnState.CANCELLED if is_cancelled else TurnState.RUNNING
        talk.fences[turn_id] += not is_cancelled

    def turn(self, talk: Talk, pick: int) -> tuple[str, dict[str, int]]:
        turn_id = talk.running if talk.running and pick % 4 else self.one_of(list(talk.turns), pick)
        return turn_id, {"fence": talk.fences[turn_id]}

    @on(lambda talk: talk.tools, approved=st.booleans(), note=TEXTS)
    def decide_approval(self, talk: Talk, pick: int, approved: bool, note: str) -> None:
        part_id, part = self.tool(talk, pick)
        said = {"turn_id": "turn_x", "approved": approved, "note": note, "refusal": "no"}
        if part.state is not ToolState.PENDING:
            self.refused(talk, PartNotFoundError, lambda record: message_store.decide_approval(record, part_id, **said))
            return
        with self.changing(talk) as record:
            message_store.decide_approval(record, part_id, **said)
            result = {"state": ToolState.APPROVED} if approved else {"state": ToolState.ERROR, "error": "no"}
            at = {} if approved else {"completed_at": record.now}
            talk.replace_tool(part_id, decision_note=note or None, **result, **at)

    @on(lambda talk: talk.tools, output=TEXTS)
    def keep_late_output(self, talk: Talk, pick: int, output: str) -> None:
        part_id, part = self.tool(talk, pick)
        with self.changing(talk) as record:
            is_kept = message_store.keep_late_output(record, part_id, output)
            assert is_kept == (part.state is ToolState.ERROR and part.late_output is None)
            if is_kept:
                talk.replace_tool(part_id, late_output=output)

    @on(lambda talk: talk.messages_in_context, length=st.integers(1, 4))
    def compact(self, talk: Talk, pick: int, length: int) -> None:
        ids = talk.messages_in_context[:length]
        seqs = [number for number, said in enumerate(talk.said, 1) if said.id in ids]
        run = claim(talk.id)
        summary_id = add_summary(talk.id, run, ids, (seqs[0], seqs[-1]))
        finish(talk.id, run)
        place = talk.context.index(ids[0])
        talk.context[place : place + len(ids)] = [summary_id]
        talk.seq = session_queries.load_session(talk.id).event_seq
        self.remember(talk)

    @on(lambda talk: True, path=TEXTS, summary=TEXTS)
    def add_file(self, talk: Talk, pick: int, path: str, summary: str) -> None:
        with self.changing(talk) as record:
            file_id = store_file_reference(record, content_id="ab" * 32, path=path, exploration_summary=summary)
        found = find_file_by_path(path, session_id=talk.id)
        assert (found.id, found.exploration_summary) == (file_id, summary)

    @precondition(lambda self: len(self.talks) < 5)
    @on(lambda talk: talk.written)
    def fork(self, talk: Talk, pick: int) -> None:
        last = self.one_of(talk.written, pick)
        owner = next(owner for owner in self.owners if owner.pk == talk.owner_id)
        source = session_queries.load_session(talk.id)
        last_message = message_queries.load_message(last.id, session_id=talk.id)
        fork_id = begin_fork(source, owner=owner, last=last_message, title="fork")
        assert copy_messages(fork_id)
        talk.seq += 1
        self.remember(talk)
        copies = message_queries.load_messages(fork_id)
        originals = message_queries.load_messages(talk.id)[: talk.said.index(last) + 1]
        assert [(copy.role, len(copy.parts)) for copy in copies] == [(old.role, len(old.parts)) for old in originals]
        assert not verify_session(fork_id).problems
        made = Talk(fork_id, talk.owner_id, seq=session_queries.load_session(fork_id).event_seq, past={})
        made.fences = {turn.id: 1 for turn in turn_queries.list_turns(fork_id)}
        made.turns = {turn.id: TurnState(turn.state) for turn in reversed(turn_queries.list_turns(fork_id))}
        for copy, old in zip(copies, talk.said, strict=False):
            new_parts = {stored.id: stored.part for stored in copy.parts}
            made.said.append(Said(copy.id, copy.turn_id or "", old.role, new_parts, old.end))
        made.context = [said.id for said in made.said]
        self.remember(made)
        self.talks.append(made)

    # Not early, since little can be done afterwards.
    @on(lambda talk: len(talk.said) > 4)
    def archive(self, talk: Talk, pick: int) -> None:
        with self.changing(talk) as record:
            session_store.archive_session(record)
            talk.archived = True

    @on(lambda talk: talk.archived)
    def reopen(self, talk: Talk, pick: int) -> None:
        with self.changing(talk) as record:
            session_store.reopen_session(record)
            talk.archived = False

    @precondition(lambda self: len(self.open_talks()) > 1)
    @on(lambda talk: len(talk.said) > 2 and not talk.running)
    def delete(self, talk: Talk, pick: int) -> None:
        with self.changing(talk) as record:
            session_store.soft_delete_session(record)
            talk.deleted = True
