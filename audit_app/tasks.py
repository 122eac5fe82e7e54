"""The worker's tasks. A task may run twice or late: an import's note, a report and a verification's row say what is left to do.

``later`` takes arguments that a newer version may queue.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from audit_app.evaluation import evaluate
from audit_app.proof.verify import verify_next
from audit_app.transfer import imports
from mnesis_core.errors import EvaluationNotFound


def run_import(import_id: str, **later: Any) -> None:
    with suppress(FileNotFoundError):  # the import has been forgotten
        imports.run_import(import_id)


bring_in = run_import  # its name in the rows of the queue that an earlier version wrote


def evaluate_session(*, report_id: str, session_id: str, asked: dict[str, Any] | None = None, **later: Any) -> None:
    with suppress(EvaluationNotFound):  # the report was removed
        evaluate.evaluate_session(report_id, session_id, asked or {})


def verify(**later: Any) -> None:
    while verify_next():
        pass
