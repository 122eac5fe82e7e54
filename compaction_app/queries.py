"""Reads of compactions with their attempts, of summaries with their lineage, and of previews."""

# ruff: noqa: S608 - the names in these statements are ours; what others wrote is passed as a value.

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import Any

from django.db import connection
from django.db.models import Case, Count, Exists, F, Max, OuterRef, Q, QuerySet, Subquery, Sum, Value, When
from django.db.models.functions import Coalesce, Trunc
from django.utils import timezone

from compaction_app.models import (
    LIVE,
    CompactionRun,
    Fact,
    FactSource,
    Reflection,
    RunState,
    SummaryEdge,
    SummaryNode,
    SummaryPreview,
    SummaryTry,
)
from mnesis_core.compaction.dag import (
    Cost,
    Cover,
    Graph,
    Node,
    PreviewRecord,
    Span,
    check_cover,
    difference,
    runs_of,
    slices_of,
)
from mnesis_core.context.additions import Refill, read_refill
from mnesis_core.context.branches import Path
from mnesis_core.context.entries import SummaryEntry
from mnesis_core.context.fitting import LastRun
from mnesis_core.context.replay import Projection
from mnesis_core.errors import CompactionNotFoundError, PreviewNotFoundError, SummaryNotFoundError
from mnesis_core.events import EventType
from mnesis_core.facts import FactRecord, HeldFor, state_of
from mnesis_core.files.references import find_file_ids
from mnesis_core.messages import StoredMessage
from mnesis_core.records import AttemptRecord, RunRecord, SummaryRecord, UsageRecord, record_of
from mnesis_core.search.observation import Step
from mnesis_core.text import decode_text
from sessions_app.database.fields import Head
from sessions_app.database.tables import fetch
from sessions_app.database.threads import snapshot
from sessions_app.ownership import is_in_project, owned_by
from sessions_app.record import context_queries
from sessions_app.record.branch_queries import load_path, path_in
from sessions_app.record.context_queries import load_context_items, load_events_at, newest_summary, standing_items
from sessions_app.record.lease import expired
from sessions_app.record.message_queries import (
    load_messages_by_ids,
    seq_of_message,
    seqs_of_messages,
    seqs_of_session,
    seqs_on_path,
)
from sessions_app.record.session_queries import imported_since, load_session
from sessions_app.search.search import Scope

# In a tree several branches may have a leaf for the same message; of those that serve one, the longest stands there.
_COVERING = (
    "SELECT m.seq, n.id, m.branch, l.branch, l.seq FROM messages m"
    " JOIN summary_edges e ON e.session_id = m.session_id AND e.source_id = m.id"
    " JOIN summary_nodes n ON n.id = e.node_id JOIN messages l ON l.session_id = m.session_id AND l.seq = n.last_seq"
    " WHERE m.session_id = %s AND m.seq IN ({places}) AND n.superseded_seq IS NULL"
    " ORDER BY n.last_seq - n.first_seq, n.created_at, n.id"
)
_USAGE = ("tokens_input", "tokens_output", "cost_micros")
_USED = (
    f"SELECT {', '.join(f'COALESCE(SUM({name}), 0)' for name in _USAGE)} FROM ("
    f"SELECT {', '.join(_USAGE)} FROM summary_tries WHERE session_id IN ({{places}})"
    f" UNION ALL SELECT {', '.join(_USAGE)} FROM reflections WHERE session_id IN ({{places}})) AS used"
)
_END_OF_LAST_RUN = (
    "SELECT body, seq FROM events WHERE session_id = %s AND seq = (SELECT end_seq FROM compaction_runs WHERE session_id = %s"
    " AND branch = %s AND state = 'completed' AND end_seq <= %s AND turn_ids = '[]' ORDER BY created_at DESC LIMIT 1)"
)
MOST_RUNS = 500
MOST_PLACES = 20_000  # SQLite allows 32,766 variables in one statement
HEAD_CHARACTERS = 400
FACTS_READ = 5  # times as many as are wanted, since some may be of other branches
_TRY_COLUMNS = [field.name for field in fields(AttemptRecord)]
_ENTRY = ("id", "kind", "depth", "level", "text", "token_count", "first_seq", "last_seq", "message_count")
_NODE_COLUMNS = [field.name for field in fields(Node) if field.name != "sources"]
_HEAD = ("id", "kind", "first_seq", "last_seq", "token_count", "level", "model")


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryHead:
    id: str
    kind: str
    first_seq: int
    last_seq: int
    token_count: int
    level: int
    model: str
    text: str


def list_runs(session_id: str, *, limit: int = 200) -> list[RunRecord]:
    return run_records(CompactionRun.objects.filter(session_id=session_id).order_by("-created_at")[:limit])


