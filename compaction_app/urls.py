"""Addresses of the panels about context and compaction, and of the inspector."""

from django.urls import include, path

from compaction_app import search, views

urlpatterns = [
    path("sessions/<str:session_id>/context/", views.context_panel, name="session-context"),
    path("sessions/<str:session_id>/compactions/", views.compactions, name="session-compactions"),
    path("search/", search.search_page, name="search"),
    path("", include("compaction_app.inspector.urls")),
]
