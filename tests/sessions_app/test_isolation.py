"""What is one person's is nobody else's, function by function: a new query without a decision here fails.

Each query that is told whose things it may see is called twice: by their owner, who finds them, and by another person
with the same ids, who finds nothing of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from agents_app import queries as agent_queries
from compaction_app import queries as compaction_queries
from compaction_app.context import manifests
from compaction_app.context import state as context
from compaction_app.facts import queries as fact_queries
from compaction_app.lineage import claims
from files_app import queries as file_queries
from mnesis_core.context.branches import END, LINE, Path, Stretch
from mnesis_core.errors import NotFound
from mnesis_core.records import find_ids
from mnesis_core.text import text_digest
from sessions_app.llm import model_store, spending_store
from sessions_app.models import Message
from sessions_app.pages import branches as page_branches
from sessions_app.pages import transcript
from sessions_app.record import (
    branch_queries,
    context_queries,
    message_queries,
    ratings,
    session_queries,
    session_store,
    timeline_queries,
    turn_queries,
)
from sessions_app.record import observed as record_observed
from sessions_app.record.change import change
from sessions_app.record.shares import sharing
from sessions_app.search import ranked, search, vector_store
from tests.support.people.organisations import put_into
from tests.support.record.belongings import CONTENT, SECRET, Person, Things, belongings, person
from tests.support.record.talks import new_session

pytestmark = pytest.mark.both_databases

MODULES = (
    *(
        branch_queries,
        context_queries,
        timeline_queries,
        message_queries,
        ratings,
        session_queries,
        sharing,
        turn_queries,
    ),
    *(
        record_observed,
        model_store,
        spending_store,
        search,
        ranked,
        vector_store,
    ),
    *(
        transcript,
        page_branches,
        compaction_queries,
        fact_queries,
        claims,
        manifests,
        context,
        file_queries,
        agent_queries,
    ),
)
NOW = timeline_queries.NOW
OTHER = Path((Stretch(1, 1, END),))


Query = Callable[..., Any]
Ask = Callable[[Query, Person, Things], Any]

BY_OWNER: dict[Query, Ask] = {
    session_queries.list_sessions: lambda ask, who, its: ask(owner_id=who.owner_id, query=SECRET),
    session_queries.load_line: lambda ask, who, its: ask(its.helper, owner_id=who.owner_id),
    message_queries.find_reasoning: lambda ask, who, its: ask([_turn_of(its.message)], owner_id=who.owner_id),
    turn_queries.find_turn_of_part: lambda ask, who, its: ask(its.tool, owner_id=who.owner_id),
    session_queries.titles_of: lambda ask, who, its: ask([its.child], owner_id=who.owner_id),
    transcript.parent_titles: lambda ask, who, its: ask(
        [session_queries.load_session(its.helper)], owner_id=who.owner_id
    ),
    session_queries.find_imported: lambda ask, who, its: ask(
        owner_id=who.owner_id, origin="import", external_id=SECRET
    ),
    session_queries.load_session: lambda ask, who, its: ask(its.child, owner_id=who.owner_id),
    session_queries.load_forking: lambda ask, who, its: ask(its.fork, owner_id=who.owner_id),
    turn_queries.load_call: lambda ask, who, its: ask(its.call, owner_id=who.owner_id),
    search.search: lambda ask, who, its: ask(search.Scope(owner_id=who.owner_id), SECRET),
    ranked.answer: lambda ask, who, its: ask(search.Scope(owner_id=who.owner_id), SECRET),
    ranked.find_ranked: lambda ask, who, its: ask(search.Scope(owner_id=who.owner_id), SECRET).sessions,
    ranked.search_ranked: lambda ask, who, its: ask(search.Scope(owner_id=who.owner_id), SECRET, limit=9, around=2),
    compaction_queries.load_previews: lambda ask, who, its: ask(its.preview, owner_id=who.owner_id),
    compaction_queries.compare_previews: lambda ask, who, its: ask(its.preview, owner_id=who.owner_id),
    compaction_queries.load_summary: lambda ask, who, its: ask(its.summary, owner_id=who.owner_id),
    compaction_queries.compaction_micros_of_owner: lambda ask, who, its: ask(
        who.owner_id, since=timezone.now() - timedelta(hours=1)
    ),
    session_queries.list_peers: lambda ask, who, its: ask(owner_id=who.owner_id),
    session_queries.peer_names: lambda ask, who, its: ask([its.child], owner_id=who.owner_id),
    agent_queries.load_inbox_message: lambda ask, who, its: ask(its.letter, owner_id=who.owner_id),
    file_queries.load_file_reference: lambda ask, who, its: ask(its.file, owner_id=who.owner_id),
    file_queries.find_file_by_content: lambda ask, who, its: ask(CONTENT, owner_id=who.owner_id),
    file_queries.find_file_by_path: lambda ask, who, its: ask(f"/{SECRET}", owner_id=who.owner_id),
    file_queries.list_files: lambda ask, who, its: ask(owner_id=who.owner_id),
    fact_queries.list_held_facts: lambda ask, who, its: ask(who.owner_id),
    fact_queries.find_holding: lambda ask, who, its: ask(its.fact, owner_id=who.owner_id),
    file_queries.bytes_of_person: lambda ask, who, its: ask(who.owner_id),
    agent_queries.load_run: lambda ask, who, its: ask(its.map, owner_id=who.owner_id),
    agent_queries.list_runs: lambda ask, who, its: ask(owner_id=who.owner_id),
    ratings.list_ratings: lambda ask, who, its: ask(who.session_id, owner_id=who.owner_id, limit=9),
    sharing.load_share: lambda ask, who, its: ask(who.session_id, its.share, owner_id=who.owner_id),
    sharing.list_shares: lambda ask, who, its: ask(owner_id=who.owner_id),
    session_queries.find_session: lambda ask, who, its: ask(its.child, owner_id=who.owner_id),
    session_queries.load_sessions: lambda ask, who, its: ask([its.child], owner_id=who.owner_id),
}
"""Told who asks."""

OF_THE_ACCOUNT = (compaction_queries.compaction_micros_of_owner, file_queries.bytes_of_person)
"""What a person has in every organisation counts towards the account's limits."""

