"""What is one person's is nobody else's, function by function: a new query without a decision here fails.

Each query that is told whose things it may see is called twice: by their owner, who finds them, and by somebody else
with the same ids, who finds nothing of them.
"""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from compaction_app import context, lineage
from compaction_app import queries as compaction_queries
from compaction_app import store as compaction_store
from files_app import queries as file_queries
from files_app.store import store_file_reference
from mnesis_core.errors import NotFound
from mnesis_core.messages import DataPart, FileRefPart, Message, TextPart, ToolPart
from mnesis_core.text import text_digest
from sessions_app import inspect_queries, queries, search, store, transcript
from sessions_app.ledger import Change, change
from tests.support.cast import make_user
from tests.support.inspected import add_preview, add_summary, add_turn, claim, finish, tool_part
from tests.support.talks import exchange, new_session

MODULES = (
    *("sessions_app.queries", "sessions_app.queries_keys", "sessions_app.inspect_queries", "sessions_app.search"),
    *("sessions_app.transcript", "compaction_app.queries", "compaction_app.context", "files_app.queries"),
    "compaction_app.lineage",
)
SECRET = "herring"
CONTENT = "ab" * 32
NOW = inspect_queries.NOW


@dataclass(frozen=True, kw_only=True)
class Things:
    """What Alice has: one of everything, a turn that runs among it."""

    turn: str
    first: str
    """The first message, which a summary stands for."""
    message: str
    tool: str
    call: str
    summary: str
    preview: str
    attempt: str
    run: str
    file: str
    child: str
    stub: str


@dataclass(frozen=True, kw_only=True)
class Person:
    """Who asks, in which session of theirs."""

    owner_id: int
    session_id: str


Ask = Callable[[Person, Things], Any]

BY_OWNER: dict[str, Ask] = {
    "sessions_app.queries.list_sessions": lambda who, its: queries.list_sessions(owner_id=who.owner_id, query=SECRET),
    "sessions_app.queries.find_imported": lambda who, its: queries.find_imported(
        owner_id=who.owner_id, origin="import", external_id=SECRET
    ),
    "sessions_app.queries.load_session": lambda who, its: queries.load_session(its.child, owner_id=who.owner_id),
    "sessions_app.queries.load_call": lambda who, its: queries.load_call(its.call, owner_id=who.owner_id),
    "sessions_app.search.search": lambda who, its: search.search(search.Scope(owner_id=who.owner_id), SECRET),
    "compaction_app.queries.load_previews": lambda who, its: compaction_queries.load_previews(
        its.preview, owner_id=who.owner_id
    ),
    "compaction_app.queries.load_summary": lambda who, its: compaction_queries.load_summary(
        its.summary, owner_id=who.owner_id
    ),
    "compaction_app.queries.compaction_micros_of_owner": lambda who, its: compaction_queries.compaction_micros_of_owner(
        who.owner_id, since=timezone.now() - timedelta(hours=1)
    ),
    "files_app.queries.load_file_reference": lambda who, its: file_queries.load_file_reference(
        its.file, owner_id=who.owner_id
    ),
    "files_app.queries.find_file_by_content": lambda who, its: file_queries.find_file_by_content(
        CONTENT, owner_id=who.owner_id
    ),
    "files_app.queries.find_file_by_path": lambda who, its: file_queries.find_file_by_path(
        f"/{SECRET}", owner_id=who.owner_id
    ),
}
"""Told who asks."""

