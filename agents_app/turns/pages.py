"""What the page of a session changes about its branches, as plain forms and for the page's own code."""

from __future__ import annotations

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse

from agents_app.turns import branches
from agents_app.turns.comparing import ask_again, load_answered
from sessions_app.conf import list_models
from sessions_app.database.threads import waiting_for
from sessions_app.pages.branches import asked_branch
from sessions_app.pages.permissions import may_administer
from sessions_app.pages.views import model_label, reader_of, signed_in_to_change, signed_in_to_post
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


@signed_in_to_change
def ask_another(request: HttpRequest, session_id: str, message_id: str) -> HttpResponse:
    """Offer the other models for the question of an answer; post one to ask it and be told where both are compared."""
    if request.method == "POST":
        model = request.POST.get("model", "")
        places = waiting_for(ask_again)(session_id, message_id, model=model, owner_id=reader_of(request))
        return JsonResponse({"address": reverse("comparison", args=[session_id, *places])})
    answered = load_answered(session_id, message_id, owner_id=reader_of(request))
    specs = list_models(user_id=reader_of(request))
    context = {
        "session": load_session(session_id, owner_id=reader_of(request)),
        "message_id": message_id,
        "model": answered.model,
        "models": [(spec.alias, model_label(spec)) for spec in specs if spec.alias != answered.model],
        "may_add": may_administer(request, "sessions_app.add_languagemodel"),
    }
    return render(request, "agents_app/_ask_another.html", context)