def run_records(rows: Iterable[CompactionRun]) -> list[RunRecord]:
    """Return compactions with their attempts; two queries."""
    found = list(rows)
    tries: dict[str, list[AttemptRecord]] = defaultdict(list)
    attempts = SummaryTry.objects.filter(run_id__in=[row.id for row in found]).order_by("created_at", "id")
    for values in attempts.values(*_TRY_COLUMNS):
        tries[values["run_id"]].append(AttemptRecord(**values))
    return [record_of(RunRecord, row, tries=tuple(tries[row.id]), summary_ids=row.summary_ids or []) for row in found]


def list_runs_between(session_id: str, *, first: int, last: int | None, limit: int = 200) -> list[RunRecord]:
    """Return the compactions that changed something or failed while one of these messages was the newest, and the live one.

    Newest first; ``last`` is ``None`` for up to the newest message.
    """
    # A run that did nothing because there was nothing to do is no event in a conversation.
    happened = Q(state__in=["failed", "superseded"]) | Q(pruned_parts__gt=0) | Q(source_count__gt=0)
    here = Q(after_message_seq__gte=first) if last is None else Q(after_message_seq__range=(first, last))
    rows = CompactionRun.objects.filter(Q(state__in=LIVE) | happened & here, session_id=session_id)
    return run_records(rows.order_by("-created_at")[:limit])


def load_run(run_id: str, *, session_id: str | None = None) -> RunRecord:
    """:raises CompactionNotFoundError: there is no such compaction there."""
    row = CompactionRun.objects.filter(_scope(session_id), id=run_id).first()
    if row is None:
        raise CompactionNotFoundError(run_id=run_id)
    return run_records([row])[0]


def load_drafts(try_ids: Sequence[str], *, session_id: str) -> list[tuple[int, str]]:
    """Return (level, text) of attempts in the order of ``try_ids``, without those that are not there."""
    rows = SummaryTry.objects.filter(session_id=session_id, id__in=list(try_ids))
    found = {id: (level, text) for id, level, text in rows.values_list("id", "level", "text")}
    return [found[id] for id in try_ids if id in found]


def usage_of_compaction(*session_ids: str) -> UsageRecord:
    """Return what the summaries of these sessions have used, rejected attempts included, and the search for facts in them; one query."""
    places = ", ".join(["%s"] * len(session_ids))
    [sums] = fetch(_USED.format(places=places or "NULL"), [*session_ids, *session_ids])
    tokens_input, tokens_output, micros = map(int, sums)
    return UsageRecord(tokens_input=tokens_input, tokens_output=tokens_output, cost_micros=micros)


def compaction_micros(session_id: str) -> int:
    return usage_of_compaction(session_id).cost_micros or 0


def compaction_micros_of_owner(owner_id: int, *, since: datetime) -> int:
    owned = Q(session__owner_id=owner_id, created_at__gte=since)
    return sum(
        model.objects.filter(owned).aggregate(total=Sum("cost_micros", default=0))["total"]
        for model in (SummaryTry, Reflection)
    )


def live_run(session_id: str) -> str | None:
    rows = CompactionRun.objects.filter(session_id=session_id, state__in=LIVE)
    return rows.values_list("id", flat=True).first()


def is_free_to_claim(run_id: str, now: datetime, *, session_id: str) -> bool:
    return _free(now).filter(id=run_id, session_id=session_id).exists()


def longest_wait(now: datetime) -> float | None:
    """Return how many seconds the oldest compaction without a worker has waited; ``None`` without one."""
    waiting = _free(now).filter(session__deleted_at__isnull=True)
    asked_at = waiting.order_by("created_at").values_list("created_at", flat=True).first()
    return None if asked_at is None else (now - asked_at).total_seconds()


def _free(now: datetime) -> QuerySet[CompactionRun]:
    return CompactionRun.objects.filter(Q(state="queued") | Q(expired(now), state="running"))


def has_changed(run_id: str) -> bool:
    is_pruned = CompactionRun.objects.filter(id=run_id, pruned_parts__gt=0).exists()
    return is_pruned or SummaryNode.objects.filter(run_id=run_id).exists()


def last_run(session_id: str, *, branch: int = 0) -> LastRun | None:
    """Return the end of a branch's last compaction, but for those of named turns: they leave undone what may be due."""
    ended = CompactionRun.objects.filter(session_id=session_id, branch=branch, ended_at__isnull=False, turn_ids=[])
    rows = ended.order_by("-created_at")
    row = rows.values_list("state", "tokens_after", "tokens_before").first()
    if row is None:
        return None
    state, after, before = row
    tokens = before if after is None else after
    return LastRun(tokens=tokens or 0, failed=state == "failed")


