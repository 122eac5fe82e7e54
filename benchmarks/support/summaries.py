"""Summaries without a model."""

from __future__ import annotations

from compaction_app import store
from mnesis_core.context.entries import SummaryKind
from mnesis_core.records import NewSummary, new_id
from sessions_app.record.change import Change, change

TEXT = "They read the file and wrote down what is in it. " * 40


def claim(record: Change) -> tuple[str, int]:
    """Claim a compaction of the session for this process. Return its id and fence."""
    run_id = store.request_run(record, trigger="manual")
    assert run_id is not None
    fence = store.claim_run(record, run_id, lease_owner="benchmark", lease_seconds=600, tokens_before=1)
    assert fence is not None
    return run_id, fence


def finish(record: Change, run_id: str, fence: int) -> None:
    """Finish the compaction."""
    store.finish_run(record, run_id, outcome="target_met", tokens_after=1, fence=fence)


def new_summary(kind: SummaryKind, sources: int) -> NewSummary:
    """Return a summary that covers so many messages or summaries."""
    return NewSummary(
        id=new_id("sum"),
        kind=kind,
        depth=0 if kind == "leaf" else 1,
        level=1,
        text=TEXT,
        token_count=480,
        source_tokens=1_500 * sources,
        first_seq=1,
        last_seq=sources,
        message_count=sources,
        model="large",
        prompt_version="1",
        tokens_input=0,
        tokens_output=0,
        cost_micros=0,
        duration_ms=0,
    )


def summarise(session_id: str, sources: list[str], *, kind: SummaryKind) -> str:
    """Run one whole compaction that replaces these with a summary. Return its id."""
    source_type = "message" if kind == "leaf" else "summary"
    with change(session_id) as record:
        run_id, fence = claim(record)
        summary = new_summary(kind, len(sources))
        made = store.record_summary(record, run_id, summary, fence=fence, source_type=source_type, source_ids=sources)
        finish(record, run_id, fence)
    return made
