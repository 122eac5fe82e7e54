"""Contexts, compactions, summaries with their lineage and revisions, and past model calls at the REST endpoint."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Field, Query, Router, Schema, Status
from pydantic import BeforeValidator
from pydantic import Field as PydanticField

from compaction_app import queries, revise
from compaction_app.compact import compact_now, request_manual
from compaction_app.context.fidelity import load_fidelity
from compaction_app.context.manifests import compare_calls, with_manifests
from compaction_app.context.state import rebuild_payload
from compaction_app.facts.api import router as facts_router
from compaction_app.lineage.api import router as lineage_router
from compaction_app.search import router as search_router
from compaction_app.views import CompactionOut, ContextFormat, show_context
from mnesis_core.compaction.requests import SummaryPrompt, parse_prompt
from mnesis_core.errors import InvalidRequest
from mnesis_core.files.references import find_file_ids
from mnesis_core.records import CallRecord, SummaryRecord
from sessions_app.api import messages_out
from sessions_app.callers import Asker, owner_id
from sessions_app.operations import by_name
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import list_calls as load_calls
from sessions_app.record.turn_queries import load_call
from sessions_app.schemas import (
    CallOut,
    ErrorOut,
    IsSet,
    MessageOut,
    Out,
    Text,
    page_of,
    place_of,
    read_place,
)

router = Router(tags=["context"])
router.add_router("", search_router)
router.add_router("", facts_router)
router.add_router("", lineage_router)

ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 422: ErrorOut, 429: ErrorOut}
WRITE_ERRORS = {**ERRORS, 403: ErrorOut, 409: ErrorOut}
Limit = Annotated[int, Query(ge=1, le=500)]
Superseded = Annotated[bool, Field(validation_alias="superseded_seq"), IsSet]


class NodeOut(Out):
    """A summary without its text."""

    id: str
    kind: str
    depth: int
    level: int
    first_seq: int
    last_seq: int
    message_count: int
    token_count: int
    source_tokens: int
    tokens_input: int
    tokens_output: int
    cost_micros: int
    freshness: str
    branch: int  # that it was made for; it serves every branch that has all of its messages


class SummaryOut(NodeOut):
    """A summary."""

    text: Text
    source_ids: Annotated[list[str], BeforeValidator(lambda sources: [id for _, id in sources])]
    file_ids: Annotated[list[str], Field(validation_alias="text"), BeforeValidator(find_file_ids)]
    model: str
    prompt_version: str
    duration_ms: int
    revises: str | None
    restores: str | None
    superseded: Superseded
    superseded_by: str | None
    created_at: datetime


class SummaryList(Out):
    """Every summary of a session, in the order they were made."""

    items: list[SummaryOut]
    next_cursor: None = None


class RevisionOut(NodeOut):
    """One revision of a summary."""

    revises: Annotated[str | None, Field(validation_alias="revises_id")]
    restores: Annotated[str | None, Field(validation_alias="restores_id")]
    superseded: Superseded


class CostOut(Out):
    """The usage of a summary and all summaries under it, and the size of their texts."""

    summaries: int
    leaves: int
    messages: int
    token_count: int
    tokens_input: int
    tokens_output: int
    cost_micros: int


class DescriptionOut(SummaryOut):
    """A summary, what stands for it (the nearest first), and which of these is in the context now."""

    session_id: str
    revisions: list[RevisionOut]
    above: list[NodeOut]
    in_context: str | None
    subtree: CostOut


class BelowOut(NodeOut):
    """A summary under another one, some steps down."""

    steps: int


class LineageOut(Out):
    """The summaries that stand for a summary, nearest first, and those under it in order, including itself."""

    id: str
    above: list[NodeOut]
    below: list[BelowOut]
    in_context: str | None
    next_cursor: str | None


class MessageLineageOut(Out):
    """The summaries that stand for a message, nearest first."""

    id: str
    seq: int
    above: list[NodeOut]
    in_context: str | None


class SourceOut(SummaryOut):
    """A source in its newest revision; ``source_id`` is the one that was read when the summary was made."""

    source_id: str


class ExpandedOut(Out):
    """The sources of a summary: ``messages``, or the ``summaries`` it was condensed from."""

    kind: str
    items: list[MessageOut] | list[SourceOut]
    next_cursor: str | None


Run = Annotated[list[int], Field(min_length=2, max_length=2)]  # the first and the last message's place


class CoverOut(Out):
    """Whether a context stands for every message exactly once, in order. Runs of messages are (first, last)."""

    ok: bool
    messages: int
    verbatim: int
    summarised: int
    missing: list[Run]
    twice: list[Run]
    out_of_order: list[Run]
    miscounted: list[str]


@router.get("/sessions/{session_id}/summaries", response={200: SummaryList, **ERRORS}, summary="List summaries")
def list_summaries(request: HttpRequest, session_id: str) -> dict[str, Any]:
    """The summary DAG: each node with its sources, those that were superseded among them."""
    load_session(session_id, owner_id=owner_id(request))
    summaries = queries.list_summaries(session_id)
    later = {summary.revises: summary.id for summary in summaries}
    return {"items": [summary_out(summary, superseded_by=later.get(summary.id)) for summary in summaries]}


@router.get("/sessions/{session_id}/cover", response={200: CoverOut, **ERRORS}, summary="Check that nothing is lost")
def read_cover(request: HttpRequest, session_id: str) -> Any:
    """Expand the whole context: does it give every message of the session once, in order? Names those that it does not."""
    load_session(session_id, owner_id=owner_id(request))
    return queries.cover(session_id)


@router.get(
    "/sessions/{session_id}/messages/{message_id}/lineage",
    response={200: MessageLineageOut, **ERRORS},
    summary="Find what stands for a message",
)
def trace_message(request: HttpRequest, session_id: str, message_id: str) -> dict[str, Any]:
    """The summaries that stand for a message, and what of them is in the context now, if not the message itself."""
    load_session(session_id, owner_id=owner_id(request))
    traced = queries.trace_message(message_id, session_id=session_id)
    return {"id": message_id, "seq": traced.seq, "above": traced.above, "in_context": traced.in_context}


@router.get("/summaries/{summary_id}", response={200: DescriptionOut, **ERRORS}, summary="Describe a summary")
def read_summary(request: HttpRequest, summary_id: str) -> dict[str, Any]:
    """One summary: text, level, span and sources, what stands for it, and what it and all under it took."""
    found = queries.describe_summary(queries.load_summary(summary_id, owner_id=owner_id(request)))
    later = next((node.id for node in found.revisions if node.revises_id == summary_id), None)
    return summary_out(found.summary, superseded_by=later) | {
        "revisions": found.revisions,
        "above": found.above,
        "in_context": found.in_context,
        "subtree": found.cost,
    }


@router.get("/summaries/{summary_id}/lineage", response={200: LineageOut, **ERRORS}, summary="Trace a summary")
def read_lineage(
    request: HttpRequest, summary_id: str, limit: Limit = 500, cursor: str | None = None
) -> dict[str, Any]:
    """Return the summaries that stand for this one and those under it, a page at a time, each with its cost."""
    offset = parse_offset(cursor)
    found = queries.describe_summary(queries.load_summary(summary_id, owner_id=owner_id(request)))
    page = found.below[offset : offset + limit]
    return {
        "id": found.summary.id,
        "above": found.above,
        "below": [asdict(node) | {"steps": steps} for steps, node in page],
        "in_context": found.in_context,
        "next_cursor": str(offset + limit) if offset + limit < len(found.below) else None,
    }


@router.get("/summaries/{summary_id}/expand", response={200: ExpandedOut, **ERRORS}, summary="Expand a summary")
def expand_summary(
    request: HttpRequest, summary_id: str, deep: bool = False, limit: Limit = 100, cursor: str | None = None
) -> dict[str, Any]:
    """Return what a summary stands for, one step down, or with ``deep`` the original messages through all steps."""
    offset = parse_offset(cursor)
    summary = queries.load_summary(summary_id, owner_id=owner_id(request))
    if summary.kind == "condensed" and not deep:
        items = [summary_out(source) | {"source_id": read} for read, source in queries.expand_step(summary)]
        return {"kind": "summaries", "items": items, "next_cursor": None}
    page = queries.expand_messages(summary, offset=offset, limit=limit)
    return {
        "kind": "messages",
        "items": messages_out(summary.session_id, page.messages),
        "next_cursor": None if page.next_offset is None else str(page.next_offset),
    }


class MissingOut(Out):
    """Something that a summary's sources say, and nothing that a model is shown. Its place is in a message, or nowhere."""

    kind: str
    text: Text
    message_id: str | None
    seq: int | None
    part_id: str | None
    start: int | None  # characters of the part's text
    end: int | None