def last_refill(session_id: str, *, branch: int, at: int) -> tuple[Refill | None, int]:
    """Return the refill that a branch's last compaction decided, and the event of its end; in one query."""
    rows = fetch(_END_OF_LAST_RUN, [session_id, session_id, branch, at])
    return (read_refill(json.loads(rows[0][0]).get("refill")), rows[0][1]) if rows else (None, 0)


def newest_compacted_by_hand(session_id: str) -> int:
    """Return the number of the newest message when a compaction ended that a person had asked for; 0 without one.

    Of a compaction of named turns it is the last message of these.
    """
    rows = CompactionRun.objects.filter(session_id=session_id, trigger="manual", ended_at__isnull=False)
    newest = Case(When(turn_ids=[], then="after_message_seq"), default="summaries__last_seq")
    return rows.aggregate(newest=Max(newest, default=0))["newest"] or 0


def stale_runs(now: datetime) -> list[tuple[str, str]]:
    """Return (session id, id) of compactions whose wake-up was lost or whose worker died."""
    rows = CompactionRun.objects.filter(expired(now), state__in=LIVE)
    return list(rows.filter(session__deleted_at__isnull=True).values_list("session_id", "id")[:100])


def load_summary(summary_id: str, *, session_id: str | None = None, owner_id: int | None = None) -> SummaryRecord:
    """:raises SummaryNotFoundError: there is no such summary there."""
    row = SummaryNode.objects.filter(_scope(session_id, owner_id), id=summary_id).first()
    if row is None:
        raise SummaryNotFoundError(summary_id=summary_id)
    return _summary(row, _sources(node_id=row.id)[row.id])


def load_summaries(ids: Sequence[str], *, session_id: str) -> list[SummaryRecord]:
    """Return summaries of a session in the order of ``ids``; two queries.

    :raises SummaryNotFoundError: one of them is not in the session.
    """
    found = SummaryNode.objects.filter(session_id=session_id).in_bulk(list(ids))
    missing = next((id for id in ids if id not in found), None)
    if missing is not None:
        raise SummaryNotFoundError(summary_id=missing)
    sources = _sources(node_id__in=list(found))
    return [_summary(found[id], sources[id]) for id in ids]


