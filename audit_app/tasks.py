"""Doors for the worker. A task may run twice or late: an import's own note, and a verification's row, say what is left."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from audit_app.proof.verification import verify_next
from audit_app.transfer import import_jobs


def bring_in(import_id: str, **_later: Any) -> None:
    """Bring the files of an import in, unless somebody has, or it was forgotten."""
    with suppress(FileNotFoundError):
        import_jobs.bring_in(import_id)


def verify(**_later: Any) -> None:
    """Verify sessions as long as any waits, unless somebody else does."""
    while verify_next():
        pass