class FidelityOut(Out):
    """How much of its sources a summary kept. ``counted`` and ``missing`` are ``null`` where it was not measured."""

    id: str
    counted: int | None
    missing: int | None
    alarm: bool
    items: list[MissingOut]
    next_cursor: str | None


@by_name("summary/fidelity")
@router.get("/summaries/{summary_id}/fidelity", response={200: FidelityOut, **ERRORS}, summary="Find what was lost")
def read_fidelity(request: Asker, summary_id: str, limit: Limit = 100, cursor: str | None = None) -> dict[str, Any]:
    """Names, numbers, dates, identifiers, decisions and instructions of a summary's sources that no summary and no fact had then."""
    offset = parse_offset(cursor)
    found = load_fidelity(queries.load_summary(summary_id, owner_id=owner_id(request)))
    page = found.missing[offset : offset + limit]
    return {
        "id": summary_id,
        "counted": found.measured and found.measured.counted,
        "missing": found.measured and found.measured.missing,
        "alarm": found.is_alarm,
        "items": [
            {
                "kind": one.item.kind.value,
                "text": one.item.text,
                "message_id": one.source.message_id or None,
                "seq": one.source.seq or None,
                "part_id": one.source.part_id or None,
                "start": one.item.start if one.source.part_id else None,
                "end": one.item.end if one.source.part_id else None,
            }
            for one in page
        ],
        "next_cursor": str(offset + limit) if offset + limit < len(found.missing) else None,
    }


