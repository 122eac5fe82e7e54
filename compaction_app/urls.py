"""Addresses of the panels about context and compaction, of the search, and of the inspector."""

from django.urls import path

from compaction_app import search, views
from compaction_app.inspector import call_views, messages, summary_views, timeline, tombstones

HERE = "sessions/<str:session_id>/inspect/"
TOMBSTONES = f"{HERE}tombstones/"

urlpatterns = [
    path("sessions/<str:session_id>/context/", views.context_panel, name="session-context"),
    path("sessions/<str:session_id>/compactions/", views.compactions, name="session-compactions"),
    path("search/", search.search_page, name="search"),
    path(HERE, timeline.timeline, name="inspect"),
    path(f"{HERE}totals/", timeline.totals, name="inspect-totals"),
    path(f"{HERE}turns/", timeline.turn_rows, name="inspect-turns"),
    path(f"{HERE}turns/<str:turn_id>/", timeline.turn, name="inspect-turn"),
    path(f"{HERE}turns/<str:turn_id>/steps/", timeline.turn_steps, name="inspect-turn-steps"),
    path(f"{HERE}compactions/<str:run_id>/", timeline.compaction, name="inspect-compaction"),
    path(TOMBSTONES, tombstones.tombstones, name="inspect-tombstones"),
    path(f"{TOMBSTONES}rows/", tombstones.tombstone_rows, name="inspect-tombstone-rows"),
    path(f"{HERE}outputs/<str:part_id>/", tombstones.original, name="inspect-output"),
    path(f"{HERE}summaries/", summary_views.summaries, name="inspect-summaries"),
    path(f"{HERE}summaries/drawing.json", summary_views.drawing, name="inspect-drawing"),
    path(f"{HERE}summaries/rows/", summary_views.rows, name="inspect-summary-rows"),
    path(f"{HERE}summaries/messages/<int:seq>/", summary_views.message, name="inspect-message"),
    path(f"{HERE}summaries/replies/<str:try_id>/", summary_views.reply, name="inspect-reply"),
    path(f"{HERE}summaries/<str:summary_id>/", summary_views.summary, name="inspect-summary"),
    path(f"{HERE}summaries/<str:summary_id>/sources/", summary_views.sources, name="inspect-sources"),
    path(f"{HERE}summaries/<str:summary_id>/sources/<str:source_id>/", summary_views.source, name="inspect-source"),
    path("summaries/<str:summary_id>/", summary_views.anywhere, name="summary"),
    path(f"{HERE}calls/", call_views.call_list, name="inspect-calls"),
    path(f"{HERE}calls/at/", call_views.call_at_place, name="inspect-call-at"),
    path(f"{HERE}calls/<str:call_id>/", call_views.call_page, name="inspect-call"),
    path(f"{HERE}calls/<str:call_id>/blocks/<int:number>/", call_views.call_block, name="inspect-block"),
    path(f"{HERE}calls/<str:call_id>/payload/", call_views.call_payload, name="inspect-payload"),
    path(f"{HERE}calls/<str:call_id>/payload.json", call_views.call_payload_file, name="inspect-payload-file"),
    path(f"{HERE}messages/<str:message_id>/", messages.message_page, name="inspect-sightings"),
]
