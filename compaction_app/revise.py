"""A summary, or all under it, written again: previewed, compared, applied on request, undone.

A preview asks a model with no lock held, and is kept; the DAG and the context do not know of it. Applying it is one change
that writes exactly the previewed texts, or nothing when something was revised meanwhile.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import timedelta

from django.utils.translation import gettext_noop

from compaction_app import queries, store
from compaction_app.context.fidelity import bound_of
from compaction_app.context.state import ContextState, load_state
from compaction_app.facts.reflect import request_reflection
from compaction_app.lineage.claims import request_alignment
from compaction_app.store import Revision
from compaction_app.summary_requests import Work, ask_for_summary
from mnesis_core.compaction.dag import Graph, Node, order_of_work
from mnesis_core.compaction.requests import Prompts, SummaryPrompt
from mnesis_core.compaction.selection import Condensation, Span
from mnesis_core.compaction.transcript import piece_limit
from mnesis_core.context.entries import SummaryEntry
from mnesis_core.context.fitting import whole
from mnesis_core.errors import Conflict, SessionArchived, SummaryRevised
from mnesis_core.llm.interface import Model
from mnesis_core.records import SummaryRecord, new_id
from sessions_app.conf import get_model, site_prompts
from sessions_app.record.change import change
from sessions_app.record.file_port import keep_text
from sessions_app.record.message_queries import load_messages_by_ids
from sessions_app.record.turn_queries import running_preview_calls


@dataclass(slots=True, kw_only=True)
class _Task:
    state: ContextState
    graph: Graph
    model: Model
    prompts: Prompts
    batch_id: str
    made: dict[str, SummaryEntry] = field(default_factory=dict)  # the previews made so far, by summary id


def preview(
    summary_id: str,
    *,
    owner_id: int | None = None,
    subtree: bool = False,
    only_stale: bool = False,
    model: str = "",
    prompt: SummaryPrompt | None = None,
) -> str:
    """Ask for a summary again, or for all under it and then for it; return the preview's id.

    ``model`` is an alias, by default the one that summarises in this session. ``prompt`` is asked at level 1, of
    messages and of summaries alike.

    :raises SummaryNotFoundError: there is no such summary, or it is another person's.
    :raises SummaryRevised: it is not the newest revision.
    :raises ModelNotFoundError: no model has this name.
    :raises Conflict: none of them is stale, or the session is archived.
    """
    summary = queries.load_summary(summary_id, owner_id=owner_id)
    if summary.superseded_seq is not None:
        raise SummaryRevised(summary_id=summary_id)
    graph = queries.load_graph(summary.session_id)
    nodes = order_of_work(graph, summary_id, subtree=subtree, only_stale=only_stale)
    state = load_state(summary.session_id)
    if state.session.archived_at is not None:
        raise SessionArchived(session_id=summary.session_id)
    # A process that died while it asked for a preview has left calls behind that no other process closes.
    longest = timedelta(seconds=2 * state.config.compaction.model_timeout_seconds)
    with change(summary.session_id) as record:
        store.close_calls(record, running_preview_calls(summary.session_id, before=record.now - longest))
    task = _Task(
        state=state,
        graph=graph,
        model=get_model(model or state.config.compaction.model or state.session.model, user_id=state.session.owner_id),
        prompts=site_prompts() if prompt is None else replace(site_prompts(), level1=prompt, condense=prompt),
        batch_id=new_id("sum"),
    )
    for node in nodes:
        _preview_one(task, node, preview_id=task.batch_id if node.id == summary_id else new_id("sum"))
    return task.batch_id


def apply(preview_id: str, *, owner_id: int | None = None) -> list[str]:
    """Put exactly what was previewed in the place of the summaries; return the revisions' ids, the requested one last.

    :raises PreviewNotFoundError: there is no such preview, or it is another person's.
    :raises SummaryRevised: one of the summaries, or one that was read, was revised after the preview was made.
    :raises SessionArchived: the session is archived.
    """
    previews = queries.load_previews(preview_id, owner_id=owner_id)
    names = [name for name in Revision.__dataclass_fields__ if name != "restores_id"]
    revisions = [Revision(**{name: getattr(preview, name) for name in names}) for preview in previews]
    return _write(previews[-1].session_id, revisions)


def undo(summary_id: str, *, owner_id: int | None = None, to: str | None = None, subtree: bool = False) -> list[str]:
    """Write one more revision with the text of the one before, or of the revision ``to``; return its id.

    With ``subtree`` all that was applied together with the newest revision is undone, the requested one last.

    :raises SummaryNotFoundError: there is no such summary, or it is another person's; ``to`` is no revision of it.
    :raises Conflict: it was never revised.
    :raises SessionArchived: the session is archived.
    """
    session_id = queries.load_summary(summary_id, owner_id=owner_id).session_id
    graph = queries.load_graph(session_id)
    newest = graph.newest(summary_id)
    together = queries.applied_with(newest.id, session_id=session_id) if subtree else set()
    chosen = [node for node in graph.current() if node.id in {newest.id, *together}]
    revisions = []
    for node in sorted(chosen, key=lambda node: node.depth):
        wanted = (to if node.id == newest.id else None) or node.revises_id
        if wanted is None:
            raise Conflict(
                gettext_noop("this summary was never revised, so there is nothing to undo"), summary_id=node.id
            )
        earlier = queries.load_summary(wanted, session_id=session_id)
        if graph.newest(earlier.id).id != node.id or earlier.id == node.id:
            raise Conflict(gettext_noop("this is no earlier revision of it"), summary_id=earlier.id)
        names = ("level", "text", "token_count", "source_tokens", "model", "prompt_version")
        revisions.append(
            Revision(
                id=new_id("sum"),
                summary_id=node.id,
                source_ids=tuple(id for _, id in earlier.source_ids),
                restores_id=graph.find(earlier.id).text_of,
                **{name: getattr(earlier, name) for name in names},
            )
        )
    return _write(session_id, revisions)


def _write(session_id: str, revisions: list[Revision]) -> list[str]:
    """Put revisions in their places and return their ids; workers find what their sentences rest on and what they have lost."""
    is_measured = bound_of(session_id) < 1
    with change(session_id) as record:
        store.revise_summaries(record, revisions)
        for revision in revisions:
            request_alignment(revision.id)
            if is_measured:
                # Facts were searched for in the same messages before, so no model is asked again.
                request_reflection(record, revision.id, by_rule=True)
    return [revision.id for revision in revisions]


def _preview_one(task: _Task, node: Node, *, preview_id: str) -> None:
    summary = queries.load_summary(node.id)
    chosen = _sources(task, summary)
    columns, manifest = ask_for_summary(
        task.state,
        chosen,
        attempt=Work(session_id=task.state.session.id),
        model=task.model,
        summary_id=preview_id,
        began=time.monotonic(),
        context_seq=task.state.context_seq,
        limit=piece_limit(task.model.spec, task.state.config),
        prompts=task.prompts,
    )
    made = Revision(id=preview_id, summary_id=node.id, source_ids=chosen.source_ids, **columns)
    with change(summary.session_id) as record:
        if manifest:
            keep_text(record, manifest)
        store.record_preview(record, made, batch_id=task.batch_id)
    [task.made[node.id]] = queries.load_preview_entries({preview_id: 0}, session_id=summary.session_id)


def _sources(task: _Task, summary: SummaryRecord) -> Span | Condensation:
    if summary.kind == "leaf":
        ids = [id for _, id in summary.source_ids]
        messages = load_messages_by_ids(ids, session_id=summary.session_id)
        return Span(messages=tuple(messages), tokens=summary.source_tokens)
    newest = [node.id for node in task.graph.sources(summary.id)]
    read = {id: place for place, id in enumerate(newest) if id not in task.made}
    stored = queries.load_summary_entries(read, session_id=summary.session_id) if read else []
    entries = {entry.id: entry for entry in stored} | {id: task.made[id] for id in newest if id in task.made}
    chosen = tuple(replace(entries[id], position=place) for place, id in enumerate(newest))
    return Condensation(summaries=chosen, tokens=sum(whole(entry).tokens for entry in chosen))