def load_previews(
    preview_id: str, *, session_id: str | None = None, owner_id: int | None = None
) -> list[PreviewRecord]:
    """Return the previews that are applied with this one, each after those that it was made from; it is the last.

    :raises PreviewNotFoundError: there is no such preview there, or it is a part of another one.
    """
    rows = SummaryPreview.objects.filter(_scope(session_id, owner_id), batch_id=preview_id).select_related("summary")
    found = [
        record_of(PreviewRecord, row, depth=row.summary.depth, source_ids=tuple(row.source_ids))
        for row in rows.order_by("summary__depth", "created_at", "id")
    ]
    if not any(preview.id == preview_id for preview in found):
        raise PreviewNotFoundError(preview_id=preview_id)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A preview beside the summary whose place it would take."""

    preview: PreviewRecord
    before: SummaryRecord
    lines: list[str]
    """The lines of a unified difference of the texts; none where they are the same."""
    is_applied: bool


def compare_previews(
    preview_id: str, *, session_id: str | None = None, owner_id: int | None = None
) -> list[Comparison]:
    """Return a preview, last, and those that are applied with it, beside the summaries whose places they would take.

    :raises PreviewNotFoundError: there is no such preview there, or it is a part of another one.
    """
    previews = load_previews(preview_id, session_id=session_id, owner_id=owner_id)
    old = load_summaries([preview.summary_id for preview in previews], session_id=previews[-1].session_id)
    graph = load_graph(previews[-1].session_id)
    return [
        Comparison(
            preview=preview,
            before=before,
            lines=difference(before.text, preview.text),
            is_applied=preview.id in graph.nodes,
        )
        for preview, before in zip(previews, old, strict=True)
    ]


def applied_with(summary_id: str, *, session_id: str) -> set[str]:
    """Return the ids of all that were previewed with this summary, itself included; none if it was no preview."""
    rows = SummaryPreview.objects.filter(batch_id=summary_id, session_id=session_id)
    return set(rows.values_list("id", flat=True))


def load_graph(session_id: str) -> Graph:
    """Return the summaries of a session without their texts; two queries."""
    rows = list(SummaryNode.objects.filter(session_id=session_id).order_by("created_at", "id").values(*_NODE_COLUMNS))
    sources: dict[str, list[str]] = defaultdict(list)
    # Not joined on PostgreSQL: before it has counted thousands of new rows, it looks through all edges for each node.
    among, value = (
        ("= ANY(%s)", [row["id"] for row in rows if row["kind"] == "condensed"])
        if connection.vendor == "postgresql"
        else ("IN (SELECT id FROM summary_nodes WHERE session_id = %s AND kind = 'condensed')", session_id)
    )
    sql = f"SELECT node_id, source_id FROM summary_edges WHERE node_id {among} ORDER BY node_id, position"
    for node_id, source_id in fetch(sql, [value]):
        sources[str(node_id)].append(str(source_id))
    return Graph(Node(**row, sources=tuple(sources[row["id"]])) for row in rows)


def summarised_sessions() -> list[str]:
    rows = SummaryNode.objects.filter(session__deleted_at__isnull=True)
    return list(rows.order_by("session_id").values_list("session_id", flat=True).distinct())


def messages_of_slices(session_id: str, slices: Sequence[tuple[str, int, int]]) -> list[str]:
    """Return the ids of the messages of neighbouring leaves, in order; one query.

    A slice is a leaf with its first position and the one after its last; between the first and the last slice leaves
    are whole.
    """
    places = {leaf_id: place for place, (leaf_id, _, _) in enumerate(slices)}
    wanted = Q(node_id__in=[leaf_id for leaf_id, _, _ in slices[1:-1]])
    for leaf_id, first, end in {*slices[:1], *slices[-1:]}:
        wanted |= Q(node_id=leaf_id, position__gte=first, position__lt=end)
    edges = SummaryEdge.objects.filter(wanted, session_id=session_id)
    found = edges.values_list("node_id", "position", "source_id")
    return [id for _, _, id in sorted((places[node_id], position, id) for node_id, position, id in found)]


def last_summary(session_id: str) -> SummaryRecord | None:
    summary_id = newest_summary(session_id)
    return None if summary_id is None else load_summary(summary_id, session_id=session_id)


def list_summaries(session_id: str) -> list[SummaryRecord]:
    """Return the summaries of a session in the order they were made; two queries."""
    sources = _sources(session_id=session_id)
    rows = SummaryNode.objects.filter(session_id=session_id).order_by("created_at", "id")
    return [_summary(row, sources[row.id]) for row in rows]


def load_summary_entries(positions: dict[str, int], *, session_id: str) -> list[SummaryEntry]:
    """Return summaries as they stand in a context, from their ids and positions; at most one query.

    :raises SummaryNotFoundError: one of them is not there.
    """
    if not positions:
        return []
    places = ", ".join(["%s"] * len(positions))
    rows = fetch(
        f"SELECT {', '.join(_ENTRY)} FROM summary_nodes WHERE session_id = %s AND id IN ({places})",
        [session_id, *positions],
    )
    if len(rows) < len(positions):
        raise SummaryNotFoundError(summary_id=next(iter(positions.keys() - {row[0] for row in rows})))
    return [_entry(positions[row[0]], row) for row in rows]


def held_facts() -> QuerySet[Fact]:
    """Return the facts that reach other sessions: they are held, live, true today, and of a session that is there.

    Facts held in an imported session reach no other session until a person here holds them: a file may come from anyone.
    """
    is_valid = Q(valid_to__isnull=True) | Q(valid_to__gt=timezone.now())
    rows = Fact.objects.filter(
        is_valid,
        ~imported_since("session_id", "held_seq"),
        held_seq__isnull=False,
        superseded_seq__isnull=True,
        withdrawn_seq__isnull=True,
        session__deleted_at__isnull=True,
    )
    return rows.exclude(statement="")  # which was erased


def reaches(owner_id: Any, organisation_id: Any, projects: Any) -> Q:
    """Return what limits held facts to those that reach sessions of a person, in an organisation and in these projects.

    :param projects: their ids or a query for them; ``None`` for no project, which makes the shorter query of most prompts
    """
    reach = Q(held_for=HeldFor.PERSON.value, session__owner_id=owner_id) | Q(held_for=HeldFor.ORGANISATION.value)
    if projects is not None:
        reach |= Q(is_in_project("session__"), held_for=HeldFor.PROJECT.value, session__project_id__in=projects)
    return Q(reach, session__organisation_id=organisation_id)


def still_held(projects: Any) -> Exists:
    """Return the condition that a fact is a copy of one that still reaches its session, which is in these projects."""
    reach = reaches(OuterRef("session__owner_id"), OuterRef("session__organisation_id"), projects)
    return Exists(held_facts().filter(reach, id=OuterRef("of_fact_id")))


def load_standing_facts(
    session_id: str, *, at: int, path: Path | None, limit: int, projects: Any, with_copies: bool = True
) -> list[FactRecord]:
    """Return the most salient facts that stood as of event ``at`` and are true today. One query, or two.

    Copies of other sessions' facts are among them if these reach the session today.

    :param path: leaves out what was said elsewhere
    :param projects: that the session is in, as ``reaches`` takes them
    """
    goes_on = (Q(superseded_seq__isnull=True) | Q(superseded_seq__gt=at)) & (
        Q(withdrawn_seq__isnull=True) | Q(withdrawn_seq__gt=at)
    )
    is_valid = Q(valid_to__isnull=True) | Q(valid_to__gt=timezone.now())
    counts = Q(of_fact_id="") | Q(still_held(projects)) if with_copies else Q(of_fact_id="")
    rows = Fact.objects.filter(goes_on, is_valid, counts, session_id=session_id, created_seq__lte=at)
    rows = rows.order_by("-salience", "-said_seq", "id")
    if path is None:
        return [_fact(row) for row in rows[:limit]]
    facts = [_fact(row) for row in rows[: limit * FACTS_READ]]
    sources = FactSource.objects.filter(session_id=session_id, fact_id__in=[fact.id for fact in facts])
    places = sources.values_list("fact_id", "part__message__branch", "part__message__seq")
    elsewhere = {fact_id for fact_id, branch, seq in places if not path.has(branch, seq)}
    return [fact for fact in facts if fact.id not in elsewhere][:limit]


def load_facts(ids: Sequence[str], *, session_id: str) -> list[FactRecord]:
    """Return facts of a session that are there, without their quotations; at most one query."""
    rows = Fact.objects.filter(session_id=session_id, id__in=ids) if ids else ()
    return [_fact(row) for row in rows]


def _fact(row: Fact) -> FactRecord:
    # What is read here stands, or is read as it was then.
    return record_of(FactRecord, row, quotes=(), still_held=True)


def spans_of_summaries(ids: Sequence[str], *, session_id: str) -> dict[str, tuple[int, int]]:
    """Return the seq of the first and of the last message that each of these summaries stands for; at most one query."""
    if not ids:
        return {}
    rows = SummaryNode.objects.filter(session_id=session_id, id__in=ids).values_list("id", "first_seq", "last_seq")
    return {id: (first, last) for id, first, last in rows}


def messages_of_summaries(graph: Graph, nodes: Sequence[Node], *, session_id: str) -> dict[str, tuple[Span, ...]]:
    """Return by id the runs of messages that summaries stand for; two queries where some of them have gaps."""
    gapped = [node for node in nodes if node.message_count <= node.last_seq - node.first_seq]
    leaves = {node.id: [leaf.id for leaf in graph.leaves(node.id)] for node in gapped}
    wanted = {leaf_id for ids in leaves.values() for leaf_id in ids}
    edges = _sources(session_id=session_id, node_id__in=list(wanted)[:MOST_PLACES]) if wanted else {}
    seqs = seqs_of_messages({id for ids in edges.values() for _, id in ids}, session_id=session_id) if wanted else {}
    runs = {
        id: runs_of({seqs[source] for leaf in ids for _, source in edges.get(leaf, ()) if source in seqs})
        for id, ids in leaves.items()
    }
    return {node.id: runs.get(node.id, ((node.first_seq, node.last_seq),)) for node in nodes}


def within_summary(scope: Scope, summary: SummaryRecord) -> Scope:
    """Return a scope of the messages that a summary stands for; one query, and another one in a tree."""
    first, last = summary.first_seq, summary.last_seq
    path = load_path(summary.session_id, summary.branch)
    here = replace(scope, session_id=summary.session_id, first_seq=first, last_seq=last)
    if path is None:
        return here
    return replace(here, stretches=tuple(path.within(first, last)), messages=summary.message_count)


def ends_of_summaries(session_id: str) -> dict[str, int]:
    """Return the number of the last message that each summary of a session stands for."""
    return dict(SummaryNode.objects.filter(session_id=session_id).values_list("id", "last_seq"))


def load_preview_entries(positions: dict[str, int], *, session_id: str) -> list[SummaryEntry]:
    """Return previews as the summaries that others are made from, without ids that are no previews; one query."""
    rows = SummaryPreview.objects.filter(id__in=list(positions), session_id=session_id)
    own = ("id", "level", "text", "token_count")
    return [
        _entry(positions[row[0]], row)
        for row in rows.values_list(*(name if name in own else f"summary__{name}" for name in _ENTRY))
    ]


def covering_summaries(session_id: str, message_seqs: Sequence[int], *, path: Path | None = None) -> dict[int, str]:
    """Return for each message the leaf that stands for it in its newest revision, where there is one; one query.

    :param path: for messages on it only leaves that stand on it count
    """
    if not message_seqs:
        return {}
    places = ", ".join(["%s"] * len(message_seqs))
    rows = fetch(_COVERING.format(places=places), [session_id, *message_seqs])
    if path is not None:
        rows = [row for row in rows if path.has(row[3], row[4]) or not path.has(row[2], row[0])]
    return {seq: id for seq, id, *_ in rows}


def leaves_of_messages(session_of: Mapping[str, str]) -> dict[str, str]:
    """Return for each message the leaf that stands for it in its newest revision; one query.

    :param session_of: the session of each message
    """
    if not session_of:
        return {}
    edges = SummaryEdge.objects.filter(
        session_id__in=set(session_of.values()),
        source_id__in=list(session_of),
        source_type="message",
        node__superseded_seq__isnull=True,
    )
    return dict(edges.values_list("source_id", "node_id"))


def _entry(position: int, row: tuple[Any, ...]) -> SummaryEntry:
    values = dict(zip(_ENTRY, row, strict=True))
    text = decode_text(values.pop("text"))
    return SummaryEntry(position=position, text=text, file_ids=find_file_ids(text), **values)


def _scope(session_id: str | None, owner_id: int | None = None) -> Q:
    """Return what limits rows to a session and to one owner's sessions that are not deleted, where these are given."""
    scope = Q() if session_id is None else Q(session_id=session_id)
    return scope if owner_id is None else scope & owned_by(owner_id, "session__") & Q(session__deleted_at__isnull=True)


