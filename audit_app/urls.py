"""Addresses of the import, of evaluations, and of the inspector's pages about proof and health."""

from django.urls import path

from audit_app import api, health, ledger
from audit_app.evaluation import views as evaluations
from audit_app.observe import views as observe

INSPECT = "sessions/<str:session_id>/inspect"

urlpatterns = [
    path("import/", api.import_page, name="import"),
    path("import/<str:import_id>/", api.import_status, name="import-status"),
    path("observe/", observe.observe, name="observe"),
    path("observe/numbers/", observe.observe_numbers, name="observe-numbers"),
    path("observe/sessions.csv", observe.observe_csv, name="observe-csv"),
    path("observe/rows/", observe.observe_rows, name="observe-rows"),
    path("observe/views/", observe.saved_view_add, name="observe-save"),
    path("observe/views/<str:view_id>/name/", observe.saved_view_rename, name="observe-rename"),
    path("observe/views/<str:view_id>/delete/", observe.saved_view_remove, name="observe-delete"),
    path("evaluations/", evaluations.evaluation_list, name="evaluations"),
    path("evaluations/start/", evaluations.start_evaluation, name="start-evaluation"),
    path("evaluations/<str:report_id>/", evaluations.evaluation, name="evaluation"),
    path(f"{INSPECT}/health/", health.health, name="inspect-health"),
    path(f"{INSPECT}/ledger/", ledger.ledger, name="inspect-ledger"),
    path(f"{INSPECT}/ledger/verification/", ledger.verification, name="inspect-verification"),
    path(f"{INSPECT}/ledger/verify/", ledger.verify, name="inspect-verify"),
    path(f"{INSPECT}/ledger/<str:seq>/body/", ledger.ledger_body, name="inspect-ledger-body"),
]
