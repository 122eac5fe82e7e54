"""Context and compactions at the REST door."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import Field

from compaction_app import queries
from compaction_app.compact import compact_now, request_manual
from compaction_app.differences import compare_calls
from compaction_app.rebuilding import rebuild_payload
from compaction_app.revising_api import router as revising_router
from compaction_app.search_api import router as search_router
from compaction_app.showing import CompactionOut, ContextFormat, compaction_out, show_context
from compaction_app.summaries_api import router as summaries_router
from sessions_app.asking import owner_id
from sessions_app.queries import load_call, load_session
from sessions_app.schemas import CallOut, ErrorOut, call_out

router = Router(tags=["context"])
router.add_router("", search_router)
router.add_router("", summaries_router)
router.add_router("", revising_router)

ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 422: ErrorOut, 429: ErrorOut}


class CallRead(CallOut):
    """A model call, and whether its payload can be rebuilt byte for byte."""

    digest_matches: bool


class PayloadOut(Schema):
    """A past payload, rebuilt."""

    payload: dict[str, Any] | None
    digest: str
    stored_digest: str
    digest_matches: bool
    problems: list[str]


class ChangeOut(Schema):
    """One thing that the later prompt shows in another way."""

    change: str
    kind: str
    id: str
    reason: str
    by: str


class DifferenceOut(Schema):
    """What a call showed in another way than an earlier one; ``from`` is null where there was none."""

    from_: Annotated[str | None, Field(serialization_alias="from")]
    to: str
    changes: list[ChangeOut]
    counts: dict[str, int]
    total: int
    is_cut: bool


class CompactIn(Schema):
    """Whether to wait for the end."""

    wait: bool = False


LATER = CompactIn()
"""What an empty body asks for."""


class CompactionList(Schema):
    """Compactions, newest first."""

    items: list[CompactionOut]
    next_cursor: None = None


@router.get(
    "/sessions/{session_id}/context", response={200: dict[str, Any], **ERRORS}, summary="See what the model sees"
)
def read_context(
    request: HttpRequest,
    session_id: str,
    format: ContextFormat = "mnesis",
    at: Annotated[int | None, Field(ge=0, le=2**53)] = None,
) -> dict[str, Any]:
    """The active context now, or as of event ``at``: messages, budget, breakdown, manifest, digest, what is left out.

    ``estimate`` says what corrects our count (``source``, ``ratio``, ``samples``), and the ``error`` it had.

    Any other format than ``mnesis`` gives the payload for that kind of provider, and the digest of it.
    """
    return show_context(session_id, owner_id=owner_id(request), provider=format, at=at)


@router.get("/calls/{call_id}", response={200: CallRead, **ERRORS}, summary="Read a model call")
def read_call(request: HttpRequest, call_id: str) -> dict[str, Any]:
    """One model call: manifest, parameters, usage and its source."""
    call = load_call(call_id, owner_id=owner_id(request))
    return call_out(call) | {"digest_matches": rebuild_payload(call).digest_matches}


@router.get("/calls/{call_id}/payload", response={200: PayloadOut, **ERRORS}, summary="Rebuild what a model was sent")
def read_payload(request: HttpRequest, call_id: str) -> dict[str, Any]:
    """The payload of a past call, rebuilt from the record and compared with the digest of what was sent."""
    rebuilt = rebuild_payload(load_call(call_id, owner_id=owner_id(request)))
    names = ("payload", "digest", "stored_digest", "digest_matches", "problems")
    return {name: getattr(rebuilt, name) for name in names}


@router.get(
    "/calls/{call_id}/difference", response={200: DifferenceOut, **ERRORS}, by_alias=True, summary="Compare two calls"
)
def read_difference(
    request: HttpRequest, call_id: str, earlier: Annotated[str | None, Query(alias="from")] = None
) -> dict[str, Any]:
    """What entered, left, was summarised, pruned or shortened since an earlier call of the session, and why.

    ``from`` is that call; by default the one before. At most 1,000 changes are told one by one, all are counted.
    """
    compared = compare_calls(call_id, owner_id=owner_id(request), earlier_id=earlier)
    return {
        "from_": compared.earlier.id if compared.earlier else None,
        "to": compared.later.id,
        "changes": [asdict(change) for change in compared.changes],
        "counts": compared.counts,
        "total": compared.total,
        "is_cut": compared.total > len(compared.changes),
    }


@router.post(
    "/sessions/{session_id}/compact", response={200: CompactionOut, 202: CompactionOut, **ERRORS}, summary="Compact now"
)
def compact(request: HttpRequest, session_id: str, body: CompactIn = LATER) -> Any:
    """Summarise everything but the newest turns. With ``wait`` the answer comes when it is done."""
    load_session(session_id, owner_id=owner_id(request))
    if body.wait:
        return compaction_out(compact_now(session_id))
    return Status(202, compaction_out(queries.load_run(request_manual(session_id))))


@router.get("/sessions/{session_id}/compactions", response={200: CompactionList, **ERRORS}, summary="List compactions")
def list_compactions(request: HttpRequest, session_id: str) -> dict[str, Any]:
    """Compactions with every level tried, the reasons, tokens before and after, and cost."""
    load_session(session_id, owner_id=owner_id(request))
    return {"items": [compaction_out(run) for run in queries.list_runs(session_id)]}
