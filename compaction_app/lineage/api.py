"""The sentences of a summary and what they rest on, at the REST endpoint."""

from __future__ import annotations

from typing import Annotated, Any

from ninja import Query, Router
from pydantic import Field

from compaction_app.lineage.claims import load_claims, tally
from compaction_app.queries import load_summary
from sessions_app.callers import Asker, owner_id
from sessions_app.operations import by_name
from sessions_app.schemas import ErrorOut, Out, Text

router = Router(tags=["context"])
ERRORS = {400: ErrorOut, 401: ErrorOut, 404: ErrorOut, 422: ErrorOut, 429: ErrorOut}
Limit = Annotated[int, Query(ge=1, le=1_000)]
Number = Annotated[int, Field(ge=0, le=2**53)]


class RestsOnOut(Out):
    """A message that a sentence rests on, through all summaries between them."""

    message_id: str
    part_id: str
    seq: int


class ClaimOut(Out):
    """A sentence of a summary. ``start`` and ``end`` count characters of its text as it is stored, from 0."""

    id: str
    number: int
    start: int
    end: int
    text: Text
    support: str
    share: int  # percent of its words that what it rests on has
    missing: list[Text]  # its numbers, dates, names and identifiers that were not said there
    messages: list[RestsOnOut]
    method: str


class ClaimList(Out):
    """The sentences of a summary in order; none while it is not aligned yet."""

    summary_id: str
    total: int
    unsupported: int
    items: list[ClaimOut]
    next_cursor: int | None


@by_name("summary/claims")
@router.get("/summaries/{summary_id}/claims", response={200: ClaimList, **ERRORS}, summary="Trace its sentences")
def list_claims(request: Asker, summary_id: str, limit: Limit = 500, cursor: Number = 0) -> dict[str, Any]:
    """Each sentence of a summary with the messages that it rests on.

    ``support`` is ``quoted`` (said word for word), ``supported``, ``partly`` or ``none``: nothing that was said supports it.
    """
    claims = load_claims(load_summary(summary_id, owner_id=owner_id(request)))
    page = [claim for claim in claims if claim.number > cursor][:limit]
    more = bool(page) and page[-1].number < claims[-1].number
    return {
        "summary_id": summary_id,
        "total": len(claims),
        "unsupported": tally(claims).unsupported,
        "items": page,
        "next_cursor": page[-1].number if more else None,
    }
