"""Proof and export at the REST endpoint."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, StreamingHttpResponse
from django.utils.http import content_disposition_header
from ninja import Router

from audit_app.proof.verification import verify_now
from audit_app.transfer.export import Format, Spool
from sessions_app.callers import owner_id
from sessions_app.record import session_queries
from sessions_app.schemas import ErrorOut, Out

router = Router(tags=["audit"])

ERRORS = {401: ErrorOut, 404: ErrorOut, 429: ErrorOut}
BUSY = {409: ErrorOut}


class ProblemOut(Out):
    """One thing that is not as it was written; ``seq`` is the entry that says otherwise, 0 where none tells of it."""

    session: str
    seq: int
    kind: str
    detail: str


class CheckedOut(Out):
    """How much was looked at."""

    sessions: int
    entries: int
    commitments: int
    unbound_sessions: int
    moved: list[str]


class ReportOut(Out):
    """What a verification found."""

    ok: bool
    checked: CheckedOut
    problems: list[ProblemOut]


@router.post("/sessions/{session_id}/verify", response={200: ReportOut, **ERRORS, **BUSY}, summary="Verify a session")
def verify(request: HttpRequest, session_id: str) -> Any:
    """Prove that a session's ledger is whole and that its rows are what it says, in both directions.

    One session at a time is verified on a site: while another one is, this waits, and after ten seconds says CONFLICT.
    """
    session = session_queries.load_session(session_id, owner_id=owner_id(request))
    return verify_now(session.id, entries=session.event_seq).as_dict()


TYPES: dict[Format, tuple[str, str]] = {
    "jsonl": ("application/x-ndjson", "jsonl"),
    "markdown": ("text/markdown; charset=utf-8", "md"),
    "html": ("text/html; charset=utf-8", "html"),
}
"""Of a format: the media type, and how a file's name ends."""
TEXT = {"schema": {"type": "string"}}


@router.get(
    "/sessions/{session_id}/export",
    response={200: None, **ERRORS, 422: ErrorOut},
    summary="Export a session",
    openapi_extra={"responses": {200: {"content": {type.partition(";")[0]: TEXT for type, _ in TYPES.values()}}}},
)
def export(request: HttpRequest, session_id: str, format: Format = "jsonl") -> Any:
    """A whole session: as JSON Lines, for 'manage.py import_session' on this site or another; or to be read."""
    session = session_queries.load_session(session_id, owner_id=owner_id(request))
    media_type, ending = TYPES[format]
    headers = {
        # Never shown in our pages' place: the texts are other people's.
        "Content-Disposition": content_disposition_header(True, f"{session.id}.{ending}"),
        "Cache-Control": "no-store",
        "X-Accel-Buffering": "no",
    }
    return StreamingHttpResponse(Spool(session.id, format), content_type=media_type, headers=headers)
