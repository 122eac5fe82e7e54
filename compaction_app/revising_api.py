"""Summaries said again at the REST door: preview, compare, apply, undo."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Annotated, Any

from django.http import HttpRequest
from ninja import Router, Schema, Status
from pydantic import Field

from compaction_app import queries, revising
from compaction_app.summaries_api import ERRORS, SummaryOut, summary_out
from mnesis_core.compaction.prompts import SummaryPrompt, parse_prompt
from mnesis_core.errors import InvalidRequest
from mnesis_core.text import printable
from sessions_app.asking import owner_id
from sessions_app.schemas import ErrorOut

router = Router(tags=["context"])

WRITE_ERRORS = {**ERRORS, 403: ErrorOut, 409: ErrorOut}


class PreviewIn(Schema):
    """Who is asked and how; by default as this session is summarised."""

    model: Annotated[str, Field(max_length=100)] = ""
    prompt: Annotated[str, Field(max_length=50_000)] | None = None
    """A text in the shape of the prompts that come with Mnesis."""
    subtree: bool = False
    only_stale: bool = False


class ApplyIn(Schema):
    """Which preview."""

    preview_id: Annotated[str, Field(max_length=100)]


class UndoIn(Schema):
    """Which earlier revision's text comes back, by default the one before; and whether all that was applied with it."""

    to: Annotated[str, Field(max_length=100)] | None = None
    subtree: bool = False


PLAIN_PREVIEW, PLAIN_UNDO = PreviewIn(), UndoIn()
"""What an empty body asks for."""


class PreviewedOut(Schema):
    """One summary of a preview. ``difference`` has the lines of a unified difference, none where the text is the same."""

    id: str
    summary_id: str
    level: int
    text: str
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
    difference: list[str]
    applied: bool
    created_at: datetime


class PreviewOut(Schema):
    """What would change, each summary after those it is made from. Nothing has changed unless it was applied."""

    id: str
    summary_id: str
    session_id: str
    applied: bool
    items: list[PreviewedOut]


class RevisionsOut(Schema):
    """Revisions that were made, the asked one last."""

    items: list[SummaryOut]


@router.post(
    "/summaries/{summary_id}/preview", response={201: PreviewOut, **WRITE_ERRORS}, summary="Summarise again, to see it"
)
def preview(request: HttpRequest, summary_id: str, body: PreviewIn = PLAIN_PREVIEW) -> Any:
    """Ask for a summary again, or for all under it. The answer comes when the model has answered; nothing changes."""
    caller = owner_id(request)
    made = revising.preview(
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
    return _revisions_out(revising.apply(body.preview_id, owner_id=caller), caller)


@router.post("/summaries/{summary_id}/undo", response={200: RevisionsOut, **WRITE_ERRORS}, summary="Undo a revision")
def undo(request: HttpRequest, summary_id: str, body: UndoIn = PLAIN_UNDO) -> dict[str, Any]:
    """Give a summary the text of an earlier revision, as one more revision."""
    caller = owner_id(request)
    return _revisions_out(revising.undo(summary_id, owner_id=caller, to=body.to, subtree=body.subtree), caller)


def _prompt(text: str) -> SummaryPrompt:
    try:
        return parse_prompt("custom", text)
    except ValueError as error:
        raise InvalidRequest(str(error), field="prompt") from None


def _preview_out(preview_id: str, caller: int) -> dict[str, Any]:
    found = revising.compare(preview_id, owner_id=caller)
    top = found[-1].preview
    return {
        "id": top.id,
        "summary_id": top.summary_id,
        "session_id": top.session_id,
        "applied": found[-1].is_applied,
        "items": [_previewed_out(comparison) for comparison in found],
    }


def _previewed_out(comparison: revising.Comparison) -> dict[str, Any]:
    before = comparison.before
    return asdict(comparison.preview) | {
        "text": printable(comparison.preview.text),
        "difference": [printable(line) for line in comparison.lines],
        "applied": comparison.is_applied,
        "level_before": before.level,
        "token_count_before": before.token_count,
        "model_before": before.model,
        "prompt_version_before": before.prompt_version,
        "cost_micros_before": before.cost_micros,
    }


def _revisions_out(ids: list[str], caller: int) -> dict[str, Any]:
    session_id = queries.load_summary(ids[-1], owner_id=caller).session_id
    return {"items": [summary_out(summary) for summary in queries.load_summaries(ids, session_id=session_id)]}
