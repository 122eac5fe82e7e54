"""Claims of a summary: its sentences, each with what it rests on."""

from __future__ import annotations

from compaction_app.store import record_claims
from mnesis_core.compaction.lineage import Claim, Place, Support
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_message


def add_claims(session_id: str, summary_id: str, message_id: str, *, missing: str = "4711") -> None:
    """A sentence that rests on a message, and one that rests on nothing and says what was never said."""
    part = load_message(message_id, session_id=session_id).parts[0].id
    place = Place(source_id=message_id, ref=part)
    claims = [
        Claim(number=1, start=0, end=4, support=Support.SUPPORTED, share=80, places=(place,)),
        Claim(number=2, start=5, end=9, support=Support.NONE, share=10, missing=(missing,)),
    ]
    with change(session_id) as record:
        assert record_claims(record, summary_id, claims)
