"""Having the question of an answer answered again by a model of one's choice, beside that answer."""

from __future__ import annotations

from dataclasses import dataclass

from django.utils.translation import gettext_noop

from agents_app.turns import lifecycle
from mnesis_core.errors import InvalidRequest
from mnesis_core.turns.options import TurnOptions
from sessions_app.database.threads import db
from sessions_app.pages.branches import load_question_id
from sessions_app.pages.transcript import load_message
from sessions_app.record.session_queries import load_session


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