BY_SESSION: dict[Query, Ask] = {
    agent_queries.count_waiting: lambda ask, who, its: ask(who.session_id),
    agent_queries.find_sent: lambda ask, who, its: ask(who.session_id, SECRET),
    agent_queries.usage_of_maps: lambda ask, who, its: ask(who.session_id),
    agent_queries.live_runs_of: lambda ask, who, its: ask(who.session_id),
    agent_queries.find_run_by_key: lambda ask, who, its: ask(who.session_id, SECRET),
    agent_queries.runs_of_part: lambda ask, who, its: ask(who.session_id, its.tool),
    agent_queries.list_inbox: lambda ask, who, its: ask(who.session_id),
    agent_queries.load_taken: lambda ask, who, its: ask(who.session_id, its.turn),
    agent_queries.spoken_at: lambda ask, who, its: ask(who.session_id),
    session_queries.launched_by_turn: lambda ask, who, its: ask(who.session_id, its.answered),
    session_queries.find_file_part: lambda ask, who, its: ask(SECRET, session_id=who.session_id),
    session_queries.messages_naming: lambda ask, who, its: ask(SECRET, session_id=who.session_id),
    session_queries.load_file_parts: lambda ask, who, its: ask([SECRET], session_id=who.session_id),
    session_queries.launched_by_parts: lambda ask, who, its: ask(who.session_id, [its.tool]),
    session_queries.load_children: lambda ask, who, its: ask(who.session_id),
    session_queries.load_launched: lambda ask, who, its: ask(who.session_id),
    message_queries.load_part: lambda ask, who, its: ask(its.tool, session_id=who.session_id),
    session_queries.message_of_part: lambda ask, who, its: ask(its.tool, session_id=who.session_id),
    session_queries.tool_outputs: lambda ask, who, its: ask(who.session_id, "read_log"),
    transcript.list_launched: lambda ask, who, its: ask(who.session_id, [its.tool]),
    file_queries.list_contents: lambda ask, who, its: ask(who.session_id),
    file_queries.load_file_references: lambda ask, who, its: ask([its.file], session_ids=[who.session_id]),
    file_queries.kept_contents: lambda ask, who, its: ask(who.session_id),
    turn_queries.expired_turns: lambda ask, who, its: ask(session_id=who.session_id),
    message_queries.find_message_at: lambda ask, who, its: ask(who.session_id, 1),
    message_queries.first_seq_of_turn: lambda ask, who, its: ask(its.turn, session_id=who.session_id),
    message_queries.find_part_of_call: lambda ask, who, its: ask(who.session_id, "c1"),
    message_queries.find_tool_part: lambda ask, who, its: ask(its.tool, session_id=who.session_id),
    turn_queries.find_turn_by_key: lambda ask, who, its: ask(who.session_id, SECRET),
    message_queries.journal_texts: lambda ask, who, its: ask(who.session_id, message_id=its.stub),
    message_queries.list_interactions: lambda ask, who, its: ask(who.session_id),
    message_queries.places_of_turns: lambda ask, who, its: ask([its.turn], session_id=who.session_id),
    turn_queries.list_calls: lambda ask, who, its: ask(who.session_id),
    turn_queries.list_turns: lambda ask, who, its: ask(who.session_id),
    branch_queries.ends_of_branches: lambda ask, who, its: ask(who.session_id),
    branch_queries.spans_of_branches: lambda ask, who, its: ask(who.session_id, [0]),
    branch_queries.ids_at: lambda ask, who, its: ask(who.session_id, [1]),
    branch_queries.last_seqs: lambda ask, who, its: ask(who.session_id),
    branch_queries.load_branches: lambda ask, who, its: ask(who.session_id),
    branch_queries.load_path: lambda ask, who, its: ask(who.session_id),
    branch_queries.parents_of: lambda ask, who, its: ask(who.session_id, [(0, 2)]),
    branch_queries.place_of: lambda ask, who, its: ask(who.session_id, its.message),
    context_queries.load_outlines_on: lambda ask, who, its: ask(LINE, who.session_id, at=99),
    context_queries.load_outlines: lambda ask, who, its: ask(who.session_id, first=1, last=99),
    context_queries.load_context: lambda ask, who, its: ask(who.session_id),
    context_queries.load_newest_context: lambda ask, who, its: ask(who.session_id, items=9),
    context_queries.load_context_items: lambda ask, who, its: ask(who.session_id),
    context_queries.load_events: lambda ask, who, its: ask(who.session_id),
    message_queries.load_live_texts: lambda ask, who, its: ask(who.session_id),
    message_queries.load_imported: lambda ask, who, its: ask([who.session_id]),
    message_queries.load_message: lambda ask, who, its: ask(its.message, session_id=who.session_id),
    message_queries.load_message_rows: lambda ask, who, its: ask(who.session_id, [its.message]),
    message_queries.load_messages: lambda ask, who, its: ask(who.session_id),
    message_queries.load_messages_by_ids: lambda ask, who, its: ask([its.message], session_id=who.session_id),
    message_queries.load_messages_since: lambda ask, who, its: ask(its.message, session_id=who.session_id),
    message_queries.newest_of_user: lambda ask, who, its: ask(who.session_id, LINE, last_seq=99, limit=9),
    turn_queries.load_prompt_texts: lambda ask, who, its: ask(who.session_id, [text_digest("[]")]),
    turn_queries.load_turn: lambda ask, who, its: ask(its.turn, session_id=who.session_id),
    turn_queries.load_turns: lambda ask, who, its: ask([its.turn], session_id=who.session_id),
    context_queries.newest_call: lambda ask, who, its: ask(who.session_id),
    turn_queries.newest_model: lambda ask, who, its: ask(who.session_id),
    context_queries.newest_summary: lambda ask, who, its: ask(who.session_id),
    context_queries.replaced_items: lambda ask, who, its: ask(
        who.session_id, [message.id for message in message_queries.load_messages(who.session_id)]
    ),
    turn_queries.running_preview_calls: lambda ask, who, its: ask(who.session_id, before=timezone.now()),
    turn_queries.running_file_calls: lambda ask, who, its: ask(who.session_id, its.file),
    turn_queries.running_summary_calls: lambda ask, who, its: ask(who.session_id, its.run),
    turn_queries.open_turn: lambda ask, who, its: ask(who.session_id),
    message_queries.seq_of_message: lambda ask, who, its: ask(its.message, session_id=who.session_id),
    message_queries.seqs_on_path: lambda ask, who, its: ask(who.session_id, LINE),
    message_queries.seqs_of_messages: lambda ask, who, its: ask([its.message], session_id=who.session_id),
    message_queries.seqs_of_session: lambda ask, who, its: ask(who.session_id),
    context_queries.items_off: lambda ask, who, its: ask(OTHER, who.session_id, [its.message]),
    context_queries.load_spans: lambda ask, who, its: ask(who.session_id),
    page_branches.seq_before: lambda ask, who, its: ask(who.session_id, 3, LINE),
    page_branches.has_later: lambda ask, who, its: ask(who.session_id, 1, LINE),
    page_branches.load_parent_id: lambda ask, who, its: ask(who.session_id, its.message),
    page_branches.load_question_id: lambda ask, who, its: ask(who.session_id, its.message),
    context_queries.standing_items: lambda ask, who, its: ask(who.session_id, [its.summary]),
    # Of a person it has what was deleted too: it was paid for.
    spending_store.load_paid_calls: lambda ask, who, its: ask(session_id=who.session_id),
    turn_queries.usage_of_files: lambda ask, who, its: ask(who.session_id),
    turn_queries.usage_of_session: lambda ask, who, its: ask(who.session_id),
    timeline_queries.context_changes_beside: lambda ask, who, its: ask(who.session_id, at=4),
    timeline_queries.count_context: lambda ask, who, its: ask(who.session_id, at=NOW, path=None),
    timeline_queries.load_context_change: lambda ask, who, its: [
        ask(who.session_id, verb, at=at, limit=9)
        for verb, at in (("added", 3), ("removed", _removed_at(who.session_id)))
    ],
    timeline_queries.load_context_page: lambda ask, who, its: ask(who.session_id, at=NOW, path=None, offset=0, limit=9),
    timeline_queries.load_context_summaries: lambda ask, who, its: ask(who.session_id, at=NOW, path=None),
    timeline_queries.load_event_heading: lambda ask, who, its: ask(who.session_id, 5),
    timeline_queries.load_heading: lambda ask, who, its: ask(who.session_id),
    timeline_queries.sum_message_tokens: lambda ask, who, its: ask(who.session_id, at=NOW, path=None),
    transcript.list_children: lambda ask, who, its: ask(who.session_id),
    transcript.load_chunk: lambda ask, who, its: ask(who.session_id),
    transcript.load_message: lambda ask, who, its: ask(who.session_id, its.message),
    transcript.load_piece: lambda ask, who, its: ask(who.session_id, its.tool, field="output", offset=0),
    transcript.load_records: lambda ask, who, its: ask(who.session_id, its.message, after=-1),
    transcript.find_seq: lambda ask, who, its: ask(who.session_id, its.message),
    transcript.load_said: lambda ask, who, its: ask(who.session_id, its.message),
    transcript.load_spoken_text: lambda ask, who, its: ask(who.session_id, its.message),
    transcript.load_whole_text: lambda ask, who, its: ask(who.session_id, its.tool, field="output"),
    compaction_queries.applied_with: lambda ask, who, its: ask(its.preview, session_id=who.session_id),
    compaction_queries.covering_summaries: lambda ask, who, its: ask(who.session_id, [1, 2]),
    compaction_queries.is_free_to_claim: lambda ask, who, its: ask(its.run, timezone.now(), session_id=who.session_id),
    compaction_queries.ends_of_summaries: lambda ask, who, its: ask(who.session_id),
    compaction_queries.last_run: lambda ask, who, its: ask(who.session_id),
    compaction_queries.last_summary: lambda ask, who, its: ask(who.session_id),
    compaction_queries.load_graph: lambda ask, who, its: ask(who.session_id).nodes,
    compaction_queries.load_summaries: lambda ask, who, its: ask([its.summary], session_id=who.session_id),
    compaction_queries.messages_of_slices: lambda ask, who, its: ask(who.session_id, [(its.summary, 0, 9)]),
    compaction_queries.list_runs: lambda ask, who, its: ask(who.session_id),
    compaction_queries.list_summaries: lambda ask, who, its: ask(who.session_id),
    compaction_queries.load_drafts: lambda ask, who, its: ask([its.attempt], session_id=who.session_id),
    compaction_queries.usage_of_compaction: lambda ask, who, its: ask(who.session_id).cost_micros,
    compaction_queries.compaction_micros: lambda ask, who, its: ask(who.session_id),
    compaction_queries.live_run: lambda ask, who, its: ask(who.session_id),
    compaction_queries.load_run: lambda ask, who, its: ask(its.run, session_id=who.session_id),
    compaction_queries.spans_of_summaries: lambda ask, who, its: ask([its.summary], session_id=who.session_id),
    compaction_queries.load_summary_entries: lambda ask, who, its: ask({its.summary: 1}, session_id=who.session_id),
    compaction_queries.load_preview_entries: lambda ask, who, its: ask({its.preview: 1}, session_id=who.session_id),
    compaction_queries.list_runs_between: lambda ask, who, its: ask(who.session_id, first=0, last=None),
    compaction_queries.compacted_after: lambda ask, who, its: ask(who.session_id, newest=9),
    compaction_queries.list_runs_after: lambda ask, who, its: ask(who.session_id, 0, 9, with_live=True),
    compaction_queries.runs_that_pruned: lambda ask, who, its: ask(who.session_id, range(1, 200)),
    compaction_queries.tally_runs: lambda ask, who, its: ask(who.session_id)["total"],
    compaction_queries.count_summaries: lambda ask, who, its: ask(who.session_id),
    compaction_queries.load_heads: lambda ask, who, its: ask([its.summary], session_id=who.session_id),
    compaction_queries.load_reply: lambda ask, who, its: ask(its.attempt, session_id=who.session_id),
    compaction_queries.attempts_of_calls: lambda ask, who, its: ask([its.asked], session_id=who.session_id),
    compaction_queries.load_attempts: lambda ask, who, its: ask(its.summary, session_id=who.session_id, limit=9),
    compaction_queries.load_facts: lambda ask, who, its: ask([its.fact], session_id=who.session_id),
    compaction_queries.load_standing_facts: lambda ask, who, its: ask(
        who.session_id, at=9_999, path=None, limit=9, projects=None
    ),
    claims.unaligned_summaries: lambda ask, who, its: ask(who.session_id, method="words.0"),
    claims.is_aligned: lambda ask, who, its: ask(its.summary, session_id=who.session_id),
    fact_queries.count_facts: lambda ask, who, its: ask(who.session_id),
    fact_queries.list_facts: lambda ask, who, its: ask(who.session_id),
    fact_queries.every_fact: lambda ask, who, its: ask(who.session_id),
    fact_queries.load_fact: lambda ask, who, its: ask(its.fact, session_id=who.session_id),
    context.load_ranges: lambda ask, who, its: ask(who.session_id, [(1, 9)]),
    timeline_queries.list_timeline: lambda ask, who, its: ask(who.session_id, timeline_queries.TurnFilter()),
    timeline_queries.load_turn_line: lambda ask, who, its: ask(who.session_id, its.turn),
    timeline_queries.place_of_message: lambda ask, who, its: ask(who.session_id, 10**6),
    timeline_queries.tally_session: lambda ask, who, its: ask(who.session_id).turns,
    timeline_queries.tools_of_session: lambda ask, who, its: ask(who.session_id),
    timeline_queries.turns_beside: lambda ask, who, its: ask(who.session_id, 1),
    timeline_queries.id_of_message: lambda ask, who, its: ask(who.session_id, 1),
    timeline_queries.load_context_spans: lambda ask, who, its: ask(who.session_id, at=10**6, path=None),
    timeline_queries.load_stay: lambda ask, who, its: ask(who.session_id, its.summary),
    timeline_queries.spans_out_of_context: lambda ask, who, its: ask(who.session_id, first=0, last=None),
    compaction_queries.cover: lambda ask, who, its: ask(who.session_id).messages,
    compaction_queries.trace_message: lambda ask, who, its: ask(its.first, session_id=who.session_id),
    context.build_context: lambda ask, who, its: ask(who.session_id).payload,
    context.load_frame: lambda ask, who, its: ask(who.session_id),
    context.load_meter: lambda ask, who, its: ask(who.session_id).used_tokens,
    context.load_state: lambda ask, who, its: ask(who.session_id),
}
"""Told which session, after an endpoint has looked whose it is."""

