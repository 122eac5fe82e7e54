"""Addresses of the session pages and their parts."""

from django.urls import path

from sessions_app.llm import catalogue as model_views
from sessions_app.llm import keys
from sessions_app.llm import usage as usage_views
from sessions_app.pages import comparison, frames, help, navigation, new_chat, shares, views

COMPARISON = "sessions/<str:session_id>/compare/<int:question>/<int:left>/<int:right>/"
MODEL = "models/<path:alias>"

urlpatterns = [
    path("", new_chat.new_chat, name="new-chat"),
    path("first-steps/hide/", new_chat.hide_first_steps, name="hide-first-steps"),
    path("sessions/", views.session_list, name="session-list"),
    path("sessions/rows/", views.session_rows, name="session-rows"),
    path("sessions/states/", views.session_states, name="session-states"),
    path("sessions/palette/", navigation.palette, name="palette"),
    path("sessions/sidebar/", navigation.sidebar_rows, name="sidebar-rows"),
    path("sessions/sidebar/states/", navigation.sidebar_states, name="sidebar-states"),
    path("sessions/<str:session_id>/sidebar/", navigation.sidebar_sub_agents, name="sidebar-sub-agents"),
    path("sessions/<str:session_id>/row/", views.session_row, name="session-row"),
    path("sessions/<str:session_id>/menu/", views.session_menu, name="session-menu"),
    path("sessions/<str:session_id>/project/", navigation.session_project, name="session-project"),
    path("sessions/<str:session_id>/move/", navigation.move_session, name="session-move"),
    path("prompts/", new_chat.prompts, name="prompts"),
    path("prompts/<str:prompt_id>/", new_chat.prompt, name="prompt"),
    path("projects/", navigation.projects, name="projects"),
    path("projects/<str:project_id>/", navigation.project, name="project"),
    path("trash/", navigation.trash, name="trash"),
    path("keys/", keys.own_keys, name="keys"),
    path("keys/<str:prefix>/revoke/", keys.revoke, name="key-revoke"),
    path("shares/", shares.own_shares, name="shares"),
    path("sessions/<str:session_id>/shares/", shares.session_shares, name="session-shares"),
    path("shared/<str:token>/", shares.shared_page, name="shared"),
    path("shared/<str:token>/messages/", shares.shared_messages, name="shared-messages"),
    path("shared/<str:token>/parts/<str:part_id>/<str:field>/", shares.shared_text, name="shared-text"),
    path("shared/<str:token>/parts/<str:part_id>/<str:field>/raw/", shares.shared_raw, name="shared-raw"),
    path("frames/diagram/", frames.diagram_frame, name="diagram-frame"),
    path("frames/preview/", frames.preview_frame, name="preview-frame"),
    path("models/", model_views.models, name="models"),
    path("models/known/", model_views.known_models, name="models-known"),
    path("models/add/", model_views.model_add, name="model-add"),
    path(f"{MODEL}/change/", model_views.model_change, name="model-change"),
    path(f"{MODEL}/check/", model_views.model_check, name="model-check"),
    path(f"{MODEL}/remove/", model_views.model_remove, name="model-remove"),
    path("help/", help.help_index, name="help"),
    path("help/<path:name>/", help.help_page, name="help-page"),
    path("usage/", usage_views.usage, name="usage"),
    path("usage/rows.csv", usage_views.usage_csv, name="usage-csv"),
    path("sessions/<str:session_id>/", views.session_page, name="session"),
    path("sessions/<str:session_id>/branch/", views.branch, name="session-branch"),
    path(COMPARISON, comparison.comparison, name="comparison"),
    path(f"{COMPARISON}answers/", comparison.comparison_answers, name="comparison-answers"),
    path("sessions/<str:session_id>/messages/", views.message_chunk, name="session-messages"),
    path("sessions/<str:session_id>/messages/<str:message_id>/", views.message, name="message"),
    path("sessions/<str:session_id>/messages/<str:message_id>/text/", views.message_text, name="message-text"),
    path("sessions/<str:session_id>/messages/<str:message_id>/said/", views.message_said, name="message-said"),
    path(
        "sessions/<str:session_id>/messages/<str:message_id>/question/", views.message_question, name="message-question"
    ),
    path("sessions/<str:session_id>/messages/<str:message_id>/records/", views.message_records, name="message-records"),
    path("sessions/<str:session_id>/parts/<str:part_id>/<str:field>/", views.part_text, name="part-text"),
    path("sessions/<str:session_id>/parts/<str:part_id>/<str:field>/raw/", views.part_raw, name="part-raw"),
]
