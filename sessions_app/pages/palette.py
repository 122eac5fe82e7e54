"""The palette: pages and actions, and sessions by their titles, chosen with the keyboard (Ctrl+K)."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from mnesis_core.text import printable
from sessions_app.pages.views import reader_of, signed_in, temporary_hours
from sessions_app.record.session_queries import list_sessions

MOST = 8


@signed_in
def palette(request: HttpRequest) -> HttpResponse:
    """Return the dialog with the newest sessions, or with ``q`` only the sessions whose titles contain it, archived ones too."""
    query = printable(request.GET.get("q", "").strip())
    archived = None if query else False
    sessions = list_sessions(owner_id=reader_of(request), archived=archived, sub_agents=False, query=query, limit=MOST)
    part = "_sessions" if "q" in request.GET else "_palette"
    context = {"sessions": sessions, "temporary_hours": temporary_hours()}
    return render(request, f"sessions_app/palette/{part}.html", context)
