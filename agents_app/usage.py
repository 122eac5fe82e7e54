"""What sessions have used, for whatever it was."""

from __future__ import annotations

from collections.abc import Sequence

from agents_app.queries import usage_of_maps
from compaction_app.queries import usage_of_compaction
from mnesis_core.record import UsageRecord, total_usage
from sessions_app.queries import load_launched, usage_of_files, usage_of_session


def used_by(session_ids: Sequence[str]) -> UsageRecord:
    """All that some sessions have used together, without those that they launched."""
    if not session_ids:
        return total_usage()
    turns, compaction = usage_of_session(*session_ids), usage_of_compaction(*session_ids)
    return total_usage(turns, compaction, usage_of_files(*session_ids), usage_of_maps(*session_ids))


def used_by_tree(session_id: str) -> UsageRecord:
    """Likewise of a session with all that it launched, and those."""
    return used_by([session_id, *load_launched(session_id)])
