"""Addresses of the session pages and their parts."""

from django.urls import path

from sessions_app import views

urlpatterns = [
    path("", views.session_list, name="session-list"),
    path("sessions/", views.session_rows, name="session-rows"),
    path("sessions/<str:session_id>/", views.session_page, name="session"),
    path("sessions/<str:session_id>/messages/", views.message_chunk, name="session-messages"),
    path("sessions/<str:session_id>/messages/<str:message_id>/", views.message, name="message"),
    path("sessions/<str:session_id>/messages/<str:message_id>/text/", views.message_text, name="message-text"),
    path("sessions/<str:session_id>/messages/<str:message_id>/records/", views.message_records, name="message-records"),
    path("sessions/<str:session_id>/parts/<str:part_id>/<str:field>/", views.part_text, name="part-text"),
    path("sessions/<str:session_id>/parts/<str:part_id>/<str:field>/raw/", views.part_raw, name="part-raw"),
]
