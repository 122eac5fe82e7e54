"""Addresses of the inspector's pages about proof and health."""

from django.urls import path

from audit_app.inspector import health, ledger_views

LEDGER = "sessions/<str:session_id>/inspect/ledger/"

urlpatterns = [
    path("sessions/<str:session_id>/inspect/health/", health.health, name="inspect-health"),
    path(LEDGER, ledger_views.ledger, name="inspect-ledger"),
    path(f"{LEDGER}verification/", ledger_views.verification, name="inspect-verification"),
    path(f"{LEDGER}verify/", ledger_views.verify, name="inspect-verify"),
    path(f"{LEDGER}<str:seq>/body/", ledger_views.ledger_body, name="inspect-ledger-body"),
]