def _sources(**where: Any) -> dict[str, list[tuple[str, str]]]:
    """Return what each of these summaries stands for, in order, as (type, id)."""
    edges = SummaryEdge.objects.filter(**where).order_by("node_id", "position")
    sources: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for summary_id, type, id in edges.values_list("node_id", "source_type", "source_id"):
        sources[summary_id].append((type, id))
    return sources


def _summary(row: SummaryNode, sources: list[tuple[str, str]]) -> SummaryRecord:
    return record_of(SummaryRecord, row, revises=row.revises_id, restores=row.restores_id, source_ids=sources)


def tally_runs(session_id: str) -> dict[str, int]:
    """Return how many compactions a session had: ``total``, ``failed`` and ``live``; one query."""
    return CompactionRun.objects.filter(session_id=session_id).aggregate(
        total=Count("id"),
        failed=Count("id", filter=Q(state=RunState.FAILED)),
        live=Count("id", filter=Q(state__in=LIVE)),
    )


def compacted_after(session_id: str, *, newest: int) -> list[int]:
    """Return the newest message when each compaction ended; ``newest`` for a live one."""
    rows = CompactionRun.objects.filter(session_id=session_id).order_by("-created_at")
    places = rows.values_list("after_message_seq", flat=True)[:MOST_PLACES]
    return sorted({newest if place is None else place for place in places})