def summary_out(summary: SummaryRecord, *, superseded_by: str | None = None) -> dict[str, Any]:
    return asdict(summary) | {"superseded_by": superseded_by}


def parse_offset(cursor: str | None) -> int:
    if cursor is None:
        return 0
    if not (cursor.isascii() and cursor.isdecimal() and len(cursor) < 16):
        raise InvalidRequest("cursor must be the next_cursor of the page before", field="cursor")
    return int(cursor)


class PreviewIn(Schema):
    """The model and prompt to use. By default they are those of the session."""

    model: Annotated[str, PydanticField(max_length=100)] = ""
    prompt: Annotated[str, PydanticField(max_length=50_000)] | None = None
    """A text in the shape of the prompts that come with Mnesis."""
    subtree: bool = False
    only_stale: bool = False


class ApplyIn(Schema):
    preview_id: Annotated[str, PydanticField(max_length=100)]


class UndoIn(Schema):
    """The revision whose text is restored, by default the one before; ``subtree`` restores all that was applied with it."""

    to: Annotated[str, PydanticField(max_length=100)] | None = None
    subtree: bool = False


PLAIN_PREVIEW, PLAIN_UNDO = PreviewIn(), UndoIn()  # what an empty body asks for


class PreviewedOut(Out):
    """One summary of a preview. ``difference`` has the lines of a unified difference, none where the text is the same."""

    id: str
    summary_id: str
    level: int
    text: Text
    token_count: int
    token_count_before: int
    level_before: int
    model: str
    model_before: str
    prompt_version: str
    prompt_version_before: str
    tokens_input: int
    tokens_output: int
    cost_micros: int
    cost_micros_before: int
    duration_ms: int
    source_ids: list[str]
    difference: list[Text]
    applied: bool
    created_at: datetime


class PreviewOut(Out):
    """The changes of a revision, each summary after its sources. Nothing has changed unless it was applied."""

    id: str
    summary_id: str
    session_id: str
    applied: bool
    items: list[PreviewedOut]


class RevisionsOut(Out):
    """Revisions that were made, the asked one last."""

    items: list[SummaryOut]


@router.post(
    "/summaries/{summary_id}/preview", response={201: PreviewOut, **WRITE_ERRORS}, summary="Summarise again, to see it"
)
def preview(request: HttpRequest, summary_id: str, body: PreviewIn = PLAIN_PREVIEW) -> Any:
    """Ask for a summary again, or for all under it. The answer comes when the model has answered; nothing changes."""
    caller = owner_id(request)
    made = revise.preview(
        summary_id,
        owner_id=caller,
        subtree=body.subtree,
        only_stale=body.only_stale,
        model=body.model,
        prompt=None if body.prompt is None else _prompt(body.prompt),
    )
    return Status(201, _preview_out(made, caller))


