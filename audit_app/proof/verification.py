"""Story: somebody asks for the proof of a session, or of everything, a worker makes it, and pages tell what it found.

It runs in the worker, so that no page waits for it, and one at a time on the whole site, so that nobody can keep the
machine busy with more. Whoever asks for a session that waits or is being verified gets that one.
"""

from __future__ import annotations

import time
from typing import Any

from django.db import transaction
from django_q.tasks import async_task

from audit_app import store
from audit_app.proof.verify import Report, verify_all, verify_session
from audit_app.queries import EVERYTHING
from mnesis_core.errors import Conflict
from mnesis_core.text import encode_text
from sessions_app.database.threads import give_back
from sessions_app.record.lease import Heartbeat, new_owner

TASK = "audit_app.tasks.verify"
TASK_SECONDS = 3_600
"""A worker that takes longer is killed by the cluster: it hangs."""
BEAT_SECONDS = 0.5
PROBLEMS_KEPT = 200
LOOK_SECONDS = 0.25
PATIENCE_SECONDS = 10.0
"""How long somebody who waits for the answer waits for others first."""


def ask(session_id: str, *, entries: int) -> bool:
    """Have a session, which exists, verified by a worker; False where that is on its way already.

    :param entries: how many entries it has now
    """
    with transaction.atomic():
        is_new = store.ask(session_id, entries=entries)
        # The broker's queue is a table of this database, so the wake-up commits with what it is for or not at all.
        async_task(TASK, timeout=TASK_SECONDS)
    return is_new


def ask_for_everything() -> bool:
    """Have the whole database verified by a worker; False where that is on its way already."""
    return ask(EVERYTHING, entries=0)


def verify_next() -> bool:
    """Verify the session that has waited longest; False where none waits, or somebody is at one."""
    worker = new_owner()
    session_id = store.claim(worker=worker)
    if session_id is not None:
        _verify(session_id, worker)
    return session_id is not None


def verify_now(session_id: str, *, entries: int) -> Report:
    """Verify a session, which exists, and wait for what is found.

    :raises Conflict: others are verified, and it took too long to wait for that.
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

    # A thread of its own: the one that verifies looks at one state of the database, and reads.
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
    store.finish(session_id, worker=worker, duration_ms=int((time.monotonic() - began) * 1000), **_columns(report))
    return report


def _columns(report: Report) -> dict[str, Any]:
    # None, where it cannot be read to its end; many, where everything was verified.
    seq, head_hash = report.heads[0] if len(report.heads) == 1 else (0, "")
    kept = [
        {"seq": one.seq, "kind": one.kind, "detail": encode_text(one.detail), "session": one.session}
        for one in report.problems[:PROBLEMS_KEPT]
    ]
    return {
        "entries_done": report.entries,
        "seq": seq,
        "head_hash": head_hash,
        "entries": report.entries,
        "commitments": report.commitments,
        "problem_count": len(report.problems),
        "problems": kept,
        "is_unbound": report.unbound_sessions > 0,
        "is_moved": bool(report.moved),
    }