def list_runs_after(session_id: str, first: int, last: int, *, with_live: bool = False) -> list[RunRecord]:
    """Return the compactions that ended after one of the messages ``first`` to ``last``, in order, then the live ones.

    Two queries.
    """
    ended = Q(after_message_seq__gte=first, after_message_seq__lte=last)
    wanted = ended | Q(state__in=LIVE) if with_live else ended
    rows = CompactionRun.objects.filter(wanted, session_id=session_id)
    return run_records(rows.order_by("created_at", "id")[:MOST_RUNS])


def runs_that_pruned(session_id: str, seqs: Collection[int]) -> dict[int, RunRecord]:
    """Return the compaction behind each of the events that took tool outputs out of the context, where it is known."""
    # A compaction says what it pruned with the event right after (store.prune).
    events = load_events_at(session_id, [seq + 1 for seq in seqs])
    named = {event.seq - 1: event.data.get("run_id") for event in events if event.type == EventType.PRUNE_COMPLETED}
    ids = [id for id in named.values() if id]
    rows = CompactionRun.objects.filter(session_id=session_id, id__in=ids) if ids else ()
    runs = {run.id: run for run in run_records(rows)}
    return {seq: runs[id] for seq, id in named.items() if id in runs}


def count_summaries(session_id: str) -> list[dict[str, Any]]:
    """Return the ``number`` of summaries of each ``kind``, ``level``, ``freshness`` and ``is_superseded``; one query."""
    superseded = Case(When(superseded_seq__isnull=False, then=Value(True)), default=Value(False))
    rows = SummaryNode.objects.filter(session_id=session_id).order_by().annotate(is_superseded=superseded)
    return list(rows.values("kind", "level", "freshness", "is_superseded").annotate(number=Count("id")))


def load_sources(summary_id: str, *, offset: int, limit: int) -> list[str]:
    edges = SummaryEdge.objects.filter(node_id=summary_id).order_by("position")
    return list(edges.values_list("source_id", flat=True)[offset : offset + limit])


def models_of_summaries(ids: Sequence[str]) -> dict[str, str]:
    """Return the model that wrote each of these summaries; empty for level 3."""
    return dict(SummaryNode.objects.filter(id__in=ids).values_list("id", "model"))


def load_heads(ids: Sequence[str], *, session_id: str) -> dict[str, SummaryHead]:
    rows = SummaryNode.objects.filter(session_id=session_id, id__in=ids).annotate(start=Head("text", HEAD_CHARACTERS))
    found = rows.values(*_HEAD, "start")
    return {row["id"]: SummaryHead(text=row.pop("start"), **row) for row in found}