BY_SESSION: dict[str, Ask] = {
    "sessions_app.queries.expired_turns": lambda who, its: queries.expired_turns(session_id=who.session_id),
    "sessions_app.queries.find_part_of_call": lambda who, its: queries.find_part_of_call(who.session_id, "c1"),
    "sessions_app.queries.find_turn_by_key": lambda who, its: queries.find_turn_by_key(who.session_id, SECRET),
    "sessions_app.queries.journal_texts": lambda who, its: queries.journal_texts(who.session_id, message_id=its.stub),
    "sessions_app.queries.list_calls": lambda who, its: queries.list_calls(who.session_id),
    "sessions_app.queries.list_turns": lambda who, its: queries.list_turns(who.session_id),
    "sessions_app.queries.load_context": lambda who, its: queries.load_context(who.session_id),
    "sessions_app.queries.load_context_items": lambda who, its: queries.load_context_items(who.session_id),
    "sessions_app.queries.load_events": lambda who, its: queries.load_events(who.session_id),
    "sessions_app.queries.load_live_texts": lambda who, its: queries.load_live_texts(who.session_id),
    "sessions_app.queries.load_message": lambda who, its: queries.load_message(its.message, session_id=who.session_id),
    "sessions_app.queries.load_message_rows": lambda who, its: queries.load_message_rows(who.session_id, [its.message]),
    "sessions_app.queries.load_messages": lambda who, its: queries.load_messages(who.session_id),
    "sessions_app.queries.load_messages_by_ids": lambda who, its: queries.load_messages_by_ids(
        [its.message], session_id=who.session_id
    ),
    "sessions_app.queries.load_messages_since": lambda who, its: queries.load_messages_since(
        its.message, session_id=who.session_id
    ),
    "sessions_app.queries.load_parts": lambda who, its: queries.load_parts(its.message, session_id=who.session_id),
    "sessions_app.queries.load_prompt_texts": lambda who, its: queries.load_prompt_texts(
        who.session_id, [text_digest("[]")]
    ),
    "sessions_app.queries.load_turn": lambda who, its: queries.load_turn(its.turn, session_id=who.session_id),
    "sessions_app.queries.load_turns": lambda who, its: queries.load_turns([its.turn], session_id=who.session_id),
    "sessions_app.queries.newest_call": lambda who, its: queries.newest_call(who.session_id),
    "sessions_app.queries.newest_summary": lambda who, its: queries.newest_summary(who.session_id),
    "sessions_app.queries.replaced_items": lambda who, its: queries.replaced_items(
        who.session_id, [message.id for message in queries.load_messages(who.session_id)]
    ),
    "sessions_app.queries.running_preview_calls": lambda who, its: queries.running_preview_calls(
        who.session_id, before=timezone.now()
    ),
    "sessions_app.queries.running_summary_calls": lambda who, its: queries.running_summary_calls(
        who.session_id, its.run
    ),
    "sessions_app.queries.running_turn": lambda who, its: queries.running_turn(who.session_id),
    "sessions_app.queries.seq_of_message": lambda who, its: queries.seq_of_message(
        its.message, session_id=who.session_id
    ),
    "sessions_app.queries.seqs_of_session": lambda who, its: queries.seqs_of_session(who.session_id),
    "sessions_app.queries.standing_items": lambda who, its: queries.standing_items(who.session_id, [its.summary]),
    "sessions_app.queries.turn_keys": lambda who, its: queries.turn_keys(who.session_id),
    "sessions_app.queries.usage_of_session": lambda who, its: queries.usage_of_session(who.session_id),
    "sessions_app.inspect_queries.context_changes_beside": lambda who, its: inspect_queries.context_changes_beside(
        who.session_id, at=4
    ),
    "sessions_app.inspect_queries.count_context": lambda who, its: inspect_queries.count_context(
        who.session_id, at=NOW
    ),
    "sessions_app.inspect_queries.load_context_added": lambda who, its: inspect_queries.load_context_added(
        who.session_id, at=3, limit=9
    ),
    "sessions_app.inspect_queries.load_context_page": lambda who, its: inspect_queries.load_context_page(
        who.session_id, at=NOW, offset=0, limit=9
    ),
    "sessions_app.inspect_queries.load_context_removed": lambda who, its: _removed(who.session_id),
    "sessions_app.inspect_queries.load_context_summaries": lambda who, its: inspect_queries.load_context_summaries(
        who.session_id, at=NOW
    ),
    "sessions_app.inspect_queries.load_event_heading": lambda who, its: inspect_queries.load_event_heading(
        who.session_id, 5
    ),
    "sessions_app.inspect_queries.load_heading": lambda who, its: inspect_queries.load_heading(who.session_id),
    "sessions_app.inspect_queries.sum_message_tokens": lambda who, its: inspect_queries.sum_message_tokens(
        who.session_id, at=NOW
    ),
    "sessions_app.transcript.list_children": lambda who, its: transcript.list_children(who.session_id),
    "sessions_app.transcript.load_chunk": lambda who, its: transcript.load_chunk(who.session_id),
    "sessions_app.transcript.load_message": lambda who, its: transcript.load_message(who.session_id, its.message),
    "sessions_app.transcript.load_piece": lambda who, its: transcript.load_piece(
        who.session_id, its.tool, field="output", offset=0
    ),
    "sessions_app.transcript.load_records": lambda who, its: transcript.load_records(
        who.session_id, its.message, after=-1
    ),
    "sessions_app.transcript.load_spoken_text": lambda who, its: transcript.load_spoken_text(
        who.session_id, its.message
    ),
    "sessions_app.transcript.load_whole_text": lambda who, its: transcript.load_whole_text(
        who.session_id, its.tool, field="output"
    ),
    "compaction_app.queries.applied_with": lambda who, its: compaction_queries.applied_with(
        its.preview, session_id=who.session_id
    ),
    "compaction_app.queries.covering_summaries": lambda who, its: compaction_queries.covering_summaries(
        who.session_id, [1, 2]
    ),
    "compaction_app.queries.is_free_to_claim": lambda who, its: compaction_queries.is_free_to_claim(
        its.run, timezone.now(), session_id=who.session_id
    ),
    "compaction_app.queries.last_run": lambda who, its: compaction_queries.last_run(who.session_id),
    "compaction_app.queries.last_summary": lambda who, its: compaction_queries.last_summary(who.session_id),
    "compaction_app.queries.leaf_of_message": lambda who, its: compaction_queries.leaf_of_message(
        its.first, session_id=who.session_id
    ),
    "compaction_app.queries.load_graph": lambda who, its: compaction_queries.load_graph(who.session_id).nodes,
    "compaction_app.queries.load_summaries": lambda who, its: compaction_queries.load_summaries(
        [its.summary], session_id=who.session_id
    ),
    "compaction_app.queries.messages_of_leaves": lambda who, its: compaction_queries.messages_of_leaves(who.session_id),
    "compaction_app.queries.messages_of_slices": lambda who, its: compaction_queries.messages_of_slices(
        who.session_id, [(its.summary, 0, 9)]
    ),
    "compaction_app.queries.list_runs": lambda who, its: compaction_queries.list_runs(who.session_id),
    "compaction_app.queries.list_summaries": lambda who, its: compaction_queries.list_summaries(who.session_id),
    "compaction_app.queries.load_drafts": lambda who, its: compaction_queries.load_drafts(
        [its.attempt], session_id=who.session_id
    ),
    "compaction_app.queries.usage_of_compaction": lambda who, its: (
        compaction_queries.usage_of_compaction(who.session_id).cost_micros
    ),
    "compaction_app.queries.compaction_micros": lambda who, its: compaction_queries.compaction_micros(who.session_id),
    "compaction_app.queries.live_run": lambda who, its: compaction_queries.live_run(who.session_id),
    "compaction_app.queries.load_run": lambda who, its: compaction_queries.load_run(its.run, session_id=who.session_id),
    "compaction_app.queries.load_summary_entries": lambda who, its: compaction_queries.load_summary_entries(
        {its.summary: 1}, session_id=who.session_id
    ),
    "compaction_app.queries.load_preview_entries": lambda who, its: compaction_queries.load_preview_entries(
        {its.preview: 1}, session_id=who.session_id
    ),
    "compaction_app.lineage.cover": lambda who, its: lineage.cover(who.session_id).messages,
    "compaction_app.lineage.trace_message": lambda who, its: lineage.trace_message(
        its.first, session_id=who.session_id
    ),
    "compaction_app.context.build_context": lambda who, its: context.build_context(who.session_id).payload,
    "compaction_app.context.load_frame": lambda who, its: context.load_frame(who.session_id),
    "compaction_app.context.load_meter": lambda who, its: context.load_meter(who.session_id).used_tokens,
    "compaction_app.context.load_state": lambda who, its: context.load_state(who.session_id),
}
"""Told which session, after a door has looked whose it is."""

