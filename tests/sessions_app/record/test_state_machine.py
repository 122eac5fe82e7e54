"""The store against a model that fits on a page: whatever is done in whatever order, the record says what was done.

Two people do everything the store can do, right and wrong. After each walk every read is what the model says, the
context as of every earlier event is what it was then, and every ledger proves its rows.
"""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import run_state_machine_as_test

from audit_app.proof.verify import verify_session
from mnesis_core.errors import (
    ContextChanged,
    DuplicateIDError,
    MessageNotFoundError,
    MnesisError,
    PartNotFoundError,
    TurnNotFoundError,
)
from mnesis_core.messages import Message, TextPart, ToolPart, ToolState
from mnesis_core.records import MessageEnd, TurnState
from sessions_app.record import (
    context_queries,
    message_queries,
    message_store,
    session_queries,
    session_store,
    turn_queries,
    turn_store,
)
from tests.support.people.cast import make_user
from tests.support.proof.record_model import Talk
from tests.support.proof.record_walk import Action, Walk, on
from tests.support.proof.second_opinion import assert_agreed

pytestmark = pytest.mark.both_databases


class Store(Walk):
    """The walk, and all that is wrong on its way."""

    @on(lambda talk: True, unknown=st.sampled_from(["msg_nosuch", "", "'; --"]))
    def ids_that_are_not_there(self, talk: Talk, pick: int, unknown: str) -> None:
        wrong = self.wrong(message_id=unknown, part_id=unknown, turn_id=unknown)
        self.refused(talk, *self.one_of(wrong, pick // 8))

    def wrong(self, *, message_id: str, part_id: str, turn_id: str) -> list[tuple[type[MnesisError], Action]]:
        """Each operation with an id that the session does not have, and what it says to that."""
        message, end = Message(role="user", parts=()), MessageEnd()
        return [
            (
                MessageNotFoundError,
                lambda r: message_store.append_parts(r, message_id=message_id, parts=[TextPart(text="x")]),
            ),
            (MessageNotFoundError, lambda r: message_store.finalize_message(r, message_id, end)),
            (PartNotFoundError, lambda r: message_store.start_tool(r, part_id)),
            (PartNotFoundError, lambda r: message_store.finish_tool(r, part_id, output="x", error=None)),
            (PartNotFoundError, lambda r: message_store.tombstone_parts(r, [part_id])),
            (TurnNotFoundError, lambda r: message_store.append_message(r, turn_id=turn_id, message=message)),
            (TurnNotFoundError, lambda r: turn_store.finish_turn(r, turn_id, state=TurnState.FAILED)),
            (
                ContextChanged,
                lambda r: message_store.swap_context_items(r, removed_ids=[message_id], summary_id="sum_x"),
            ),
        ]

    @on(lambda talk: talk.running)
    def ids_that_are_taken(self, talk: Talk, pick: int) -> None:
        with pytest.raises(DuplicateIDError):
            session_store.create_session(owner=self.owners[0], model="demo", session_id=self.talk(pick).id)

    def teardown(self) -> None:
        for owner in self.owners:
            listed = {
                session.id for session in session_queries.list_sessions(owner_id=owner.pk, archived=None, limit=500)
            }
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
        report = verify_session(talk.id)
        assert report.problems == []
        assert_agreed(talk.id, report)
        assert talk.deleted or session_queries.load_session(talk.id).event_seq == talk.seq
        messages = message_queries.load_messages(talk.id, limit=1_000)
        assert [
            (message.id, message.turn_id, message.role, {stored.id: stored.part for stored in message.parts})
            for message in messages
        ] == [(said.id, said.turn_id, said.role, said.parts) for said in talk.said]
        assert [message.seq for message in messages] == list(range(1, len(talk.said) + 1))
        rows = message_queries.load_message_rows(talk.id, [said.id for said in talk.said])
        for said in talk.said:
            row = rows[said.id]
            assert (row.finalized_at is not None) == (said.end is not None)
            if said.end is not None:
                assert (row.outcome, row.tokens_output) == (said.end.outcome, said.end.usage.tokens_output)
        assert {turn.id: turn.state for turn in turn_queries.list_turns(talk.id, limit=500)} == talk.turns
        assert [item.item_id for item in context_queries.load_context_items(talk.id)] == talk.context
        for seq, (context, tombstones) in talk.past.items():
            assert [item.item_id for item in context_queries.load_context_items(talk.id, at=seq)] == context
            parts = [
                part for entry in context_queries.load_context(talk.id, at=seq).messages for part in entry.message.parts
            ]
            shown = {part.id for part in parts if isinstance(part.part, ToolPart) and part.part.compacted_at}
            assert shown == tombstones & {part.id for part in parts}


@pytest.mark.slow
@pytest.mark.django_db
@pytest.mark.parametrize("walks", [10, pytest.param(500, marks=pytest.mark.soak)])
def test_the_record_says_what_was_done(walks: int) -> None:
    Store.owners = (make_user("alice"), make_user("bob"))  # type: ignore[assignment]
    chosen = settings(
        max_examples=walks,
        stateful_step_count=40,
        deadline=None,
        database=None,
        phases=[Phase.generate],  # making a failure smaller takes minutes here
        suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
    )
    run_state_machine_as_test(Store, settings=chosen)
