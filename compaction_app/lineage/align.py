"""Align the sentences of a summary with what it was made of: the worker's task, queued with the summary and never in its way.

No model is asked, so it is done whatever reflection does, and whoever is late does nothing again.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

from django_q.tasks import async_task

from compaction_app.lineage.queries import is_aligned
from compaction_app.lineage.store import record_claims
from compaction_app.queries import load_run, load_summaries, load_summary
from mnesis_core.actor import read_actor
from mnesis_core.compaction import lineage
from mnesis_core.compaction.lineage import Told, told_in_messages, told_in_summaries
from mnesis_core.errors import SessionNotFoundError
from mnesis_core.records import SummaryRecord
from sessions_app.record.actor import acting_as
from sessions_app.record.change import change
from sessions_app.record.message_queries import load_messages_by_ids
from sessions_app.record.session_queries import load_session

TASK = "compaction_app.tasks.align"
LONGEST_SECONDS = 300
SPEAKER = "speaker_"  # the label of a session that names who speaks in a role


def request_alignment(summary_id: str) -> None:
    """Queue the alignment of a summary, in the change that writes it."""
    async_task(TASK, summary_id=summary_id, timeout=LONGEST_SECONDS)


def align(*, summary_id: str, **_later: object) -> None:
    """Align one summary: the worker's task. It may run twice or late, since the claims that are there decide."""
    summary = load_summary(summary_id)
    actor = load_run(summary.run_id).actor if summary.run_id else ""
    with suppress(SessionNotFoundError), acting_as(read_actor(actor).later("alignment")):
        align_summary(summary)


def align_summary(summary: SummaryRecord) -> bool:
    """Find what a summary's sentences rest on and write it; return whether this was done now.

    :raises SessionNotFoundError: its session was deleted.
    """
    if is_aligned(summary.id, session_id=summary.session_id):
        return False
    claims = lineage.align(summary.text, _told(summary))
    # Two workers may come this far at once. A lease would spare one of them some processor and no money, so there is none:
    # a change has the session alone, and in it ``record_claims`` leaves what is there.
    with change(summary.session_id) as record:
        return record_claims(record, summary.id, claims)


def _told(summary: SummaryRecord) -> Iterable[Told]:
    ids = [id for _, id in summary.source_ids]
    if summary.kind == "condensed":
        sources = load_summaries(ids, session_id=summary.session_id)
        return told_in_summaries({source.id: source.text for source in sources})
    labels = load_session(summary.session_id).labels
    speakers = {name.removeprefix(SPEAKER): said for name, said in labels.items() if name.startswith(SPEAKER)}
    return told_in_messages(load_messages_by_ids(ids, session_id=summary.session_id), speakers)
