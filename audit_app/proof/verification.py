"""Verifications on request: of one session, or of everything.

They run in the worker, so no page waits for them, and one at a time on the whole site, so no one can keep the machine
busy with more. A request for a session that already waits or is being verified joins that verification.
"""

from __future__ import annotations

import time

from django.db import transaction
from django_q.tasks import async_task

from audit_app import store
from audit_app.proof.verify import Report, verify_all, verify_session
from audit_app.store import EVERYTHING
from mnesis_core.errors import Conflict
from mnesis_core.text import encode_text
from sessions_app.database.threads import give_back
from sessions_app.record.lease import Heartbeat, new_owner

TASK = "audit_app.tasks.verify"
# The cluster kills a worker that takes longer: it hangs.
TASK_SECONDS = 3_600
BEAT_SECONDS = 0.5
PROBLEMS_KEPT = 200
LOOK_SECONDS = 0.25
# How long verify_now waits for other verifications.
PATIENCE_SECONDS = 10.0


def ask(session_id: str, *, entries: int) -> bool:
    """Have a worker verify an existing session, or ``EVERYTHING``; return False if that already waits or runs.

    :param entries: the number of entries there are now, for the progress bar
    """
    with transaction.atomic():
        is_new = store.ask(session_id, entries=entries)
        # The broker's queue is a table of this database, so the wake-up commits with what it is for or not at all.
        async_task(TASK, timeout=TASK_SECONDS)
    return is_new


def verify_next() -> bool:
    """Verify the session that has waited longest; return False if none waits or another one is being verified."""
    worker = new_owner()
    session_id = store.claim(worker=worker)
    if session_id is not None:
        _verify(session_id, worker)
    return session_id is not None


def verify_now(session_id: str, *, entries: int) -> Report:
    """Verify an existing session and return the report.

    :raises Conflict: other verifications took longer than ``PATIENCE_SECONDS``.
    """
    worker, until = new_owner(), time.monotonic() + PATIENCE_SECONDS
    store.ask(session_id, entries=entries)
    while store.claim(worker=worker, session_id=session_id) is None:
        if time.monotonic() > until:
            raise Conflict("Another verification is running. Ask again when it has ended.", session_id=session_id)
        give_back()
        time.sleep(LOOK_SECONDS)
        store.ask(session_id, entries=entries)
    return _verify(session_id, worker)


def _verify(session_id: str, worker: str) -> Report:
    began, done, is_running = time.monotonic(), 0, True

    def progress(entries: int) -> None:
        nonlocal done
        done = entries

    # The thread that verifies reads one snapshot of the database, so another one renews the lease.
    heartbeat = Heartbeat(
        "a verification",
        held=lambda: [session_id] if is_running else [],
        renew=lambda _: store.renew(session_id, worker=worker, done=done),
        seconds=lambda: BEAT_SECONDS,
    )
    heartbeat.start()
    try:
        if session_id == EVERYTHING:
            report = verify_all(jobs=1, progress=progress)
        else:
            report = verify_session(session_id, progress=progress)
    except BaseException:
        store.fail(session_id, worker=worker)
        raise
    finally:
        is_running = False
        heartbeat.stop(wait=True)
    # There is no head when the ledger cannot be read to its end, and many when everything was verified.
    seq, head_hash = report.heads[0] if len(report.heads) == 1 else (0, "")
    store.finish(
        session_id,
        worker=worker,
        duration_ms=int((time.monotonic() - began) * 1000),
        entries_done=report.entries,
        seq=seq,
        head_hash=head_hash,
        entries=report.entries,
        commitments=report.commitments,
        problem_count=len(report.problems),
        problems=[
            {"seq": one.seq, "kind": one.kind, "detail": encode_text(one.detail), "session": one.session}
            for one in report.problems[:PROBLEMS_KEPT]
        ],
        is_unbound=report.unbound_sessions > 0,
        is_moved=bool(report.moved),
    )
    return report
