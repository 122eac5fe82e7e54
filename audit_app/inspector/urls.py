"""Addresses of the inspector's pages about proof and health."""

from django.urls import path

from audit_app.inspector import health, ledger

LEDGER = "sessions/<str:session_id>/inspect/ledger/"

urlpatterns = [
    path("sessions/<str:session_id>/inspect/health/", health.health, name="inspect-health"),
    path(LEDGER, ledger.ledger, name="inspect-ledger"),
    path(f"{LEDGER}verification/", ledger.verification, name="inspect-verification"),
    path(f"{LEDGER}verify/", ledger.verify, name="inspect-verify"),
    path(f"{LEDGER}<str:seq>/body/", ledger.ledger_body, name="inspect-ledger-body"),
]
