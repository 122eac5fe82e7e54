"""What happens to processes in the middle of a compaction, told to the test's own."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from functools import partial

from django.db import connections
from django.utils import timezone

from audit_app.proof.verify import verify_session
from compaction_app import store
from compaction_app.compact import ClaimedRun
from compaction_app.models import LIVE, CompactionRun
from mnesis_core.llm.interface import Request
from mnesis_core.providers.scripted import Script
from mnesis_core.records import SessionRecord
from sessions_app.record.context_queries import load_context_items, load_events
from tests.support.record.inspected import Claimed, add_try, new_summary

SUMMARY = "- A summary."


class Killed(BaseException):
    """What a process does not survive: nothing after it is written."""


def first_time(act: Callable[[], None], answer: str = SUMMARY) -> Callable[[Request], Script]:
    """A model that answers, and while it is asked for the first time something happens."""
    waits = [act]

    def reply(request: Request) -> Script:
        if waits:
            elsewhere(waits.pop())
        return answer

    return reply


def elsewhere(act: Callable[[], None]) -> None:
    """Do something on connections of its own, as another process would."""
    errors: list[BaseException] = []

    def run() -> None:
        try:
            act()
        except BaseException as error:
            errors.append(error)
        finally:
            connections.close_all()

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    if errors:
        raise errors[0]


def at_once(acts: list[Callable[[], object]]) -> None:
    """Do all of them at the same time, each on connections of its own."""
    all_there = threading.Barrier(len(acts))

    def wait_and(act: Callable[[], object]) -> None:
        all_there.wait()
        act()

    threads = [threading.Thread(target=elsewhere, args=[partial(wait_and, act)]) for act in acts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def die() -> None:
    """Die in the thread that asks a model."""
    raise Killed


def lose_lease(run_id: str) -> None:
    """Let the lease of a compaction be over, so that the process that had it counts as dead."""
    past = timezone.now() - timedelta(seconds=1)
    assert CompactionRun.objects.filter(id=run_id, state="running").update(lease_expires_at=past) == 1


def said(session: SessionRecord) -> list[str]:
    """What the ledger tells of compactions, in order."""
    types = (event.type for event in load_events(session.id, limit=10_000))
    return [type for type in types if type.startswith(("compaction", "summary", "prune"))]


def is_whole(session: SessionRecord) -> bool:
    """Nothing is live, and the ledger proves every row."""
    assert verify_session(session.id).problems == []
    return not CompactionRun.objects.filter(session_id=session.id, state__in=LIVE).exists()


def first_items(session: SessionRecord, count: int = 4) -> list[str]:
    """The ids of the oldest things in a context."""
    return [item.item_id for item in load_context_items(session.id)][:count]


def commit_summary(session: SessionRecord, attempt: ClaimedRun, source_ids: list[str], *, cost_micros: int = 0) -> str:
    """A summary of some messages, as an attempt commits it."""
    summary = new_summary(text=SUMMARY, token_count=4, last_seq=4, message_count=4, cost_micros=cost_micros)
    add_try(session.id, Claimed(id=attempt.run_id, fence=attempt.fence), summary.id, cost=cost_micros)
    with attempt.held() as record:
        return store.record_summary(
            record, attempt.run_id, summary, fence=attempt.fence, source_type="message", source_ids=source_ids
        )
