"""A session whose messages are a tree."""

from __future__ import annotations

from django.contrib.auth.models import User

from compaction_app.compact import compact_now
from sessions_app.record import session_store
from sessions_app.record.change import change
from tests.support.record.talks import exchange, new_session


def leave(session_id: str, *, parent: int, after_seq: int) -> None:
    """Begin a branch and choose it."""
    with change(session_id) as record:
        session_store.choose_branch(record, session_store.begin_branch(record, parent=parent, after_seq=after_seq))


def make_tree(owner: User) -> str:
    """Twelve messages, compacted; after the fourth another branch, on that one another, one from the beginning, an empty one."""
    session_id = new_session(owner)
    for number in range(6):
        exchange(session_id, f"The marigold number {number} is orange.", "Noted: orange. " * 20)
    leave(session_id, parent=0, after_seq=4)
    for number in range(4):
        exchange(session_id, f"The tulip number {number} is red.", "Noted: red. " * 20)
    assert compact_now(session_id).summary_ids
    leave(session_id, parent=1, after_seq=14)
    exchange(session_id, "The rose is white.", "Noted.")
    leave(session_id, parent=0, after_seq=0)
    exchange(session_id, "Hello.", "Hello.")
    leave(session_id, parent=0, after_seq=12)
    with change(session_id) as record:
        session_store.choose_branch(record, 2)
    return session_id
