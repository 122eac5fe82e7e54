"""The manifests of past calls with every row, in whichever form the calls keep them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from compaction_app.queries import spans_of_summaries
from mnesis_core.context.entries import Row, read_manifest
from mnesis_core.context.manifests import ItemOutline, is_folded, unfold_manifest
from mnesis_core.records import CallRecord
from sessions_app.record import context_queries

# Rows of manifests in one answer. What a call keeps is short, so a page of calls could unfold to more than memory holds.
MOST_ROWS = 100_000


def load_manifest(call: CallRecord) -> list[Row]:
    """Return the rows of a call's manifest, checked; in two queries where it is folded.

    :raises ValueError: it is no manifest, or the record has not the context that it describes.
    """
    return unfold_manifest(read_manifest(call.manifest), _load_outlines([call]), at=call.context_seq)


def with_manifests(calls: Sequence[CallRecord]) -> list[CallRecord]:
    """Return the first of some calls of one session, each with every row of its manifest; in two queries.

    They are as many as have ``MOST_ROWS`` together, but at least one. A manifest that cannot be unfolded stays as it is.
    """
    outlines = _load_outlines(calls)
    whole: list[CallRecord] = []
    rows = 0
    for call in calls:
        manifest = _unfolded(call, outlines) if is_folded(call.manifest) else call.manifest
        rows += len(manifest)
        if whole and rows > MOST_ROWS:
            break
        whole.append(replace(call, manifest=manifest))
    return whole


def _unfolded(call: CallRecord, outlines: Sequence[ItemOutline]) -> list[Any]:
    try:
        return unfold_manifest(read_manifest(call.manifest), outlines, at=call.context_seq)
    except ValueError:
        return call.manifest


def _load_outlines(calls: Sequence[CallRecord]) -> list[ItemOutline]:
    """Return what was in the contexts of those of these calls whose manifests are folded."""
    folded = [call for call in calls if is_folded(call.manifest)]
    if not folded:
        return []
    seqs = [call.context_seq for call in folded]
    items = context_queries.load_outlines(folded[0].session_id, first=min(seqs), last=max(seqs))
    spans = spans_of_summaries([item.id for item in items if item.role is None], session_id=folded[0].session_id)
    # A summary that is not there is missing in the context too, which unfolding notices.
    return [
        item if item.role is not None else item._replace(first_seq=spans[item.id][0], last_seq=spans[item.id][1])
        for item in items
        if item.role is not None or item.id in spans
    ]