def written_by(run_id: str) -> tuple[int, int]:
    """Return how many summaries a compaction has written, and how many tokens they save."""
    rows = SummaryNode.objects.filter(run_id=run_id)
    sums = rows.aggregate(summaries=Count("id"), saved=Sum(F("source_tokens") - F("token_count"), default=0))
    return sums["summaries"], sums["saved"]


def later_revisions(ids: Sequence[str]) -> dict[str, str]:
    """Return the revision that took the place of each of these summaries that was revised."""
    return dict(SummaryNode.objects.filter(revises_id__in=ids).values_list("revises_id", "id"))


def load_attempts(summary_id: str, *, session_id: str, limit: int) -> list[AttemptRecord]:
    rows = SummaryTry.objects.filter(session_id=session_id, summary_id=summary_id).order_by("number")
    return [AttemptRecord(**values) for values in rows.values(*_TRY_COLUMNS)[:limit]]


def attempts_of_calls(call_ids: Sequence[str], *, session_id: str) -> dict[str, AttemptRecord]:
    """Return by call the attempts for which these calls were made; a call that has not ended has none."""
    rows = SummaryTry.objects.filter(session_id=session_id, call_id__in=call_ids)
    return {values["call_id"]: AttemptRecord(**values) for values in rows.values(*_TRY_COLUMNS)}


def load_reply(try_id: str, *, session_id: str) -> dict[str, Any]:
    """Return what a summarising model answered, word for word: ``text``, ``reasoning`` and ``tool_calls``.

    :raises SummaryNotFoundError: the session has no such attempt.
    """
    rows = SummaryTry.objects.filter(session_id=session_id, id=try_id)
    row: dict[str, Any] | None = rows.values("text", "reasoning", "tool_calls").first()
    if row is None:
        raise SummaryNotFoundError(summary_id=try_id)
    return row


def load_projection(session_id: str, *, using: str = "default") -> Projection:
    """Return what the rows say of a session's compactions and summaries, to be compared with its replayed ledger."""
    runs = CompactionRun.objects.using(using).filter(session_id=session_id)
    sources: dict[str, list[tuple[str, str]]] = defaultdict(list)
    # By their nodes, so that an edge which says another session is seen.
    edges = SummaryEdge.objects.using(using).filter(node__session_id=session_id).order_by("node_id", "position")
    columns = ("node_id", "position", "source_type", "source_id", "of_revision", "node__revises_id", "session_id")
    for node_id, position, kind, source_id, of_revision, revises, said in edges.values_list(*columns).iterator():
        place = len(sources[node_id])
        is_right = (position, of_revision, said) == (place, revises is not None, session_id)
        shown = kind if is_right else f"{kind} at {position}, not {place}; of a revision: {of_revision}; of {said}"
        sources[node_id].append((shown, source_id))
    nodes = SummaryNode.objects.using(using).filter(session_id=session_id)
    states = {id: (seq, freshness) for id, seq, freshness in nodes.values_list("id", "superseded_seq", "freshness")}
    reflections = Reflection.objects.using(using).filter(session_id=session_id)
    facts = Fact.objects.using(using).filter(session_id=session_id)
    return replace(
        context_queries.load_projection(session_id, using=using),
        runs=dict(runs.values_list("id", "state")),
        summaries={id: tuple(sources[id]) for id in states},
        superseded={id: seq for id, (seq, _) in states.items() if seq is not None},
        freshness={id: freshness for id, (_, freshness) in states.items()},
        reflections=dict(reflections.values_list("id", "state")),
        facts={
            id: state_of(superseded_seq=superseded, withdrawn_seq=withdrawn, ban=ban).value
            for id, superseded, withdrawn, ban in facts.values_list("id", "superseded_seq", "withdrawn_seq", "ban")
        },
        held={
            id: (held_for, seq)
            for id, held_for, seq in facts.values_list("id", "held_for", "held_seq")
            if (held_for, seq) != (HeldFor.SESSION, None)
        },
    )


# The DAG opened: a summary described, expanded one step or to the messages, its lineage both ways.
# The graph of a session is two reads without any text; what is shown of it is read by its ids, a page at a time.


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    summary: SummaryRecord
    revisions: list[Node]  # every revision of it, the oldest first, itself among them
    above: list[Node]  # the summaries that stand for it, the nearest first
    below: list[tuple[int, Node]]  # it and everything under it in order, with the number of steps down
    in_context: str | None  # its newest revision or the one above that stands in the context now
    cost: Cost  # the cost of everything under it and of itself


@dataclass(frozen=True, slots=True, kw_only=True)
class MessageLineage:
    seq: int
    above: list[Node]  # the summaries that stand for it, the nearest first
    in_context: str | None  # what of it and those above stands in the context now


