"""The page that brings files in, and how far an import is."""

from __future__ import annotations

from typing import Any

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from audit_app.imports import Import, follow_import
from sessions_app.conf import default_model, list_models, site_config
from sessions_app.queries import titles_of
from sessions_app.relatives import shown_title
from sessions_app.rendering import format_size, show_invisible
from sessions_app.views import model_label, reader_of, signed_in

MOST_SHOWN = 200
"""Sessions of one import."""


@signed_in
def import_page(request: HttpRequest) -> HttpResponse:
    """A place to drop files."""
    return render(request, "audit_app/import.html", _choices(request))


@signed_in
def import_status(request: HttpRequest, import_id: str) -> HttpResponse:
    """How far one import is: a page of its own, or the part of one that htmx asks for."""
    shown = _shown(follow_import(import_id, owner_id=reader_of(request)))
    if "HX-Request" in request.headers:
        return render(request, "audit_app/_import.html", shown)
    return render(request, "audit_app/import.html", _choices(request) | shown)


def _choices(request: HttpRequest) -> dict[str, Any]:
    return {
        "models": [(spec.alias, model_label(spec)) for spec in list_models(user_id=reader_of(request))],
        "default_model": default_model(),
        "largest": site_config().files.import_bytes,
        "largest_text": format_size(site_config().files.import_bytes),
    }


def _shown(about: Import) -> dict[str, Any]:
    ids = about.session_ids[:MOST_SHOWN]
    titles = titles_of(ids, owner_id=about.owner_id) if ids else {}
    return {
        "about": about,
        "names": [show_invisible(name) for name in about.names],
        "sessions": [(id, shown_title(titles[id])) for id in ids if id in titles],
        "more_sessions": max(0, len(about.session_ids) - MOST_SHOWN),
        "notes": [show_invisible(note) for note in about.notes],
        "error": show_invisible(about.error["message"]) if about.error else "",
        "progress": f"{about.done:,} of {about.total:,}" if about.total else f"{about.done:,}",
    }