NOT_SCOPED: dict[Query, str] = {
    branch_queries.in_stretches: "it reads nothing",
    transcript.numbers_of: "it reads nothing",
    branch_queries.path_in: "its caller has loaded the session",
    branch_queries.rows_on: "its caller has chosen the session of the rows",
    context_queries.select_context: "its caller has loaded the session",
    **dict.fromkeys(
        (page_branches.shown_branch, page_branches.with_message, page_branches.asked_branch),
        "their caller has loaded the session",
    ),
    **dict.fromkeys((page_branches.with_versions, page_branches.versions_at_end), "they read nothing"),
    branch_queries.path_through: "its caller has loaded the session",
    claims.tally: "it reads nothing",
    **dict.fromkeys(
        (claims.request_alignment, claims.align, claims.align_summary), "for workers, who work at everybody's summaries"
    ),
    **dict.fromkeys((manifests.load_manifest, manifests.with_manifests), "their caller has loaded the calls"),
    **dict.fromkeys((manifests.shown_beside, manifests.newest_beside), "their caller has loaded the sessions"),
    spending_store.activity_of: "for staff: tests/sessions_app/test_activity.py",
    ranked.read_beside: "reads no rows",
    **dict.fromkeys(
        (vector_store.embed, vector_store.longest_text, vector_store.text_of, vector_store.is_queued), "read no rows"
    ),
    **dict.fromkeys((vector_store.fill, vector_store.fill_or_log), "for workers, who read everybody's messages"),
    claims.load_claims: "the summary was loaded for the caller",
    fact_queries.facts_reaching: "whose facts it finds: tests/compaction_app/facts/test_held_facts.py",
    compaction_queries.held_facts: "it reads nothing by itself",
    compaction_queries.reaches: "it reads nothing",
    compaction_queries.still_held: "it reads nothing by itself",
    session_queries.last_model: "whose sessions it looks into: tests/sessions_app/pages/test_session_list.py",
    session_queries.has_imports: "whose sessions it looks into: tests/sessions_app/pages/test_new_chat.py",
    session_queries.with_sub_agents: "its callers name the sessions of one person",
    session_queries.list_pinned: "whose sessions it lists: tests/sessions_app/pages/test_sidebar.py",
    session_queries.load_trashed: "whose sessions it finds: tests/agents_app/sessions/test_trash.py",
    session_queries.temporary_among: "its callers name the sessions of one person",
    session_queries.silent_temporary_chats: "for the sweep: a session and no one's name",
    session_queries.has_been_silent: "the sweep has found the session",
    session_queries.trashed_with: "its caller has found the session by its owner",
    session_queries.imported_since: "it reads nothing by itself",
    sharing.open_share: "to whom it shows what: tests/sessions_app/pages/test_shares.py",
    sharing.revoke_share: "whose it revokes: tests/sessions_app/pages/test_shares.py",
    ratings.rate_answer: "whose it rates: tests/sessions_app/record/test_ratings.py",
    ratings.current_ratings: "the condition of its caller says whose",
    ratings.thumb_of: "a column of its caller's query",
    sharing.share_session: "whose it shares: tests/sessions_app/pages/test_shares.py",
    transcript.as_shared: "it reads nothing",
    transcript.check_shared: "its caller has opened a share of the session: tests/sessions_app/pages/test_shares.py",
    transcript.shows_file: "its caller has opened a share of the session: tests/sessions_app/pages/test_shares.py",
    fact_queries.find_reflection: "for workers, who work at everybody's reflections",
    fact_queries.forgotten_reflections: "for workers, who work at everybody's reflections",
    turn_queries.running_reflection_calls: "the reflection is one that this process works at",
    compaction_queries.within_summary: "its caller has loaded the summary",
    session_queries.forks_of_import: "its caller has found the session by its owner",
    **dict.fromkeys(
        (turn_queries.find_beginnings, session_queries.newest_through_gateway),
        "whose they find: tests/agents_app/endpoints/gateway/test_gateway.py",
    ),
    **dict.fromkeys(
        (
            *(session_queries.gateway_family, turn_queries.load_last_body, turn_queries.stop_sequence_of),
            *(turn_queries.count_kept_for_an_hour, message_queries.find_calls),
        ),
        "their caller has found the session by its owner",
    ),
    message_queries.find_answer: "its caller has found the sessions by their owner",
    message_queries.end_of_request: "its caller has found the turn by its owner",
    turn_queries.load_body: "its caller has loaded the call",
    **dict.fromkeys(
        (
            *(turn_queries.call_of_message, turn_queries.calls_beside, turn_queries.calls_between),
            *(turn_queries.calls_over_span, turn_queries.count_turn_calls_until, turn_queries.list_headings),
            *(turn_queries.list_call_places, turn_queries.list_turn_calls, turn_queries.load_headings),
            *(turn_queries.turn_calls_from, turn_queries.branches_of_calls, turn_queries.manifests_from),
            *(turn_queries.models_of_calls, turn_queries.numbers_of_calls, turn_queries.sizes_of_calls),
            *(context_queries.list_tombstones, context_queries.load_events_at, context_queries.summary_stays),
            *(context_queries.tally_tombstones, message_queries.tombstone_seqs),
            *(timeline_queries.load_steps, turn_queries.turn_seq_at),
        ),
        "the session is one that its reader may inspect",
    ),
    **dict.fromkeys(
        (context_queries.load_projection, compaction_queries.load_projection, agent_queries.load_projection),
        "the verification proves every session",
    ),
    **dict.fromkeys(
        (model_store.find_model_entry, model_store.find_users),
        "only administrators reach the forms of models",
    ),
    model_store.list_model_entries: "only administrators reach the forms of models",
    **dict.fromkeys(
        (
            *(model_store.allow_model, model_store.check_entered, model_store.check_model, model_store.create_key),
            *(model_store.enter_model, model_store.put_model, model_store.read_check, model_store.remove_model),
            *(model_store.revoke_key, model_store.settle_model, model_store.share_ratio, model_store.touch_key),
            model_store.reencrypt_keys,
            *(spending_store.check_account_limits, spending_store.put_account_limits, model_store.revoke_keys),
        ),
        "models, keys and limits are entered by administrators, and hold nothing of a session",
    ),
    **dict.fromkeys(
        (
            *(
                spending_store.lock_spending,
                spending_store.keep_sum,
                spending_store.keep_warnings,
                spending_store.add_to_sum,
            ),
        ),
        "the limits are those of a session or a person that the caller has loaded",
    ),
    **dict.fromkeys(
        (spending_store.seconds_to_wait, spending_store.count_try, spending_store.take_back_try),
        "attempts to sign in, when it is not known yet who asks",
    ),
    **dict.fromkeys(
        (spending_store.taken_by_day, spending_store.taken_by_session, spending_store.launchers_of),
        "without an owner it is the page of usage of an administrator; with one, that person's own",
    ),
    **dict.fromkeys(
        (
            *(turn_queries.begun_before, turn_queries.sum_usage, session_queries.visible_sessions),
            *(agent_queries.item_of, transcript.first_words, manifests.compared),
        ),
        "it reads nothing by itself",
    ),
    agent_queries.owners_who_left: "workers look after every run",
    **dict.fromkeys(
        (manifests.compare_calls, manifests.calls_to_compare, manifests.request_changes),
        "they are asked through load_call, which is told whose calls it may see",
    ),
    **dict.fromkeys(
        (
            agent_queries.accepted_outputs,
            agent_queries.last_item,
            agent_queries.list_items,
            agent_queries.load_item,
            agent_queries.load_items,
            agent_queries.load_results,
            agent_queries.load_attempts,
            agent_queries.seq_before,
            agent_queries.attempts_of_item,
            agent_queries.count_running,
            agent_queries.has_item_before,
            agent_queries.load_result_heads,
            agent_queries.load_attempt_heads,
            agent_queries.load_attempt_text,
            agent_queries.page_of_items,
        ),
        "the run is one that its owner has loaded, or a worker",
    ),
    **dict.fromkeys(
        (
            agent_queries.braked_until,
            agent_queries.call_ids_in_flight,
            agent_queries.forgotten_runs,
            agent_queries.has_claimable_items,
            agent_queries.has_forsaken_runs,
            agent_queries.is_output_due,
            agent_queries.live_runs,
            agent_queries.run_states,
            agent_queries.runs_without_output,
            agent_queries.sessions_of_runs,
            turn_queries.most_of_calls,
        ),
        "for workers, who work at everybody's runs",
    ),
    agent_queries.audiences_of: "who may use a server is for administrators",
    agent_queries.list_servers: "tool servers are the site's; whom they are for: tests/agents_app/tools/mcp/test_server_access.py",
    agent_queries.load_server: "tool servers are the site's",
    agent_queries.server_of: "reads no rows",
    agent_queries.waiting_sessions: "for the runner, which begins turns of everybody",
    file_queries.find_exploration: "what an explorer found in a content holds for everybody who has the same content",
    file_queries.read_of_session: "reads bytes of a content that a call of the session names, after an endpoint has looked",
    file_queries.contents_of_files: "whose files they are: tests/files_app/test_pictures.py",
    file_queries.load_renditions: "for the model of the session, whose own renditions they are",
    file_queries.is_waiting: "the file is one that the caller has just written",
    file_queries.find_media_type: "the file is one that the caller has loaded",
    file_queries.versions_of: "the file was loaded for the caller",
    file_queries.read_range: "reads what load_file_reference has found",
    file_queries.read_lines: "whose file it is: tests/files_app/test_lines.py",
    file_queries.search_file: "whose file it is: tests/files_app/test_lines.py",
    compaction_queries.completed_compactions: "part of a query of sessions, whose they are is for that query",
    **dict.fromkeys(
        (
            record_observed.named,
            record_observed.sessions_with,
            record_observed.load_course,
            record_observed.times_between,
            record_observed.list_observed,
            record_observed.load_observed,
            record_observed.observed_in_pages,
            compaction_queries.compactions_over_time,
        ),
        "everybody's, for staff who may see every record: tests/audit_app/observe/test_observe_page.py",
    ),
    search.read_filters: "reads no rows",
    search.speakers_in: "reads no rows",
    ranked.nearness: "in whose scope it looks: tests/sessions_app/search/test_meaning.py",
    ranked.read_question: "reads no rows of people",
    **dict.fromkeys(
        (
            vector_store.advance,
            vector_store.claim,
            vector_store.coverage,
            vector_store.forget_all,
            vector_store.forget_deleted,
            vector_store.keep,
            vector_store.newest_entry,
            vector_store.next_texts,
            vector_store.release,
            vector_store.sessions_behind,
        ),
        "for workers, who make vectors of everybody's messages",
    ),
    search.merged: "reads no rows",
    search.speakers_of: "the sessions are those in which a search of the caller found something",
    search.with_passages: "the hits are those of a search of the caller",
    search.condition_of: "says of which entries a scope is",
    search.hits_of: "the texts are those that a search of the caller found",
    search.messages_in: "a number: how many messages a scope has",
    search.with_texts: "the entries are those that a search of the caller found",
    session_queries.load_depth: "the session is one that its owner has loaded",
    session_queries.session_of: "says of which session something is, so that the caller can ask whose that is",
    spending_store.list_account_limits: "a list for administrators",
    **dict.fromkeys(
        (spending_store.account_limits_of, spending_store.taken_today),
        "for staff, of accounts that they may see: tests/mnesis_site/people/test_people.py",
    ),
    spending_store.load_account_limits: "of the person who asks, or for administrators",
    spending_store.load_kept: "the limits are those of a session or a person that the caller has loaded",
    turn_queries.load_call_before: "the call is one that its owner has loaded",
    message_queries.load_part_text: "the part comes from an event of the session that is followed",
    turn_queries.is_interrupted: "the turn is one that this process runs",
    turn_queries.interrupted_turns: "the turns are those that this process runs",
    turn_queries.running_calls: "the turn is one that this process runs or takes over",
    message_queries.leaves_open: "the turn is one that this process runs or takes over",
    message_queries.unanswered_tools: "the turn is one that this process runs or takes over",
    message_queries.unfinished_messages: "the turn is one that this process runs or takes over",
    model_store.find_key: "says who asks",
    model_store.find_key_with_owner: "says who asks",
    model_store.keeps_key: "it reads nothing",
    model_store.list_stored_keys: "for the site's health, which staff see: names of models and no key",
    model_store.list_keys: "for the administrator's command",
    timeline_queries.preview_messages: "for the inspector, whose people see all; the ids are of one page",
    compaction_queries.leaves_of_messages: "the messages were found in sessions of the caller",
    message_queries.places_of_parts: "the parts were found in sessions of the caller",
    **dict.fromkeys(
        (compaction_queries.last_refill, compaction_queries.newest_compacted_by_hand),
        "their caller has loaded the session",
    ),
    turn_queries.newest_manifests: "the sessions are those of messages that its caller may see",
    turn_queries.answering_calls: "the turns are those of messages that its caller may see",
    turn_queries.calls_after: "the messages are those that its caller may see",
    turn_queries.reasons_to_wait: "the turns are those of sessions that their owner lists",
    compaction_queries.later_revisions: "the summaries are those of one session's graph",
    compaction_queries.load_sources: "the summary was loaded for the caller",
    **dict.fromkeys(
        (compaction_queries.messages_of_summaries, compaction_queries.models_of_summaries),
        "the summaries are those of one session's graph",
    ),
    compaction_queries.written_by: "the run was loaded for the caller",
    compaction_queries.run_records: "reads what the caller has chosen",
    compaction_queries.has_changed: "the run is the caller's own",
    compaction_queries.longest_wait: "for monitoring of the site: a number of seconds",
    compaction_queries.stale_runs: "for the janitor, who wakes forgotten runs",
    compaction_queries.summarised_sessions: "for the administrator's command",
    compaction_queries.describe_summary: "the summary was loaded for the caller",
    compaction_queries.expand_messages: "the summary was loaded for the caller",
    compaction_queries.expand_step: "the summary was loaded for the caller",
    context.load_sources: "the call was loaded for the caller",
    context.rebuild_payload: "the call was loaded for the caller",
    context.register_payload: "reads nothing",
    timeline_queries.error_of: "reads a row that was loaded",
    message_queries.end_columns: "maps rows and values that the caller has",
    message_queries.messages_of: "maps rows and values that the caller has",
    message_queries.part_of: "maps rows and values that the caller has",
    message_queries.prepare_part: "maps rows and values that the caller has",
    message_queries.prepare_parts: "maps rows and values that the caller has",
    message_queries.read_json_part: "maps rows and values that the caller has",
    message_queries.usage_columns: "maps rows and values that the caller has",
    message_queries.usage_of: "maps rows and values that the caller has",
    timeline_queries.openings_of: "reads the parts that the caller has chosen",
    context.meter_of: "reads what load_state has loaded",
    context.size_of: "reads what load_state has loaded",
    context.read_newest_state: "reads the session that load_frame has loaded",
    context.read_state: "reads the session that load_frame has loaded",
}
"""Told nothing: why that is right."""


