"""The worker's task. Do not rename it: rows of the queue name it. It may run twice or late: the marks say what is to be done."""

from __future__ import annotations

from typing import Any

from django_q.tasks import async_task

from sessions_app.search.vector_store import TASK, TASK_SECONDS, fill_or_log


def fill_vectors(**_later: Any) -> None:
    """Make vectors of messages for a slice of time, and queue the rest."""
    if fill_or_log():
        async_task(TASK, timeout=TASK_SECONDS)
