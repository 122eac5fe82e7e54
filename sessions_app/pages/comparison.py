"""Two answers to one question side by side.

Answers to one question are siblings in the tree of a session's messages, whether they came from asking again or from
asking another model. So a comparison has no rows of its own: it is a question and two branches that begin after it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from django.db.models import Min
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext as _

from mnesis_core.context.branches import END, Branch, Path, Stretch, branches_through, versions_after
from mnesis_core.errors import BranchNotFoundError
from mnesis_core.records import SessionRecord, TurnRecord, TurnState
from sessions_app.models import Message
from sessions_app.pages import transcript
from sessions_app.pages.formats import format_duration
from sessions_app.pages.markdown import show_invisible, shown_title
from sessions_app.pages.transcript import MessageView, numbers_of
from sessions_app.pages.views import reader_of, signed_in
from sessions_app.record.branch_queries import load_branches
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import list_turns, load_turn


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerView:
    """An answer to a question, which is all messages of one turn, among the answers to the same one."""

    branch: int
    version: int  # its place among the versions of what follows the question, from 1
    place: int  # among the answers
    count: int
    previous: int | None  # the branches of the answers beside it, without the one it is compared with
    next: int | None
    messages: Sequence[MessageView]
    turn: TurnRecord | None  # None where a turn ended before it said anything, and others followed
    is_chosen: bool  # whether the conversation goes on with it
    asked_by: str = ""  # the id of a message, of the other answer if it has any, by which the question is asked again

    @property
    def model(self) -> str:
        """The model that answered, which may be another one than the turn was to ask."""
        asked = show_invisible(self.turn.model) if self.turn else ""
        return (self.messages[-1].model if self.messages else "") or asked or _("Unknown model")

    @property
    def state(self) -> str:
        return self.turn.state if self.turn else "failed"

    @property
    def is_open(self) -> bool:
        return self.state in (TurnState.RUNNING, TurnState.SUSPENDED)

    @property
    def did_not_complete(self) -> bool:
        return not self.is_open and self.state != TurnState.COMPLETED

    @property
    def first_seq(self) -> int | None:
        return self.messages[0].seq if self.messages else None

    @property
    def message_id(self) -> str:
        """A message by which the question can be asked again; empty as long as nothing is said."""
        return self.messages[-1].id if self.messages else ""

    @property
    def numbers(self) -> list[str]:
        """Tokens, cost and duration of the whole turn."""
        if self.turn is None or self.turn.ended_at is None:
            return []
        seconds = (self.turn.ended_at - self.turn.created_at).total_seconds()
        return [*numbers_of(self.turn.usage), *([format_duration(seconds)] if seconds > 0 else [])]


@signed_in
def comparison(request: HttpRequest, session_id: str, question: int, left: int, right: int) -> HttpResponse:
    """Show two answers to a question, the number of a message, by the branches that they begin."""
    session = load_session(session_id, owner_id=reader_of(request))
    context = _context(session, question, left, right) | {
        "title": shown_title(session.title),
        "question": transcript.load_chunk(session.id, after=question - 1, limit=1)[0],
    }
    return render(request, "sessions_app/comparison/comparison.html", context)


@signed_in
def comparison_answers(request: HttpRequest, session_id: str, question: int, left: int, right: int) -> HttpResponse:
    session = load_session(session_id, owner_id=reader_of(request))
    return render(request, "sessions_app/comparison/_answers.html", _context(session, question, left, right))


def _context(session: SessionRecord, question: int, left: int, right: int) -> dict[str, Any]:
    branches = load_branches(session.id)
    # Those on which the question is answered, or will be, in the order in which they were begun.
    versions = versions_after(branches.values(), question)
    rows = Message.objects.filter(session_id=session.id, branch__in=versions, seq__gt=question).order_by()
    earliest = rows.values("branch").annotate(first=Min("seq")).values("first")
    said = set(rows.filter(seq__in=earliest).exclude(role="assistant").values_list("branch", flat=True))
    answers = [branch for branch in versions if branch not in said]
    for branch in (left, right):
        if branch not in answers or left == right:
            raise BranchNotFoundError(branch=branch)
    first = _view(session, branches, question, answers, branch=left, beside=right)
    second = _view(session, branches, question, answers, branch=right, beside=left)
    pair = (
        replace(first, asked_by=second.message_id or first.message_id),
        replace(second, asked_by=first.message_id or second.message_id),
    )
    return {"session": session, "question_seq": question, "left": left, "right": right, "answers": pair}


def _view(
    session: SessionRecord,
    branches: Mapping[int, Branch],
    question: int,
    answers: Sequence[int],
    *,
    branch: int,
    beside: int,
) -> AnswerView:
    path = Path((Stretch(branch, question + 1, END),))
    messages = transcript.load_chunk(session.id, after=question, path=path)
    others = [other for other in answers if other != beside]
    place = others.index(branch)
    return AnswerView(
        branch=branch,
        version=versions_after(branches.values(), question).index(branch) + 1,
        place=answers.index(branch) + 1,
        count=len(answers),
        previous=others[place - 1] if place else None,
        next=others[place + 1] if place + 1 < len(others) else None,
        messages=[message for message in messages if message.turn_id == messages[0].turn_id],
        turn=_turn_of(session, branch, messages),
        is_chosen=session.branch in branches_through(branches, branch, question),
    )


def _turn_of(session: SessionRecord, branch: int, messages: Sequence[MessageView]) -> TurnRecord | None:
    if messages:
        return load_turn(messages[0].turn_id, session_id=session.id)
    newest = next(iter(list_turns(session.id, limit=1)), None)
    return newest if newest and branch == session.branch and not newest.message_ids else None