def _turn_of(message_id: str) -> str:
    return str(Message.objects.values_list("turn_id", flat=True).get(id=message_id))


def _removed_at(session_id: str) -> int:
    events = [event.seq for event in context_queries.load_events(session_id) if event.type == "context.changed"]
    return events[0] if events else 9


@pytest.fixture
def alice(db: None) -> Person:
    return person("alice")


@pytest.fixture
def bob(db: None) -> Person:
    return person("bob")


@pytest.fixture
def things(alice: Person) -> Things:
    return belongings(alice)


def name_of(query: Query) -> str:
    return f"{query.__module__}.{query.__name__}"


def all_queries() -> Iterator[Query]:
    """Every public function of the modules that read."""
    for module in MODULES:
        for name, value in inspect.getmembers(module, inspect.isfunction):
            if f"{value.__module__}.".startswith(f"{module.__name__}.") and not name.startswith("_"):
                yield value


def test_every_query_has_a_decision() -> None:
    decided = [*BY_OWNER, *BY_SESSION, *NOT_SCOPED]
    assert sorted(map(name_of, decided)) == sorted(map(name_of, all_queries()))


def what_shows(alice: Person, things: Things, answer: Any) -> list[str]:
    """What of Alice's can be read in an answer."""
    shown = repr(answer)
    return [secret for secret in (SECRET, alice.session_id, *vars(things).values()) if secret in shown]


