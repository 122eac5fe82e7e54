"""Measure what a summary has lost, and carry the most important of it over as facts. Rules decide, so no model is needed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from compaction_app.context.fidelity import items_of_summary, load_shown, messages_under
from compaction_app.facts import store
from mnesis_core.compaction.fidelity import Shown, SourceItem, measure
from mnesis_core.compaction.reflection import carried_facts
from mnesis_core.events import EventType
from mnesis_core.facts.values import NewFact
from mnesis_core.records import SummaryRecord
from sessions_app.record.change import Change
from sessions_app.record.timeline_queries import NOW


@dataclass(frozen=True, slots=True, kw_only=True)
class Lost:
    """The items that a summary has lost, and the facts that carry some of them over."""

    summary_id: str
    counted: int
    missing: tuple[SourceItem, ...]
    facts: tuple[NewFact, ...] = ()


def find_lost(summary: SummaryRecord, *, facts: Iterable[str] = ()) -> Lost:
    """Return what a summary has lost, read with no lock held.

    :param facts: statements that are about to be written
    """
    items = items_of_summary(summary)
    missing = measure(items, load_shown(summary, at=NOW, facts=facts)).missing
    carried = carried_facts(missing, messages_under(summary)) if missing else ()
    return Lost(summary_id=summary.id, counted=len(items), missing=missing, facts=tuple(carried))


def carry(record: Change, lost: Lost | None, *, reflection_id: str) -> None:
    """Write what was lost as facts, except what was a fact before or is forbidden, and publish how much is still missing.

    In an archived session no fact is written.
    """
    if lost is None:
        return
    facts = () if record.archived else store.without_forbidden(record, store.without_stated(record, lost.facts))
    for fact in facts:
        store.record_fact(record, replace(fact, reflection_id=reflection_id))
    left = measure(lost.missing, Shown(fact.statement for fact in facts)).missing
    record.publish(EventType.FIDELITY_MEASURED, summary_id=lost.summary_id, counted=lost.counted, missing=len(left))
