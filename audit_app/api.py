"""Proof and export at the REST door."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import IO, Any

from django.http import HttpRequest, StreamingHttpResponse
from django.utils.http import content_disposition_header
from ninja import Router, Schema

from audit_app.export import exported_file
from audit_app.verify import verify_session
from sessions_app import queries
from sessions_app.asking import owner_id
from sessions_app.schemas import ErrorOut

router = Router(tags=["audit"])

ERRORS = {401: ErrorOut, 404: ErrorOut}
CHUNK_BYTES = 65_536


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
    moved: list[str]


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


@router.get(
    "/sessions/{session_id}/export",
    response={200: None, **ERRORS},
    summary="Export a session",
    openapi_extra={"responses": {200: {"content": {"application/x-ndjson": {"schema": {"type": "string"}}}}}},
)
def export(request: HttpRequest, session_id: str) -> Any:
    """A whole session as JSON Lines, for 'manage.py import_session' on this site or another."""
    session = queries.load_session(session_id, owner_id=owner_id(request))
    headers = {
        "Content-Disposition": content_disposition_header(True, f"{session.id}.jsonl"),
        "Cache-Control": "no-store",
        "X-Accel-Buffering": "no",
    }
    chunks = _chunks(exported_file(session.id))
    return StreamingHttpResponse(chunks, content_type="application/x-ndjson", headers=headers)


async def _chunks(file: IO[bytes]) -> AsyncIterator[bytes]:
    with file:
        while chunk := await asyncio.to_thread(file.read, CHUNK_BYTES):
            yield chunk
