"""The branches of a session: beginning one by what is said after an earlier message, and choosing which one goes on."""

from __future__ import annotations

from django.utils.translation import gettext_noop

from mnesis_core.context.branches import ROOT
from mnesis_core.errors import BranchNotFoundError, InvalidRequest, MessageNotFoundError, SessionBusy
from sessions_app.record import branch_queries, session_store
from sessions_app.record.change import Change, change
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import open_turn
from sessions_app.schemas import Out


class BranchOut(Out):
    """A line of messages; branch 0 begins with the session."""

    number: int
    is_chosen: bool  # whether the next message continues it
    parent: int | None  # the branch that it leaves; null where it begins before the first message
    after_message_id: str | None  # the message that it begins after
    last_message_id: str | None  # null while nothing was said on it
    messages: int  # its own, without those before it


class BranchList(Out):
    items: list[BranchOut]


def list_branches(session_id: str, *, owner_id: int) -> list[BranchOut]:
    """Return every branch of a session, branch 0 first.

    :raises SessionNotFoundError: there is no such session, or it belongs to another person.
    """
    session = load_session(session_id, owner_id=owner_id)
    branches = branch_queries.load_branches(session_id)
    ends = branch_queries.ends_of_branches(session_id)
    beginnings = branch_queries.ids_at(session_id, [branch.after_seq for branch in branches.values()])
    views = []
    for number in range(session.branch_seq + 1):
        branch = branches.get(number)
        after = beginnings.get(branch.after_seq) if branch else None
        last, messages = ends.get(number, (None, 0))
        views.append(
            BranchOut(
                number=number,
                is_chosen=number == session.branch,
                parent=branch.parent if branch and after else None,
                after_message_id=after,
                last_message_id=last,
                messages=messages,
            )
        )
    return views


def choose_branch(session_id: str, number: int, *, owner_id: int) -> None:
    """Let a branch be the one that the next message continues; choosing the chosen one again changes nothing.

    :raises BranchNotFoundError: the session has no such branch.
    :raises SessionBusy: a turn is running on the chosen one, or waits.
    :raises SessionArchived: the session takes no more turns.
    """
    if not 0 <= number <= load_session(session_id, owner_id=owner_id).branch_seq:
        raise BranchNotFoundError(branch=number)
    with change(session_id) as record:
        if number != record.branch and (turn := open_turn(session_id)):
            raise SessionBusy(session_id=session_id, turn_id=turn[0], state=turn[1])
        session_store.choose_branch(record, number)


def continue_after(record: Change, message_id: str, *, says_nothing: bool = False) -> None:
    """Choose the branch that ends with a message, or begin one after it; ``root`` is the place before the first message.

    The caller claims a turn in the same change, which refuses a session that is busy.

    :param says_nothing: the turn has no message of its own: it answers this one again
    :raises InvalidRequest: a turn that says nothing can only answer what a user said.
    :raises MessageNotFoundError: the session has no such message.
    :raises SessionArchived: the session takes no more turns.
    """
    if message_id == ROOT:
        if says_nothing:
            raise InvalidRequest(
                gettext_noop("there is nothing to answer before the first message; send one"), field="message"
            )
        if record.message_seq:
            session_store.choose_branch(record, session_store.begin_branch(record, parent=0, after_seq=0))
        return
    place = branch_queries.place_of(record.session_id, message_id)
    if place is None:
        raise MessageNotFoundError(message_id=message_id)
    branch, seq, role, last = place
    if says_nothing and role != "user":
        raise InvalidRequest(
            gettext_noop("send a message, or name one of a user to have it answered again"), field="message"
        )
    if seq < last:
        branch = session_store.begin_branch(record, parent=branch, after_seq=seq)
    session_store.choose_branch(record, branch)
