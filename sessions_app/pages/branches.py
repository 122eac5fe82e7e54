"""Which branch of a session a page shows, and where its messages have siblings.

A session without branches costs no query here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from django.http import QueryDict
from django.utils.formats import get_format
from django.utils.translation import gettext_noop

from mnesis_core.context.branches import (
    END,
    LINE,
    ROOT,
    Branch,
    Path,
    branches_through,
    path_to,
    siblings_of,
    versions_after,
)
from mnesis_core.errors import BranchNotFoundError, InvalidRequest, MessageNotFoundError
from mnesis_core.records import SessionRecord
from sessions_app.models import Message
from sessions_app.pages.transcript import LARGEST, MessageView, Versions
from sessions_app.record.branch_queries import load_branches, load_path, parents_of, rows_on


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownBranch:
    number: int
    is_chosen: bool  # whether the conversation goes on here; on another one people only look
    path: Path | None = None  # None in a session without branches
    branches: Mapping[int, Branch] = field(default_factory=dict)


def shown_branch(session: SessionRecord, wanted: int | None = None) -> ShownBranch:
    """Return a branch to be shown, by default the chosen one.

    :raises BranchNotFoundError: the session has no such branch.
    """
    number = session.branch if wanted is None else wanted
    if not session.branch_seq and not number:
        return ShownBranch(number=0, is_chosen=True)
    branches = load_branches(session.id)
    if number and number not in branches:
        raise BranchNotFoundError(branch=number)
    return _shown(session, number, branches)


def with_message(session: SessionRecord, shown: ShownBranch, seq: int) -> ShownBranch:
    """Return the chosen branch, or else the one of a message, in place of one that does not lead to the message."""
    if shown.path is None:
        return shown
    branch = Message.objects.filter(session_id=session.id, seq=seq).values_list("branch", flat=True).first()
    if branch is None or shown.path.has(branch, seq):
        return shown
    chosen = _shown(session, session.branch, shown.branches)
    return chosen if chosen.path and chosen.path.has(branch, seq) else _shown(session, branch, shown.branches)


def _shown(session: SessionRecord, number: int, branches: Mapping[int, Branch]) -> ShownBranch:
    path = path_to(branches, number)
    return ShownBranch(number=number, is_chosen=number == session.branch, path=path, branches=branches)


def seq_before(session_id: str, seq: int, path: Path) -> int:
    """Return the number of the message before one on a path; 0 where there is none."""
    rows = Message.objects.filter(session_id=session_id)
    return next((row.seq for row in rows_on(rows, list(path.within(1, seq - 1)), limit=1, newest=True)), 0)


def has_later(session_id: str, seq: int, path: Path) -> bool:
    rows = Message.objects.filter(session_id=session_id)
    return bool(rows_on(rows, list(path.within(seq + 1, END)), limit=1))


def with_versions(shown: ShownBranch, messages: Sequence[MessageView], *, after_seq: int) -> list[MessageView]:
    """Return messages that follow each other on a path with their places among their siblings.

    :param after_seq: the number of the message before the first of them; 0 where there is none
    """
    if shown.path is None:
        return list(messages)
    begun = siblings_of(shown.branches.values(), shown.path)
    parents = [after_seq, *(message.seq for message in messages)]
    return [
        replace(message, versions=_versions(begun.get(parent, ()), parent, message.branch))
        for parent, message in zip(parents, messages, strict=False)
    ]


def versions_at_end(shown: ShownBranch, after_seq: int) -> Versions | None:
    """Return the place of the shown branch among its siblings while nothing was said on it; ``after_seq`` is its end."""
    branch = shown.branches.get(shown.number)
    if branch is None or branch.after_seq != after_seq:
        return None
    return _versions(siblings_of(shown.branches.values(), shown.path or LINE)[after_seq], after_seq, branch.number)


def _versions(begun: Sequence[Branch], after_seq: int, branch: int) -> Versions | None:
    if not begun:
        return None
    branches = versions_after(begun, after_seq)
    place = branches.index(branch) + 1
    left = max(place - 2, 0)
    return Versions(after_seq=after_seq, place=place, count=len(branches), pair=(branches[left], branches[left + 1]))


def asked_branch(session: SessionRecord, asked: QueryDict) -> tuple[int, int]:
    """Return the branch that a form asks for, and the number of its message that is to be seen; 0 for none.

    A form names a ``branch``, or a ``place`` among the messages ``after`` one (``typed``, where no button has said it):
    then it is the branch that was begun last of those through the message there.

    :raises BranchNotFoundError: the session has no such branch, or there are fewer siblings.
    :raises InvalidRequest: it names neither, or no numbers.
    """
    if "branch" in asked:
        return _number(asked, "branch"), 0
    after_seq, place = _number(asked, "after"), _number(asked, "place" if "place" in asked else "typed")
    branches = load_branches(session.id)
    versions = versions_after(branches.values(), after_seq)
    if not 1 <= place <= len(versions):
        raise BranchNotFoundError(place=place, of=len(versions))
    own = versions[place - 1]
    rows = Message.objects.filter(session_id=session.id, branch=own, seq__gt=after_seq).order_by("seq")
    seq = rows.values_list("seq", flat=True).first()
    return max(branches_through(branches, own, after_seq)), seq or after_seq


def _number(asked: QueryDict, name: str) -> int:
    text = asked.get(name, "").strip().replace(get_format("THOUSAND_SEPARATOR"), "")
    if not (text.isascii() and text.isdigit()):
        raise InvalidRequest(gettext_noop("%(name)s must be a whole number"), {"name": name}, field=name)
    return min(int(text[:19]), LARGEST)


def load_parent_id(session_id: str, message_id: str) -> str:
    """Return the id of the message before one, or ``root``.

    :raises MessageNotFoundError: the session has no such message.
    """
    branch, seq = _place(session_id, message_id)
    return parents_of(session_id, [(branch, seq)]).get(seq, ROOT)


def load_question_id(session_id: str, message_id: str) -> str:
    """Return the id of what a user said that a message answers; its own, if it is that.

    :raises MessageNotFoundError: the session has no such message, or nobody asked for it.
    """
    branch, seq = _place(session_id, message_id)
    rows = Message.objects.filter(session_id=session_id, role="user")
    stretches = list((load_path(session_id, branch) or LINE).within(1, seq))
    found = rows_on(rows, stretches, limit=1, newest=True)
    if not found:
        raise MessageNotFoundError(message_id=message_id)
    return str(found[0].id)


def _place(session_id: str, message_id: str) -> tuple[int, int]:
    row = Message.objects.filter(session_id=session_id, id=message_id).values_list("branch", "seq").first()
    if row is None:
        raise MessageNotFoundError(message_id=message_id)
    branch, seq = row
    return branch, seq
