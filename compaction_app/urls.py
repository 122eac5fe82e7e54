"""Addresses of the panels about context and compaction."""

from django.urls import path

from compaction_app import views

urlpatterns = [
    path("sessions/<str:session_id>/context/", views.context_panel, name="session-context"),
    path("sessions/<str:session_id>/compactions/", views.compactions, name="session-compactions"),
    path("summaries/<str:summary_id>/", views.summary, name="summary"),
]
