"""The fidelity of summaries: what of their sources stands in none of the texts that a model is shown, then and now.

The ledger has the two numbers of each summary. What is missing is computed when someone looks, from the same record.
"""

# ruff: noqa: S608 - the names in these statements are ours.

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from compaction_app.queries import expand_messages, later_revisions, load_standing_facts, load_summary_entries
from mnesis_core.compaction.fidelity import Shown, SourceItem, is_alarm, items_of, measure, spoken_texts, summary_texts
from mnesis_core.events import EventType
from mnesis_core.messages import StoredMessage
from mnesis_core.records import SummaryRecord
from sessions_app.conf import session_config
from sessions_app.database.tables import fetch
from sessions_app.ownership import project_of
from sessions_app.record.branch_queries import load_path
from sessions_app.record.message_queries import load_messages_by_ids
from sessions_app.record.session_queries import load_session, visible_sessions
from sessions_app.record.timeline_queries import load_context_summaries

# The type stands in the statement, since the partial index is used for no parameter.
_MEASURED = f"SELECT seq, body FROM events WHERE session_id = %s AND type = '{EventType.FIDELITY_MEASURED}' ORDER BY seq DESC LIMIT %s"
_MEASURED_ANYWHERE = f"SELECT session_id, body FROM events WHERE type = '{EventType.FIDELITY_MEASURED}' ORDER BY session_id DESC, seq DESC LIMIT %s"
MOST_MEASURED = 10_000
"""The most summaries of a session that are read, the newest ones."""
MOST_FACTS = 500
MOST_MESSAGES = 2_000
"""Messages under a condensed summary in which a lost sentence is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    """The fidelity of a summary as the ledger has it."""

    summary_id: str
    seq: int  # of the event: what stood then was counted
    counted: int
    missing: int

    @property
    def kept(self) -> int:
        return self.counted - self.missing

    def is_alarm(self, *, bound: float) -> bool:
        return is_alarm(self.counted, self.missing, bound=bound)


@dataclass(frozen=True, slots=True, kw_only=True)
class Sum:
    """The fidelity of several summaries, added up."""

    counted: int
    missing: int
    worst: Measured
    is_alarm: bool  # of one of them

    @property
    def kept(self) -> int:
        return self.counted - self.missing


def add_up(rows: Sequence[Measured], *, bound: float) -> Sum | None:
    """Return the sum of what was measured, or ``None`` if nothing was."""
    if not rows:
        return None
    return Sum(
        counted=sum(row.counted for row in rows),
        missing=sum(row.missing for row in rows),
        worst=max(rows, key=lambda row: (row.is_alarm(bound=bound), row.missing)),
        is_alarm=any(row.is_alarm(bound=bound) for row in rows),
    )


def load_measured(session_id: str) -> dict[str, Measured]:
    """Return what was measured, by summary, the newest first; one query."""
    found: dict[str, Measured] = {}
    for seq, text in fetch(_MEASURED, [session_id, MOST_MEASURED]):
        body = json.loads(text)
        row = Measured(summary_id=body["summary_id"], seq=seq, counted=body["counted"], missing=body["missing"])
        found.setdefault(row.summary_id, row)
    return found


def load_alarms(*, most: int) -> tuple[int, dict[str, int]]:
    """Return how many summaries were measured in all sessions, and how many keep too little in each that has such.

    Summaries that were revised and sessions that were deleted do not count; three queries.

    :param most: how many are read, those of the newest sessions
    """
    bodies = [(id, json.loads(text)) for id, text in fetch(_MEASURED_ANYWHERE, [most])]
    newest: dict[str, tuple[str, int, int]] = {}
    for session_id, body in bodies:
        newest.setdefault(body["summary_id"], (session_id, body["counted"], body["missing"]))
    configs = visible_sessions().filter(id__in={id for id, *_ in newest.values()}).values_list("id", "config")
    bounds = {id: session_config(config).compaction.fidelity_bound for id, config in configs}
    found = {id: row for id, row in newest.items() if row[0] in bounds}
    revised = later_revisions(list(found))
    standing = [row for id, row in found.items() if id not in revised]
    alarms = Counter(id for id, counted, missing in standing if is_alarm(counted, missing, bound=bounds[id]))
    return len(standing), alarms


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryFidelity:
    """The items that were missing when a summary was measured; empty if it was not measured."""

    measured: Measured | None
    is_alarm: bool
    missing: tuple[SourceItem, ...]


def load_fidelity(summary: SummaryRecord) -> SummaryFidelity:
    """Return what the ledger says of a summary, and what it counted, computed again from the record."""
    measured = load_measured(summary.session_id).get(summary.id)
    if measured is None:
        return SummaryFidelity(measured=None, is_alarm=False, missing=())
    found = measure(items_of_summary(summary), load_shown(summary, at=measured.seq)) if measured.missing else None
    return SummaryFidelity(
        measured=measured,
        is_alarm=measured.is_alarm(bound=bound_of(summary.session_id)),
        missing=found.missing if found else (),
    )


def bound_of(session_id: str) -> float:
    """Return the share of items that summaries of a session may lose without an alarm."""
    return session_config(load_session(session_id).config).compaction.fidelity_bound


def items_of_summary(summary: SummaryRecord) -> list[SourceItem]:
    ids = [id for _, id in summary.source_ids]
    if summary.kind == "leaf":
        return items_of(spoken_texts(load_messages_by_ids(ids, session_id=summary.session_id)))
    places = {id: place for place, id in enumerate(ids)}
    entries = load_summary_entries(places, session_id=summary.session_id)
    return items_of(summary_texts(sorted(entries, key=lambda entry: entry.position)))


def load_shown(summary: SummaryRecord, *, at: int, facts: Iterable[str] = ()) -> Shown:
    """Return the summary's own text, those of the summaries in the context, and the facts that stood."""
    session_id, path = summary.session_id, load_path(summary.session_id, summary.branch)
    ids = [id for id in load_context_summaries(session_id, at=at, path=path) if id != summary.id]
    others = load_summary_entries(dict.fromkeys(ids, 0), session_id=session_id)
    projects = project_of(session_id)
    standing = load_standing_facts(session_id, at=at, path=path, limit=MOST_FACTS, projects=projects)
    return Shown([summary.text, *(entry.text for entry in others), *(fact.statement for fact in standing), *facts])


def messages_under(summary: SummaryRecord) -> list[StoredMessage]:
    """Return the messages that a summary stands for; of very many the oldest."""
    return expand_messages(summary, offset=0, limit=MOST_MESSAGES).messages
