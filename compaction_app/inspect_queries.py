"""Reads of summaries for the inspector: a page at a time, texts as beginnings or one by one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any

from django.db.models import Case, Count, F, Sum, Value, When
from django.db.models.functions import Left

from compaction_app.models import SummaryEdge, SummaryNode, SummaryTry
from mnesis_core.errors import SummaryNotFoundError
from mnesis_core.lineage import TryRecord
from mnesis_core.text import decode_json, decode_text, encode_text

HEAD_CHARACTERS = 400
_HEAD = ("id", "kind", "first_seq", "last_seq", "token_count", "level", "model")
_SORT = ("kind", "level", "freshness")
_TRY_COLUMNS = [field.name for field in fields(TryRecord)]


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryHead:
    """A summary with the beginning of its text."""

    id: str
    kind: str
    first_seq: int
    last_seq: int
    token_count: int
    level: int
    model: str
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What a compaction has come to so far."""

    summaries: int
    saved: int
    """Tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryCount:
    """How many summaries of one sort there are."""

    kind: str
    level: int
    freshness: str
    is_superseded: bool
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """What a summarising model answered, word for word."""

    text: str
    reasoning: str
    tool_calls: list[Any]


def count_summaries(session_id: str) -> list[SummaryCount]:
    """How many summaries of a session there are of each sort; one query."""
    superseded = Case(When(superseded_seq__isnull=False, then=Value(True)), default=Value(False))
    rows = SummaryNode.objects.filter(session_id=session_id).order_by().annotate(is_superseded=superseded)
    counted = rows.values(*_SORT, "is_superseded").annotate(number=Count("id"))
    return [SummaryCount(**row) for row in counted]


def load_sources(summary_id: str, *, offset: int, limit: int) -> list[str]:
    """The ids of some of what a summary was made of, in order."""
    edges = SummaryEdge.objects.filter(node_id=summary_id).order_by("position")
    return list(edges.values_list("source_id", flat=True)[offset : offset + limit])


def models_of_summaries(ids: Sequence[str]) -> dict[str, str]:
    """Who wrote each of these summaries; empty for level 3."""
    return dict(SummaryNode.objects.filter(id__in=ids).values_list("id", "model"))


def load_heads(ids: Sequence[str], *, session_id: str) -> dict[str, SummaryHead]:
    """Summaries of a session by id, with the beginnings of their texts."""
    rows = SummaryNode.objects.filter(session_id=session_id, id__in=ids).annotate(start=Left("text", HEAD_CHARACTERS))
    found = rows.values(*_HEAD, "start")
    return {row["id"]: SummaryHead(text=decode_text(row.pop("start")), **row) for row in found}


def written_by(run_id: str) -> Written:
    """The summaries that a compaction has written so far, and the tokens that they take less than what they stand for."""
    rows = SummaryNode.objects.filter(run_id=run_id)
    sums = rows.aggregate(summaries=Count("id"), saved=Sum(F("source_tokens") - F("token_count"), default=0))
    return Written(**sums)


def later_revisions(ids: Sequence[str]) -> dict[str, str]:
    """For those of these summaries that were revised, the revision that took their place."""
    return dict(SummaryNode.objects.filter(revises_id__in=ids).values_list("revises_id", "id"))


def load_tries(summary_id: str, *, session_id: str, limit: int) -> list[TryRecord]:
    """The attempts at one summary, in order, the rejected ones among them."""
    rows = SummaryTry.objects.filter(session_id=session_id, summary_id=summary_id).order_by("number")
    return [TryRecord(**values) for values in rows.values(*_TRY_COLUMNS)[:limit]]


def tries_of_calls(call_ids: Sequence[str], *, session_id: str) -> dict[str, TryRecord]:
    """The attempts for which these calls of a session were made, by call; one that has not ended has none."""
    rows = SummaryTry.objects.filter(session_id=session_id, call_id__in=call_ids)
    return {values["call_id"]: TryRecord(**values) for values in rows.values(*_TRY_COLUMNS)}


def load_reply(try_id: str, *, session_id: str) -> Reply:
    """What came of an attempt at a summary, word for word.

    :raises SummaryNotFoundError: the session has no such attempt.
    """
    rows = SummaryTry.objects.filter(session_id=session_id, id=encode_text(try_id))
    row = rows.values_list("text", "reasoning", "tool_calls").first()
    if row is None:
        raise SummaryNotFoundError(summary_id=try_id)
    text, reasoning, tool_calls = row
    return Reply(text=decode_text(text), reasoning=decode_text(reasoning), tool_calls=decode_json(tool_calls))