@dataclass(frozen=True, slots=True, kw_only=True)
class MessagePage:
    messages: list[StoredMessage]
    next_offset: int | None


def describe_summary(summary: SummaryRecord) -> Description:
    """Return a summary's lineage both ways and what it took; three reads whatever the history."""
    graph = load_graph(summary.session_id)
    above = graph.above(summary.id)
    return Description(
        summary=summary,
        revisions=graph.history(summary.id),
        above=above,
        below=list(graph.below(summary.id)),
        in_context=_standing([graph.newest(summary.id).id, *(node.id for node in above)], summary.session_id),
        cost=graph.cost(summary.id),
    )


def trace_message(message_id: str, *, session_id: str) -> MessageLineage:
    """:raises MessageNotFoundError: the session has no such message."""
    seq = seq_of_message(message_id, session_id=session_id)
    graph = load_graph(session_id)
    edges = SummaryEdge.objects.filter(source_id=message_id, source_type="message", session_id=session_id)
    # Several were made for different branches, or are revisions of each other: what stands in the context comes first.
    leaves = dict.fromkeys(graph.newest(id) for id in edges.order_by("node_id").values_list("node_id", flat=True))
    lines = [[leaf, *graph.above(leaf.id)] for leaf in leaves]
    standing = standing_items(session_id, [message_id, *(node.id for line in lines for node in line)])
    lines.sort(key=lambda line: not any(node.id in standing for node in line))
    above = list(dict.fromkeys(node for line in lines for node in line))
    in_context = next((id for id in (message_id, *(node.id for node in above)) if id in standing), None)
    return MessageLineage(seq=seq, above=above, in_context=in_context)


def expand_step(summary: SummaryRecord) -> list[tuple[str, SummaryRecord]]:
    """Return the summaries one step down in their newest revisions, each with the id of the one that was read."""
    graph = load_graph(summary.session_id)
    ids = [node.id for node in graph.sources(summary.id)]
    newest = load_summaries(ids, session_id=summary.session_id)
    return list(zip(graph.find(summary.id).sources, newest, strict=True))


def expand_messages(summary: SummaryRecord, *, offset: int, limit: int) -> MessagePage:
    """Return original messages behind a summary from the ``offset``-th on, through all its steps; six reads."""
    leaves = load_graph(summary.session_id).leaves(summary.id)
    slices = slices_of(leaves, offset=offset, limit=limit)
    ids = messages_of_slices(summary.session_id, slices) if slices else []
    end = offset + len(ids)
    return MessagePage(
        messages=load_messages_by_ids(ids, session_id=summary.session_id),
        next_offset=end if ids and end < sum(leaf.message_count for leaf in leaves) else None,
    )


def cover(session_id: str) -> Cover:
    """Return whether the context stands for every message of the chosen branch's path exactly once; reads all their ids.

    :raises SessionNotFoundError: there is no such session.
    :raises SummaryNotFoundError: the context or an edge names a summary that is not there.
    """
    with snapshot():
        path = path_in(load_session(session_id))
        seqs = seqs_of_session(session_id)
        messages_of: dict[str, list[int]] = defaultdict(list)
        edges = SummaryEdge.objects.filter(session_id=session_id, node__kind="leaf")
        for leaf_id, id in edges.order_by("node_id", "position").values_list("node_id", "source_id").iterator():
            messages_of[leaf_id].append(seqs.get(id, 0))
        items = load_context_items(session_id)
        standing = [seqs.get(item.item_id, 0) if item.item_type == "message" else item.item_id for item in items]
        return check_cover(load_graph(session_id), standing, messages_of, messages=seqs_on_path(session_id, path))


def _standing(ids: list[str], session_id: str) -> str | None:
    standing = standing_items(session_id, ids)
    return next((id for id in ids if id in standing), None)


def completed_compactions() -> Coalesce:
    """Return the number of a session's completed compactions, as part of a query of sessions."""
    runs = CompactionRun.objects.filter(session=OuterRef("pk"), state=RunState.COMPLETED).order_by()
    return Coalesce(Subquery(runs.values("session").annotate(total=Count("*")).values("total")), 0)


def compactions_over_time(
    sessions: QuerySet[Any], *, since: datetime, until: datetime, step: Step
) -> dict[datetime, int]:
    """Return how many compactions of these sessions were completed in each hour or day (UTC) that had any."""
    runs = CompactionRun.objects.filter(session__in=sessions.order_by().values("id"), state=RunState.COMPLETED)
    at = Trunc("ended_at", step.value, tzinfo=UTC)
    ended = runs.filter(ended_at__gte=since, ended_at__lt=until).order_by().annotate(at=at)
    return dict(ended.values_list("at").annotate(n=Count("*")))