NOT_SCOPED = {
    "sessions_app.queries.load_call_before": "the call is one that its owner has loaded",
    "sessions_app.queries.load_part_text": "the part comes from an event of the session that is followed",
    "sessions_app.queries.running_calls": "the turn is one that this process runs or takes over",
    "sessions_app.queries.unanswered_tools": "the turn is one that this process runs or takes over",
    "sessions_app.queries.unfinished_messages": "the turn is one that this process runs or takes over",
    "sessions_app.queries.usage_of": "reads no rows",
    "sessions_app.queries_keys.find_key": "says who asks",
    "sessions_app.queries_keys.list_keys": "for the administrator's command",
    "sessions_app.inspect_queries.preview_messages": "for the inspector, whose people see all; the ids are of one page",
    "sessions_app.inspect_queries.seqs_of_messages": "for the inspector, whose people see all; the ids are of one page",
    "compaction_app.queries.has_changed": "the run is the caller's own",
    "compaction_app.queries.longest_wait": "for whoever watches the site: a number of seconds",
    "compaction_app.queries.stale_runs": "for the janitor, who wakes forgotten runs",
    "compaction_app.queries.summarised_sessions": "for the administrator's command",
    "compaction_app.lineage.describe": "the summary was loaded for whoever asks",
    "compaction_app.lineage.expand_messages": "the summary was loaded for whoever asks",
    "compaction_app.lineage.expand_step": "the summary was loaded for whoever asks",
    "compaction_app.context.meter_of": "reads what load_state has loaded",
    "compaction_app.context.size_of": "reads what load_state has loaded",
    "compaction_app.context.read_state": "reads the session that load_frame has loaded",
}
"""Told nothing: why that is right."""


