"""Addresses of the panels about context and compaction, of the search, and of the inspector."""

from django.urls import path

from compaction_app import search, views
from compaction_app.facts import views as facts
from compaction_app.inspector import branches, calls, messages, repair, summaries, timeline

HERE = "sessions/<str:session_id>/inspect/"
TOMBSTONES = f"{HERE}tombstones/"

urlpatterns = [
    path("sessions/<str:session_id>/context/", views.context_panel, name="session-context"),
    path("sessions/<str:session_id>/compactions/", views.compactions, name="session-compactions"),
    path("search/", search.search_page, name="search"),
    path("memory/", facts.held_facts, name="memory"),
    path("memory/rows/", facts.held_fact_rows, name="memory-rows"),
    path(HERE, timeline.timeline, name="inspect"),
    path(f"{HERE}totals/", timeline.totals, name="inspect-totals"),
    path(f"{HERE}turns/", timeline.turn_rows, name="inspect-turns"),
    path(f"{HERE}turns/<str:turn_id>/", timeline.turn, name="inspect-turn"),
    path(f"{HERE}turns/<str:turn_id>/steps/", timeline.turn_steps, name="inspect-turn-steps"),
    path(f"{HERE}compactions/<str:run_id>/", timeline.compaction, name="inspect-compaction"),
    path(f"{HERE}branches/", branches.branches, name="inspect-branches"),
    path(TOMBSTONES, messages.tombstones, name="inspect-tombstones"),
    path(f"{TOMBSTONES}rows/", messages.tombstone_rows, name="inspect-tombstone-rows"),
    path(f"{HERE}outputs/<str:part_id>/", messages.original, name="inspect-output"),
    path(f"{HERE}memory/", facts.memory, name="inspect-memory"),
    path(f"{HERE}memory/rows/", facts.memory_rows, name="inspect-memory-rows"),
    path(f"{HERE}summaries/", summaries.summaries, name="inspect-summaries"),
    path(f"{HERE}summaries/drawing.json", summaries.drawing, name="inspect-drawing"),
    path(f"{HERE}summaries/rows/", summaries.rows, name="inspect-summary-rows"),
    path(f"{HERE}summaries/messages/<int:seq>/", summaries.message, name="inspect-message"),
    path(f"{HERE}summaries/replies/<str:try_id>/", summaries.reply, name="inspect-reply"),
    path(f"{HERE}summaries/<str:summary_id>/", summaries.summary, name="inspect-summary"),
    path(f"{HERE}summaries/<str:summary_id>/sources/", summaries.sources, name="inspect-sources"),
    path(f"{HERE}summaries/<str:summary_id>/sources/<str:source_id>/", summaries.source, name="inspect-source"),
    path(f"{HERE}summaries/<str:summary_id>/missing/", summaries.missing, name="inspect-missing"),
    path(f"{HERE}previews/<str:preview_id>/", repair.preview, name="inspect-preview"),
    path("summaries/<str:summary_id>/", summaries.anywhere, name="summary"),
    path(f"{HERE}calls/", calls.call_list, name="inspect-calls"),
    path(f"{HERE}calls/at/", calls.call_at_place, name="inspect-call-at"),
    path(f"{HERE}calls/places.json", calls.call_places, name="inspect-call-places"),
    path(f"{HERE}calls/<str:call_id>/", calls.call_page, name="inspect-call"),
    path(f"{HERE}calls/<str:call_id>/blocks/<int:number>/", calls.call_block, name="inspect-block"),
    path(
        f"{HERE}calls/<str:call_id>/blocks/<int:number>/pictures/<int:place>/",
        calls.call_picture,
        name="inspect-picture",
    ),
    path(f"{HERE}calls/<str:call_id>/messages.json", calls.call_messages, name="inspect-call-messages"),
    path(f"{HERE}calls/<str:call_id>/payload/", calls.call_payload, name="inspect-payload"),
    path(f"{HERE}calls/<str:call_id>/payload.json", calls.call_payload_file, name="inspect-payload-file"),
    path(f"{HERE}messages/<str:message_id>/", messages.message_page, name="inspect-sightings"),
]
