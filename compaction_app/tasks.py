"""Tasks of the worker. A task may run twice or late: the run's row decides."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from compaction_app.compact import compact_session
from compaction_app.queries import load_run
from mnesis_core.errors import SessionNotFoundError


def compact(*, run_id: str, **_later: Any) -> None:
    """Do the work of one compaction, unless another process has done it or is doing it."""
    # The session may be deleted meanwhile.
    with suppress(SessionNotFoundError):
        compact_session(load_run(run_id).session_id, run_id=run_id)