def _removed(session_id: str) -> Any:
    events = [event.seq for event in queries.load_events(session_id) if event.type == "context.changed"]
    return inspect_queries.load_context_removed(session_id, at=events[0] if events else 9, limit=9)


@pytest.fixture
def alice(db: None) -> Person:
    return person("alice")


@pytest.fixture
def bob(db: None) -> Person:
    return person("bob")


def person(name: str) -> Person:
    user = make_user(name)
    return Person(owner_id=user.pk, session_id=new_session(user, title="mine"))


@pytest.fixture
def things(alice: Person) -> Things:
    """One of everything, in Alice's session and in a child of it."""
    session_id = alice.session_id
    owner = User.objects.get(pk=alice.owner_id)
    child = new_session(owner, title=SECRET, parent_id=session_id, origin="import", external_id=SECRET)
    add_turn(session_id, SECRET)
    answer = (TextPart(text=SECRET), tool_part(SECRET), DataPart(label="x:y", text=SECRET), FileRefPart(file_id=SECRET))
    _, message = add_turn(session_id, SECRET, *answer)
    tool = queries.find_part_of_call(session_id, "c1")
    run = claim(session_id)
    first_two = [message.id for message in queries.load_messages(session_id)[:2]]
    summary = add_summary(session_id, run, first_two, (1, 2), text=SECRET)
    preview = add_preview(session_id, summary, first_two, text=SECRET)
    finish(session_id, run)
    exchange(session_id, SECRET, SECRET)
    with change(session_id) as record:
        store.tombstone_parts(record, [tool])
        file = store_file_reference(record, content_id=CONTENT, path=f"/{SECRET}", exploration_summary=SECRET)
        live = compaction_store.request_run(record, trigger="soft")
        for run_id in (live, None):
            start_summary_call(record, run_id)
    with change(session_id, now=timezone.now() - timedelta(hours=1)) as record:
        running = store.start_turn(record, model="demo", lease_owner="x", lease_seconds=1, idempotency_key=SECRET)
        waits = ToolPart(tool_name="t", tool_call_id="c2")
        stub = store.append_message(record, turn_id=running, message=Message(role="assistant", parts=(waits,)))
    piece = store.Piece(part_index=1, part_type="text", offset=0, text=SECRET)
    store.append_journal(session_id=session_id, message_id=stub, pieces=[piece])
    return Things(
        turn=running,
        first=first_two[0],
        message=message,
        tool=tool,
        call=queries.list_calls(session_id)[0].id,
        summary=summary,
        preview=preview,
        attempt=compaction_queries.load_run(run.id).tries[0].id,
        run=live or "",
        file=file,
        child=child,
        stub=stub,
    )


def start_summary_call(record: Change, run_id: str | None) -> None:
    """A question to a summarising model, of a compaction or of a preview."""
    store.start_call(
        record,
        turn_id=None,
        message_id=None,
        purpose="summary",
        model="demo",
        provider_model="demo",
        parameters={"run_id": run_id},
        manifest=[],
        context_seq=1,
        digest="",
        estimated_tokens=1,
    )


def query_functions() -> Iterator[str]:
    """Every public function of the modules that read."""
    for name in MODULES:
        module = importlib.import_module(name)
        for function, value in inspect.getmembers(module, inspect.isfunction):
            if f"{value.__module__}.".startswith(f"{name}.") and not function.startswith("_"):
                yield f"{name}.{function}"


def test_every_query_has_a_decision() -> None:
    decided = [*BY_OWNER, *BY_SESSION, *NOT_SCOPED]
    assert sorted(decided) == sorted(query_functions())


@pytest.mark.parametrize("name", [*BY_OWNER, *BY_SESSION])
def test_the_owner_finds_it_and_nobody_else_does(alice, bob, things, name):
    ask = {**BY_OWNER, **BY_SESSION}[name]
    found = ask(alice, things)
    assert found not in (None, "", 0, [], {}, set(), ())
    try:
        elsewhere = ask(bob, things)
    except NotFound:
        return
    assert elsewhere != found
    shown = repr(elsewhere)
    assert not [secret for secret in (SECRET, alice.session_id, *vars(things).values()) if secret in shown]


def test_what_is_deleted_is_its_owners_no_more(alice, things):
    for session_id in (alice.session_id, things.child):
        with change(session_id) as record:
            store.soft_delete_session(record)
    for name, ask in BY_OWNER.items():
        try:
            found = ask(alice, things)
        except NotFound:
            continue
        assert not [secret for secret in (alice.session_id, *vars(things).values()) if secret in repr(found)], name
