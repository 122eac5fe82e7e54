"""The trash: a person's sessions that were deleted and can be restored."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render

from sessions_app.pages.views import PAGE, may_delete, reader_of, signed_in
from sessions_app.record.session_queries import list_sessions
from sessions_app.schemas import page_of, place_of, read_place


@signed_in
def trash(request: HttpRequest) -> HttpResponse:
    """Return the page, or with a cursor only the rows after it."""
    cursor = request.GET.get("cursor", "")
    found = list_sessions(
        owner_id=reader_of(request), archived=None, trashed=True, before=read_place(cursor or None), limit=PAGE + 1
    )
    page = page_of(found, PAGE, lambda session: place_of(session.updated_at, session.id))
    context = {
        "sessions": page["items"],
        "next_cursor": page["next_cursor"] or "",
        "may_delete": may_delete(),
    }
    return render(request, f"sessions_app/list/{'_trash_rows' if cursor else 'trash'}.html", context)
