"""Addresses of the pages that look at everything, or bring it in, and of the inspector's pages about proof and health."""

from django.urls import include, path

from audit_app import api

urlpatterns = [
    path("import/", api.import_page, name="import"),
    path("import/<str:import_id>/", api.import_status, name="import-status"),
    path("", include("audit_app.inspector.urls")),
]
