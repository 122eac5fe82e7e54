"""Writes of claims: the sentences of a summary and the places that they rest on."""

from __future__ import annotations

from collections.abc import Sequence

from compaction_app.models import Claim
from mnesis_core.compaction import lineage
from mnesis_core.compaction.lineage import Support
from mnesis_core.events import EventType
from mnesis_core.records import new_id
from sessions_app.database.tables import Table
from sessions_app.record.change import Change

_CLAIMS = Table(Claim)


def record_claims(
    record: Change, summary_id: str, claims: Sequence[lineage.Claim], *, method: str = lineage.METHOD
) -> bool:
    """Write the claims of a summary, and return whether this was done now.

    Nothing is written of a summary without sentences, of one that was aligned by this method before, and in a session
    that is archived.
    """
    if not claims or record.archived or Claim.objects.filter(summary_id=summary_id, method=method).exists():
        return False
    rows = [
        _CLAIMS.row(
            id=new_id("claim"),
            session_id=record.session_id,
            summary_id=summary_id,
            method=method,
            number=claim.number,
            text_start=claim.start,
            text_end=claim.end,
            support=claim.support.value,
            share=claim.share,
            missing=list(claim.missing),
            places=[[place.source_id, place.ref] for place in claim.places],
            created_at=record.now,
        )
        for claim in claims
    ]
    record.insert(_CLAIMS, *rows)
    unsupported = sum(claim.support is Support.NONE for claim in claims)
    record.publish(EventType.CLAIMS_ALIGNED, summary_id=summary_id, claims=len(rows), unsupported=unsupported)
    return True
