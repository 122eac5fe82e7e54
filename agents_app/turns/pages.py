"""What the page of a session changes about its branches, as a plain form and for the page's own code."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect
from django.urls import reverse

from agents_app.turns import branches
from sessions_app.pages.branches import asked_branch
from sessions_app.pages.views import reader_of, signed_in_to_post
from sessions_app.record.session_queries import load_session


@signed_in_to_post
def choose_branch(request: HttpRequest, session_id: str) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    number, seq = asked_branch(session, request.POST)
    branches.choose_branch(session.id, number, owner_id=reader_of(request))
    if request.accepts("text/html"):
        here = reverse("session", args=[session.id])
        return redirect(f"{here}?at={seq}" if seq else here)
    return JsonResponse({"branch": number, "seq": seq})
