"""What the page of a session changes about its branches, as plain forms and for the page's own code; and an answer
beside another.
"""

from __future__ import annotations

from dataclasses import dataclass

from django.http import HttpRequest, HttpResponse, JsonResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext_noop

from agents_app.turns import branches, lifecycle
from mnesis_core.errors import InvalidRequest
from mnesis_core.turns.options import TurnOptions
from sessions_app.conf import list_models
from sessions_app.database.threads import db, waiting_for
from sessions_app.pages.branches import asked_branch, load_question_id
from sessions_app.pages.permissions import may_administer
from sessions_app.pages.transcript import load_message
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


# Having the question of an answer answered again by a model of one's choice, beside that answer.


@dataclass(frozen=True, slots=True, kw_only=True)
class Answered:
    """An answer, and the message of a user that it answers."""

    question_id: str
    question_seq: int
    branch: int  # of the answer
    model: str


def load_answered(session_id: str, message_id: str, *, owner_id: int) -> Answered:
    """:raises SessionNotFoundError: there is no such session, or it belongs to another person.
    :raises MessageNotFoundError: the session has no such message, or nobody asked for it.
    :raises InvalidRequest: the message is no answer.
    """
    load_session(session_id, owner_id=owner_id)
    answer = load_message(session_id, message_id)
    if answer.role != "assistant":
        raise InvalidRequest(gettext_noop("only an answer can be compared with another one"), field="message_id")
    question = load_message(session_id, load_question_id(session_id, answer.id))
    return Answered(question_id=question.id, question_seq=question.seq, branch=answer.branch, model=answer.model)


async def ask_again(session_id: str, message_id: str, *, model: str, owner_id: int) -> tuple[int, int, int]:
    """Ask a model the question of an answer; return the question's number, and the branches of both answers.

    :raises InvalidRequest: the message is no answer, or no model is named.
    """
    answered = await db(load_answered, session_id, message_id, owner_id=owner_id)
    if not model:
        raise InvalidRequest(gettext_noop("choose a model"), field="model")
    await lifecycle.start_turn(
        session_id,
        owner_id=owner_id,
        message=None,
        parent_id=answered.question_id,
        options=TurnOptions(model=model),
    )
    # The turn has the session, so no other branch can be chosen before it ends.
    session = await db(load_session, session_id, owner_id=owner_id)
    return answered.question_seq, answered.branch, session.branch