@router.get("/previews/{preview_id}", response={200: PreviewOut, **ERRORS}, summary="See what a preview would change")
def read_preview(request: HttpRequest, preview_id: str) -> dict[str, Any]:
    """The difference of the texts, tokens and cost before and after, and whether it was applied."""
    return _preview_out(preview_id, owner_id(request))


@router.post("/summaries/{summary_id}/apply", response={200: RevisionsOut, **WRITE_ERRORS}, summary="Apply a preview")
def apply(request: HttpRequest, summary_id: str, body: ApplyIn) -> dict[str, Any]:
    """Put exactly what was previewed in place. Refused if something it was made from was revised meanwhile."""
    caller = owner_id(request)
    if queries.load_previews(body.preview_id, owner_id=caller)[-1].summary_id != summary_id:
        raise InvalidRequest("this preview is of another summary", field="preview_id")
    return _revisions_out(revise.apply(body.preview_id, owner_id=caller), caller)


@router.post("/summaries/{summary_id}/undo", response={200: RevisionsOut, **WRITE_ERRORS}, summary="Undo a revision")
def undo(request: HttpRequest, summary_id: str, body: UndoIn = PLAIN_UNDO) -> dict[str, Any]:
    """Give a summary the text of an earlier revision, as one more revision."""
    caller = owner_id(request)
    return _revisions_out(revise.undo(summary_id, owner_id=caller, to=body.to, subtree=body.subtree), caller)


def _prompt(text: str) -> SummaryPrompt:
    try:
        return parse_prompt("custom", text)
    except ValueError as error:
        raise InvalidRequest(str(error), field="prompt") from None


def _preview_out(preview_id: str, caller: int) -> dict[str, Any]:
    found = queries.compare_previews(preview_id, owner_id=caller)
    top = found[-1].preview
    compared = ("level", "token_count", "model", "prompt_version", "cost_micros")
    return {
        "id": top.id,
        "summary_id": top.summary_id,
        "session_id": top.session_id,
        "applied": found[-1].is_applied,
        "items": [
            asdict(comparison.preview)
            | {"difference": comparison.lines, "applied": comparison.is_applied}
            | {f"{name}_before": getattr(comparison.before, name) for name in compared}
            for comparison in found
        ],
    }


def _revisions_out(ids: list[str], caller: int) -> dict[str, Any]:
    session_id = queries.load_summary(ids[-1], owner_id=caller).session_id
    return {"items": [summary_out(summary) for summary in queries.load_summaries(ids, session_id=session_id)]}


class CallList(Out):
    """A page of model calls."""

    items: list[CallOut]
    next_cursor: str | None


class CallRead(CallOut, Schema):
    """A model call, and whether its payload can be rebuilt byte for byte."""

    digest_matches: bool

    @staticmethod
    def resolve_digest_matches(call: CallRecord) -> bool:
        return rebuild_payload(call).digest_matches


class PayloadOut(Out):
    """A past payload, rebuilt."""

    payload: dict[str, Any] | None
    digest: str
    stored_digest: str
    digest_matches: bool
    problems: list[str]
    body: Text | None = None  # of a call through the gateway: exactly what was sent


class ChangeOut(Out):
    """One thing that the later prompt shows in another way."""

    change: str
    kind: str
    id: str
    reason: str
    by: str


class DifferenceOut(Out):
    """The differences between a call's prompt and an earlier one. ``from`` is null if there was none."""

    from_: Annotated[str | None, PydanticField(serialization_alias="from")]
    to: str
    changes: list[ChangeOut]
    counts: dict[str, int]
    total: int
    is_cut: bool


class CompactIn(Schema):
    """Whether to wait for the end, and the turns to compact."""

    wait: bool = False
    # Named turns have to follow each other; without any, everything but the newest is compacted.
    turn_ids: Annotated[
        list[Annotated[str, PydanticField(max_length=40)]] | None, PydanticField(min_length=1, max_length=1000)
    ] = None


LATER = CompactIn()  # what an empty body asks for


class CompactionList(Out):
    """Compactions, newest first."""

    items: list[CompactionOut]
    next_cursor: None = None


