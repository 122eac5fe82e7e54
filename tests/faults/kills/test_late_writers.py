"""A process that slept past its lease comes back: what it still writes is refused, and what recovery wrote stays."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.utils import timezone

from agents_app.turns.claim import claim_turn, recover_turns
from mnesis_core.errors import Conflict
from mnesis_core.records import SessionRecord
from sessions_app.models import StreamJournal, Turn
from sessions_app.record import message_store
from sessions_app.record.message_queries import load_messages
from tests.support.people.story import spoken
from tests.support.processes.writers import end_turn, first_words, stream_answer

pytestmark = pytest.mark.both_databases


@pytest.mark.slow
def test_a_piece_that_comes_after_recovery_is_refused(session: SessionRecord) -> None:
    turn = claim_turn(
        session.id, owner_id=session.owner_id, message="Go", idempotency_key=None, lease_owner="sleeper"
    ).turn
    message_id = stream_answer(turn, "one")
    Turn.objects.filter(id=turn.id).update(lease_expires_at=timezone.now() - timedelta(seconds=1))
    assert recover_turns(lease_owner="another") == 1
    late = message_store.Piece(part_index=0, part_type="text", offset=len(first_words("one")), text="too late")
    with pytest.raises(Conflict):
        message_store.append_journal(session_id=session.id, message_id=message_id, pieces=[late])
    with pytest.raises(Conflict):
        end_turn(turn, message_id, "one")
    assert spoken(load_messages(session.id)[1]) == first_words("one")
    assert not StreamJournal.objects.exists()