def test_the_owner_finds_it_and_nobody_else_does(alice, bob, things):
    for query, ask in (BY_OWNER | BY_SESSION).items():
        found = ask(query, alice, things)
        assert found not in (None, "", 0, [], {}, set(), ()), name_of(query)
        try:
            elsewhere = ask(query, bob, things)
        except NotFound:
            continue
        assert elsewhere != found, name_of(query)
        assert not what_shows(alice, things, elsewhere), name_of(query)


def test_what_is_in_an_organisation_that_its_owner_left_is_not_theirs_until_they_return(alice, things):
    put_into("other", alice.owner_id)
    for query, ask in BY_OWNER.items():
        if query in OF_THE_ACCOUNT:
            continue
        try:
            found = ask(query, alice, things)
        except NotFound:
            continue
        assert not what_shows(alice, things, found), name_of(query)
    put_into("default", alice.owner_id)
    for query, ask in BY_OWNER.items():
        assert ask(query, alice, things) not in (None, "", 0, [], {}, set(), ()), name_of(query)


def test_the_same_names_in_two_organisations_are_two_things(alice, things):
    put_into("other", alice.owner_id)
    there = Person(owner_id=alice.owner_id, session_id=new_session(User.objects.get(pk=alice.owner_id)))
    others = belongings(there)
    for here, its, elsewhere, theirs in (
        (there, others, alice, things),
        (alice, things, there, others),
    ):
        for query, ask in BY_OWNER.items():
            found = repr(ask(query, here, its))
            assert query in OF_THE_ACCOUNT or not {elsewhere.session_id, *vars(theirs).values()} & {*find_ids(found)}
        put_into("default", alice.owner_id)


def test_both_directions_of_a_change_of_the_context_are_among_it(alice, things):
    for verb, at in (("added", 3), ("removed", _removed_at(alice.session_id))):
        assert timeline_queries.load_context_change(alice.session_id, verb, at=at, limit=9)[0] > 0


def test_what_is_deleted_is_its_owners_no_more(alice, things):
    for session_id in (alice.session_id, things.child, things.helper, things.fork):
        with change(session_id) as record:
            session_store.soft_delete_session(record)
    for query, ask in BY_OWNER.items():
        try:
            found = ask(query, alice, things)
        except NotFound:
            continue
        assert not what_shows(alice, things, found), name_of(query)