def call_page(session_id: str, *, owner_id: int, limit: int, cursor: str | None) -> dict[str, Any]:
    """:raises SessionNotFoundError: it does not exist or belongs to another person.
    :raises InvalidRequest: the cursor is malformed.
    """
    load_session(session_id, owner_id=owner_id)
    found = load_calls(session_id, before=read_place(cursor), limit=limit + 1)
    shown = with_manifests(found[:limit])
    return page_of([*shown, *found[len(shown) :]], len(shown), lambda call: place_of(call.created_at, call.id))


@by_name("context/get")
@router.get(
    "/sessions/{session_id}/context", response={200: dict[str, Any], **ERRORS}, summary="See what the model sees"
)
def read_context(
    request: Asker,
    session_id: str,
    format: ContextFormat = "mnesis",
    at: Annotated[int | None, PydanticField(ge=0, le=2**53)] = None,
    question: Annotated[str, PydanticField(max_length=1_000)] = "",
) -> dict[str, Any]:
    """The active context now, or as of event ``at``: messages, budget, breakdown, manifest, digest, what is left out.

    With the ``question`` that will be asked next, or its beginning, passages that may answer it end the prompt. The
    question itself is not in it.

    ``estimate`` says what corrects our count (``source``, ``ratio``, ``samples``), and the ``error`` it had.

    Any other format than ``mnesis`` gives the payload for that kind of provider, and the digest of it.
    """
    return show_context(session_id, owner_id=owner_id(request), provider=format, at=at, question=question)


@router.get("/sessions/{session_id}/calls", response={200: CallList, **ERRORS}, summary="List model calls")
def list_calls(request: HttpRequest, session_id: str, limit: Limit = 50, cursor: str | None = None) -> dict[str, Any]:
    """Model calls of a session, newest first, each with the manifest of what the model saw.

    A page ends early where the manifests have 100,000 rows together.
    """
    return call_page(session_id, owner_id=owner_id(request), limit=limit, cursor=cursor)


@router.get("/calls/{call_id}", response={200: CallRead, **ERRORS}, summary="Read a model call")
def read_call(request: HttpRequest, call_id: str) -> Any:
    """One model call: manifest, parameters, usage and its source."""
    return with_manifests([load_call(call_id, owner_id=owner_id(request))])[0]


@router.get("/calls/{call_id}/payload", response={200: PayloadOut, **ERRORS}, summary="Rebuild what a model was sent")
def read_payload(request: HttpRequest, call_id: str) -> Any:
    """The payload of a past call, rebuilt from the record and compared with the digest of what was sent."""
    return rebuild_payload(load_call(call_id, owner_id=owner_id(request)))


@router.get(
    "/calls/{call_id}/difference", response={200: DifferenceOut, **ERRORS}, by_alias=True, summary="Compare two calls"
)
def read_difference(
    request: HttpRequest, call_id: str, earlier: Annotated[str | None, Query(alias="from")] = None
) -> dict[str, Any]:
    """Return what entered, left, was summarised, pruned or shortened since an earlier call of the session, and why.

    ``from`` is that call; by default the one before. At most 1,000 changes are told one by one, all are counted.
    """
    compared = compare_calls(call_id, owner_id=owner_id(request), earlier_id=earlier)
    return {
        "from_": compared.earlier.id if compared.earlier else None,
        "to": compared.later.id,
        "changes": compared.changes,
        "counts": compared.counts,
        "total": compared.total,
        "is_cut": compared.total > len(compared.changes),
    }


@by_name("session/compact", may_wait=True)
@router.post(
    "/sessions/{session_id}/compact",
    response={200: CompactionOut, 202: CompactionOut, **WRITE_ERRORS},
    summary="Compact now",
)
def compact(request: Asker, session_id: str, body: CompactIn = LATER) -> Any:
    """Summarise everything but the newest turns, or the named turns alone. With ``wait`` the answer comes when it is done."""
    load_session(session_id, owner_id=owner_id(request))
    turn_ids = body.turn_ids or ()
    if body.wait:
        return compact_now(session_id, turn_ids=turn_ids)
    return Status(202, queries.load_run(request_manual(session_id, turn_ids=turn_ids)))


@router.get("/sessions/{session_id}/compactions", response={200: CompactionList, **ERRORS}, summary="List compactions")
def list_compactions(request: HttpRequest, session_id: str) -> dict[str, Any]:
    """Compactions with every level tried, the reasons, tokens before and after, and cost."""
    load_session(session_id, owner_id=owner_id(request))
    return {"items": queries.list_runs(session_id)}
