"""The summary DAG opened: a summary described, expanded one step or to the messages, its lineage both ways.

The graph of a session is two reads without any text; what is shown of it is read by its ids, a page at a time.
"""

from __future__ import annotations

from dataclasses import dataclass

from compaction_app import queries
from mnesis_core.compaction.dag import Cost, Cover, Node, check_cover, slices_of
from mnesis_core.messages import StoredMessage
from mnesis_core.records import SummaryRecord
from sessions_app.database.threads import snapshot
from sessions_app.record.context_queries import load_context_items, standing_items
from sessions_app.record.message_queries import load_messages_by_ids, seq_of_message, seqs_of_session
from sessions_app.record.session_queries import load_session


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
    messages: list[StoredMessage]  # oldest first
    next_offset: int | None


def describe(summary: SummaryRecord) -> Description:
    """Return a summary's lineage both ways and what it took; three reads whatever the history."""
    graph = queries.load_graph(summary.session_id)
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
    graph = queries.load_graph(session_id)
    leaf_id = queries.leaf_of_message(message_id, session_id=session_id)
    above = [] if leaf_id is None else [graph.newest(leaf_id), *graph.above(leaf_id)]
    standing = _standing([message_id, *(node.id for node in above)], session_id)
    return MessageLineage(seq=seq, above=above, in_context=standing)


def expand_step(summary: SummaryRecord) -> list[tuple[str, SummaryRecord]]:
    """Return the summaries one step down in their newest revisions, each with the id of the one that was read."""
    graph = queries.load_graph(summary.session_id)
    ids = [node.id for node in graph.sources(summary.id)]
    newest = queries.load_summaries(ids, session_id=summary.session_id)
    return list(zip(graph.find(summary.id).sources, newest, strict=True))


def expand_messages(summary: SummaryRecord, *, offset: int, limit: int) -> MessagePage:
    """Return original messages behind a summary from the ``offset``-th on, through all its steps; six reads."""
    leaves = queries.load_graph(summary.session_id).leaves(summary.id)
    slices = slices_of(leaves, offset=offset, limit=limit)
    ids = queries.messages_of_slices(summary.session_id, slices) if slices else []
    end = offset + len(ids)
    return MessagePage(
        messages=load_messages_by_ids(ids, session_id=summary.session_id),
        next_offset=end if ids and end < sum(leaf.message_count for leaf in leaves) else None,
    )


def cover(session_id: str) -> Cover:
    """Return whether the context stands for every message of a session exactly once; reads the ids of all of them.

    :raises SessionNotFoundError: there is no such session.
    :raises SummaryNotFoundError: the context or an edge names a summary that is not there.
    """
    with snapshot():
        session = load_session(session_id)
        seqs = seqs_of_session(session_id)
        messages_of = {
            leaf_id: [seqs.get(id, 0) for id in ids] for leaf_id, ids in queries.messages_of_leaves(session_id).items()
        }
        items = load_context_items(session_id)
        standing = [seqs.get(item.item_id, 0) if item.item_type == "message" else item.item_id for item in items]
        return check_cover(queries.load_graph(session_id), standing, messages_of, last_seq=session.message_seq)


def _standing(ids: list[str], session_id: str) -> str | None:
    standing = standing_items(session_id, ids)
    return next((id for id in ids if id in standing), None)
