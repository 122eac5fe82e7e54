"""Proof at the REST door."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest
from ninja import Router, Schema

from audit_app.verify import verify_session
from sessions_app import queries
from sessions_app.asking import owner_id
from sessions_app.schemas import ErrorOut

router = Router(tags=["audit"])

ERRORS = {401: ErrorOut, 404: ErrorOut}


class ProblemOut(Schema):
    """One thing that is not as it was written; ``seq`` is the entry that says otherwise, 0 where none tells of it."""

    session: str
    seq: int
    kind: str
    detail: str


class CheckedOut(Schema):
    """How much was looked at."""

    sessions: int
    entries: int
    commitments: int
    unbound_sessions: int


class ReportOut(Schema):
    """What a verification found."""

    ok: bool
    checked: CheckedOut
    problems: list[ProblemOut]


@router.post("/sessions/{session_id}/verify", response={200: ReportOut, **ERRORS}, summary="Verify a session")
def verify(request: HttpRequest, session_id: str) -> Any:
    """Prove that a session's ledger is whole and that its rows are what it says, in both directions."""
    session = queries.load_session(session_id, owner_id=owner_id(request))
    return verify_session(session.id).as_dict()
