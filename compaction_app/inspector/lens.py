"""What the lens beside a conversation asks for: the calls that its bar moves over, and what each of them saw of the messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.utils.translation import gettext_lazy as _
from django.views.decorators.gzip import gzip_page

from compaction_app.context.manifests import load_manifest
from compaction_app.inspector.calls import COMPARABLE, find_call
from mnesis_core.compaction.dag import runs_of
from mnesis_core.context.entries import Row
from mnesis_core.records import GATEWAY
from sessions_app.pages.permissions import inspected
from sessions_app.pages.views import number_in, signed_in
from sessions_app.record import turn_queries
from sessions_app.record.branch_queries import path_in

NOT_KNOWN = {
    "turn": _("The record does not show what this call saw."),
    GATEWAY: _("A program wrote this prompt, so it is unknown which of these messages it had."),
}
ELSEWHERE = _("This call was made outside a turn, with its own prompt.")


@signed_in
@gzip_page
def call_places(request: HttpRequest, session_id: str) -> HttpResponse:
    """Return the calls on a ``branch``, by default the chosen one, oldest first: id, number, time and answer of each.

    The number is that among all calls of the session, the time in seconds, the answer the number of its message or 0.
    """
    about = inspected(request, session_id)
    path = path_in(about, number_in(request, "branch"))
    places = [
        (place.id, place.number, int(place.created_at.timestamp()), place.seq)
        for place in turn_queries.list_call_places(about.id)
        if place.purpose in COMPARABLE and (path is None or path.has(place.branch, place.seq))
    ]
    return JsonResponse({"calls": places})


@signed_in
def call_messages(request: HttpRequest, session_id: str, call_id: str) -> HttpResponse:
    """Return how a call was shown the messages of the conversation, or in ``words`` why that is not known."""
    _, call = find_call(request, session_id, call_id)
    try:
        return JsonResponse(shown_by(load_manifest(call)) if call.purpose == "turn" else _words(call.purpose))
    except ValueError:
        return JsonResponse(_words("turn"))


def _words(purpose: str) -> dict[str, str]:
    return {"words": str(NOT_KNOWN.get(purpose, ELSEWHERE))}


def shown_by(manifest: Sequence[Row]) -> dict[str, Any]:
    """Return the numbers of messages as runs, by how a prompt shows them; those quoted in passages by their ids.

    ``shown`` has all of which more than a quotation is there, also the ``shortened`` ones and those of which an output is
    a tombstone (``tombstoned``). In place of ``summarised`` ones a summary is shown; ``left_out`` ones found no room.
    """
    messages = [row for row in manifest if row["kind"] in ("message", "pinned")]
    return {
        "shown": runs_of({row["seq"] for row in messages}),
        "shortened": runs_of({row["seq"] for row in messages if row["shortened"] or row["omitted"]}),
        "tombstoned": runs_of({row["seq"] for row in messages if row["tombstoned"]}),
        "summarised": _spans(manifest, "summary"),
        "left_out": _spans(manifest, "gap"),
        "quoted": sorted({line["id"] for row in manifest if row["kind"] == "retrieved" for line in row["lines"]}),
    }


def _spans(manifest: Sequence[Row], kind: str) -> list[tuple[int, int]]:
    return [(row["first_seq"], row["last_seq"]) for row in manifest if row["kind"] == kind]
