from django.urls import path

from agents_app.maps import new_run
from agents_app.maps import views as operator_views
from agents_app.tools import pages
from agents_app.turns import default_pages, session_settings
from agents_app.turns import pages as turn_pages

ITEM = "runs/<str:run_id>/items/<int:number>/"

urlpatterns = [
    path("tools/", pages.tools, name="tools"),
    path("tools/servers/add/", pages.server_add, name="server-add"),
    path("tools/servers/<str:name>/change/", pages.server_change, name="server-change"),
    path("tools/servers/<str:name>/refresh/", pages.server_refresh, name="server-refresh"),
    path("tools/servers/<str:name>/tools/", pages.server_tools, name="server-tools"),
    path("tools/servers/<str:name>/remove/", pages.server_remove, name="server-remove"),
    path("runs/", operator_views.run_list, name="runs"),
    path("runs/rows/", operator_views.run_rows, name="run-rows"),
    path("runs/add/", new_run.run_add, name="run-add"),
    path("runs/<str:run_id>/", operator_views.run_page, name="run"),
    path("runs/<str:run_id>/progress/", operator_views.run_progress, name="run-progress"),
    path("runs/<str:run_id>/charts/", operator_views.run_charts, name="run-charts"),
    path("runs/<str:run_id>/items/", operator_views.run_items, name="run-items"),
    path(ITEM, operator_views.run_item, name="run-item"),
    path(f"{ITEM}input/", operator_views.item_input, name="run-item-input"),
    path(f"{ITEM}tries/<int:attempt>/output/", operator_views.try_output, name="run-try-output"),
    path(f"{ITEM}tries/<int:attempt>/prompt/", operator_views.try_prompt, name="run-try-prompt"),
    path("assistants/", default_pages.assistant_list, name="assistants"),
    path("assistants/add/", default_pages.assistant_add, name="assistant-add"),
    path("assistants/<str:assistant_id>/", default_pages.assistant_page, name="assistant"),
    path("assistants/<str:assistant_id>/change/", default_pages.assistant_change, name="assistant-change"),
    path("assistants/<str:assistant_id>/remove/", default_pages.assistant_remove, name="assistant-remove"),
    path("projects/<str:project_id>/settings/", default_pages.project_settings, name="project-settings"),
    path("projects/<str:project_id>/change/", default_pages.project_change, name="project-change"),
    path("sessions/<str:session_id>/settings/", session_settings.session_settings, name="session-settings"),
    path("sessions/<str:session_id>/branch/choose/", turn_pages.choose_branch, name="choose-branch"),
    path("sessions/<str:session_id>/messages/<str:message_id>/compare/", turn_pages.ask_another, name="ask-another"),
    path("sessions/<str:session_id>/runs/<str:part_id>/", operator_views.part_runs, name="part-runs"),
]
