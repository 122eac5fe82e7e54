"""Context and compactions at the REST door."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any, Literal

from django.http import HttpRequest
from ninja import Query, Router, Schema, Status
from pydantic import Field

from compaction_app import queries
from compaction_app.compact import compact_now, request_manual
from compaction_app.context import load_state
from compaction_app.differences import compare_calls
from compaction_app.rebuilding import rebuild_payload
from compaction_app.revising_api import router as revising_router
from compaction_app.search_api import router as search_router
from compaction_app.summaries_api import router as summaries_router
from mnesis_core.lineage import RunRecord, TryRecord
from mnesis_core.rendering import digest, render
from mnesis_core.text import printable
from sessions_app.asking import owner_id
from sessions_app.queries import load_call, load_session
from sessions_app.schemas import CallOut, ErrorOut, call_out, error_out

router = Router(tags=["context"])
router.add_router("", search_router)
router.add_router("", summaries_router)
router.add_router("", revising_router)

ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 422: ErrorOut}


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


class TryOut(Schema):
    """One attempt at a summary, or at a piece of one."""

    id: str
    call_id: str | None
    summary_id: str
    kind: str
    level: int
    piece: int
    pieces: int
    target_tokens: int | None
    prompt_version: str
    accepted: bool
    reason: str
    input_tokens: int
    output_tokens: int
    source: str
    cost_micros: int | None
    created_at: datetime


class CompactionOut(Schema):
    """A compaction."""

    id: str
    state: str
    trigger: str
    attempts: int
    """Workers that have taken it up; more than one when one died."""
    outcome: str | None
    level: int | None
    tries: list[TryOut]
    tokens_before: int | None
    tokens_after: int | None
    summary_id: str | None
    summary_ids: list[str]
    source_count: int | None
    pruned_parts: int | None
    cost_micros: int | None
    error: dict[str, Any] | None
    created_at: datetime
    started_at: datetime | None
    ended_at: datetime | None


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
    format: Literal["mnesis", "openai_chat", "openai_responses", "anthropic", "gemini"] = "mnesis",
    at: Annotated[int | None, Field(ge=0, le=2**53)] = None,
) -> dict[str, Any]:
    """The active context now, or as of event ``at``: messages, budget, breakdown, manifest, digest, what is left out.

    ``estimate`` says what corrects our count (``source``, ``ratio``, ``samples``), and the ``error`` it had.

    Any other format than ``mnesis`` gives the payload for that kind of provider, and the digest of it.
    """
    load_session(session_id, owner_id=owner_id(request))
    state = load_state(session_id, at=at)
    built = state.build()
    body: dict[str, Any] = {
        "budget": asdict(built.budget) | {"window_source": state.spec.context_window_source},
        "estimate": {"tokens": built.assembled.used_tokens} | state.calibration.as_dict(),
        "pressure": built.pressure.value,
        "breakdown": asdict(built.assembled.breakdown),
        "manifest": list(built.assembled.manifest),
        "digest": built.digest,
        "left_out": [asdict(item) for item in built.assembled.left_out],
    }
    if format != "mnesis":
        payload = render(built.assembled, provider=format)
        return body | {"payload": payload, "digest": digest(payload)}
    return body | {"messages": _printable([asdict(message) for message in built.assembled.messages])}


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
def compact(request: HttpRequest, session_id: str, body: CompactIn | None = None) -> Any:
    """Summarise everything but the newest turns. With ``wait`` the answer comes when it is done."""
    load_session(session_id, owner_id=owner_id(request))
    if body is not None and body.wait:
        return compaction_out(compact_now(session_id))
    return Status(202, compaction_out(queries.load_run(request_manual(session_id))))


@router.get("/sessions/{session_id}/compactions", response={200: CompactionList, **ERRORS}, summary="List compactions")
def list_compactions(request: HttpRequest, session_id: str) -> dict[str, Any]:
    """Compactions with every level tried, the reasons, tokens before and after, and cost."""
    load_session(session_id, owner_id=owner_id(request))
    return {"items": [compaction_out(run) for run in queries.list_runs(session_id)]}


def _try_out(attempt: TryRecord) -> dict[str, Any]:
    return asdict(attempt) | {
        "input_tokens": attempt.tokens_input,
        "output_tokens": attempt.tokens_output,
        "source": attempt.usage_source,
    }


def compaction_out(run: RunRecord) -> dict[str, Any]:
    """A compaction as JSON."""
    names = ("id", "state", "trigger", "outcome", "level", "tokens_before", "tokens_after", "summary_ids")
    more = ("attempts", "source_count", "pruned_parts", "cost_micros", "created_at", "started_at", "ended_at")
    return {name: getattr(run, name) for name in names + more} | {
        "tries": [_try_out(attempt) for attempt in run.tries],
        "summary_id": run.summary_ids[-1] if run.summary_ids else None,
        "error": error_out(run.error_code, run.error_message),
    }


def _printable(value: Any) -> Any:
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {key: _printable(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_printable(item) for item in value]
    return value
