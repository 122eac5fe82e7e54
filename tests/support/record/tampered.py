"""A session with something of everything, what may be done to it past its guards, and what is found then."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from django.contrib.auth.models import User
from django.db import connection, transaction

from agents_app.store import receive_message, take_messages
from audit_app.proof.verify import verify_in_segments, verify_session
from audit_app.tables import session_tables
from files_app.store import store_file_reference
from mnesis_core.events import GENESIS, entry_hash
from mnesis_core.messages import TextPart
from mnesis_core.network.sharing import Audience
from mnesis_core.records import Thumb
from mnesis_core.turns.inbox import Draft, Hosting
from sessions_app.database.guards.triggers import guarded_models, install_guards, remove_guards
from sessions_app.models import DirectoryEntry, Event, MessagePart, SearchEntry, Session
from sessions_app.record import message_store, session_store
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_message
from sessions_app.record.shares import share_store
from tests.sessions_app.database.guards.record_rows import plain
from tests.support.proof.second_opinion import assert_agreed
from tests.support.record.claims import add_claims
from tests.support.record.facts import add_facts, add_reflection
from tests.support.record.inspected import add_preview, add_session, add_summary, add_turn, claim, finish, tool_part
from tests.support.record.operators import paused_run, settled_run


def make_rich_session(owner: User) -> str:
    """A session with one row or more in every table of the record."""
    session_id = add_session(owner)
    first = add_turn(session_id, "What about the tides?", TextPart(text="I look."), tool_part())
    add_turn(session_id, "And \x00 the \ud800 wind?")
    run = claim(session_id)
    part_id = MessagePart.objects.get(part_type="tool", session_id=session_id).id
    with change(session_id) as record:
        message_store.tombstone_parts(record, [part_id])
    summary = add_summary(session_id, run, first, (1, 2))
    add_preview(session_id, summary, first)
    add_facts(session_id, first[0], "tides", reflection_id=add_reflection(session_id, summary))
    add_claims(session_id, summary, first[0])
    finish(session_id, run)
    with change(session_id) as record:
        session_store.update_session(record, title="Tides", labels={"b": "c"}, config={"compaction": {"auto": False}})
        session_store.update_session(record, title="Tides again")
        store_file_reference(
            record, content_id="ab" * 32, path="a.txt", file_type="text", token_count=3, exploration_summary="words"
        )
        session_store.update_session(record, hosting=Hosting(is_on=True, name="harbour"))
        receive_message(record, Draft(text="It turns.", hops=1))
        turn_id = load_message(first[0], session_id=session_id).turn_id
        take_messages(record, [receive_message(record, Draft(text="It has turned."))], turn_id=str(turn_id))
    settled_run(session_id)
    paused_run(session_id)
    with change(session_id) as record:
        session_store.choose_branch(record, session_store.begin_branch(record, parent=0, after_seq=2))
        share_id = share_store.create_share(record, first[0], title="Tides", audience=Audience.SITE)
        share_store.add_opening(record, share_id, reader="", day=1)
        share_store.revoke_share(record, share_id)
        message_store.rate_message(record, first[1], thumb=Thumb.UP, comment="Just so")
    add_turn(session_id, "And the moon?")
    with change(session_id) as record:
        session_store.choose_branch(record, 0)
    with change(session_id) as record:
        session_store.archive_session(record)
    return session_id


@contextmanager
def undone() -> Iterator[None]:
    """Undo what the block does to the database; no foreign key is checked."""
    with transaction.atomic():
        yield
        transaction.set_rollback(True)


def chain_again(session_id: str, *, head: bool) -> None:
    """Make the hashes of a session's entries anew, as a person could who knows how."""
    previous, last = GENESIS, 0
    for event in Event.objects.filter(session_id=session_id).order_by("seq"):
        now = entry_hash(prev_hash=previous, seq=event.seq, type=event.type, body=event.body)
        plain(Event).filter(pk=event.pk).update(prev_hash=previous, hash=now)
        previous, last = now, event.seq
    if head:
        plain(Session).filter(pk=session_id).update(head_hash=previous, event_seq=last)


def write_body(event: Event, body: Any) -> None:
    """Give an entry another body, past the guards."""
    plain(Event).filter(pk=event.pk).update(body=json.dumps(body, sort_keys=True, separators=(",", ":")))


def found(session_id: str) -> list[str]:
    """What is found at one look, in words: the same as in stretches of three entries, and by the second verifier."""
    report = verify_session(session_id)
    assert_agreed(session_id, report)
    in_segments = verify_in_segments(session_id, entries=3)
    assert in_segments.as_dict() | {"problems": []} == report.as_dict() | {"problems": []}
    words = [f"{problem.seq} {problem.kind} {problem.detail}" for problem in report.problems]
    assert sorted(f"{one.seq} {one.kind} {one.detail}" for one in in_segments.problems) == sorted(words)
    return words


def erase(session_id: str) -> None:
    """Take a session away with all that is its own, past the guards; the directory stays."""
    with transaction.atomic():
        plain(SearchEntry).filter(session_id=session_id).delete()
        for table in reversed(session_tables().values()):
            # Not delete(), which asks the models first.
            plain(table.model).filter(**{table.path: session_id})._raw_delete("default")


def as_if_never_here(session_id: str) -> None:
    """Erase a session with its entries in the directory, and leave the guards as they were."""
    remove_guards(connection, guarded_models())
    erase(session_id)
    plain(DirectoryEntry).filter(session_id=session_id).delete()
    install_guards(connection, guarded_models())
