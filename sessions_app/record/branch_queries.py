"""Reads of the tree of a session's messages: its branches, and the paths through them.

``None`` for a path is that of a session without branches: nothing has to be left out, and no query looks for any.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Protocol

from django.db.models import Count, Max, Min, Q, QuerySet

from mnesis_core.context.branches import Branch, Path, Stretch, path_to
from mnesis_core.errors import BranchNotFoundError, SessionNotFoundError
from mnesis_core.events import EventType
from mnesis_core.text import encode_text
from sessions_app.database.tables import fetch
from sessions_app.models import Branch as BranchRow
from sessions_app.models import Event, Message

STRETCHES_A_STATEMENT = 200  # SQLite allows expressions of depth 1,000
_CHOSEN = "SELECT branch, branch_seq FROM sessions WHERE id = %s"
_NEWEST_MESSAGE = (
    "SELECT branch, added_seq FROM context_items WHERE session_id = %s AND added_seq <= %s AND item_type = 'message'"
    " ORDER BY added_seq DESC LIMIT 1"
)


def load_branches(session_id: str) -> dict[int, Branch]:
    """Return the branches of a session by number, without branch 0."""
    rows = BranchRow.objects.filter(session_id=session_id).order_by("number")
    return {row[0]: Branch(*row) for row in rows.values_list("number", "parent", "after_seq")}


def load_path(session_id: str, branch: int | None = None, *, at: int | None = None) -> Path | None:
    """Return the path to the end of a branch, by default of the one that is chosen now or was as of event ``at``.

    :raises SessionNotFoundError: there is no such session.
    :raises BranchNotFoundError: the session has no such branch.
    """
    row = next(iter(fetch(_CHOSEN, [session_id])), None)
    if row is None:
        raise SessionNotFoundError(session_id=session_id)
    return _path(session_id, *row, branch=branch, at=at)


class HasBranches(Protocol):
    @property
    def id(self) -> str: ...
    @property
    def branch(self) -> int: ...
    @property
    def branch_seq(self) -> int: ...


def path_in(session: HasBranches, branch: int | None = None, *, at: int | None = None) -> Path | None:
    """Return what ``load_path`` does, of a session that is loaded."""
    return _path(session.id, session.branch, session.branch_seq, branch=branch, at=at)


def path_through(session: HasBranches, message_id: str) -> Path | None:
    """Return the path to the end of the branch that a message is on; ``None`` in a session without branches, or without it."""
    place = place_of(session.id, message_id) if session.branch_seq else None
    return path_in(session, place[0]) if place else None


def _path(session_id: str, chosen: int, branches: int, *, branch: int | None, at: int | None) -> Path | None:
    if not branches and not branch:
        return None
    if branch is None and at is None:
        branch = chosen
    elif branch is None:
        # The newest message tells, unless a branch was chosen after it.
        branch, seq = next(iter(fetch(_NEWEST_MESSAGE, [session_id, at])), (0, 0))
        of_choice = EventType.BRANCH_CHOSEN.value
        events = Event.objects.filter(session_id=session_id, seq__gt=seq, seq__lte=at, type=of_choice)
        body = events.order_by("-seq").values_list("body", flat=True).first()
        branch = int(branch if body is None else json.loads(body)["branch"])
    try:
        return path_to(load_branches(session_id), branch)
    except KeyError as error:
        raise BranchNotFoundError(branch=branch) from error


def in_stretches(stretches: Iterable[Stretch], seq: str) -> tuple[str, list[Any]]:
    """Return the SQL condition that a row with a branch and the column ``seq`` is in one of these, and its values."""
    table, _, _ = seq.rpartition(".")
    values = [value for stretch in stretches for value in stretch]
    one = f"({table and table + '.'}branch = %s AND {seq} BETWEEN %s AND %s)"
    return f"({' OR '.join([one] * (len(values) // 3)) or '1 = 0'})", values


def rows_on(rows: QuerySet[Any], stretches: Sequence[Stretch], *, limit: int, newest: bool = False) -> list[Any]:
    """Return messages on stretches of a path, oldest first; with ``newest`` the last ones of them."""
    found: list[Any] = []
    stretches = stretches[::-1] if newest else stretches
    for start in range(0, len(stretches), STRETCHES_A_STATEMENT):
        here = Q()
        for branch, first, last in stretches[start : start + STRETCHES_A_STATEMENT]:
            here |= Q(branch=branch, seq__range=(first, last))
        found += rows.filter(here).order_by("-seq" if newest else "seq")[: limit - len(found)]
        if len(found) >= limit:
            break
    return found[::-1] if newest else found


def place_of(session_id: str, message_id: str) -> tuple[int, int, str, int] | None:
    """Return branch, number and role of a message, and the last number on its branch; ``None`` if there is none."""
    rows = Message.objects.filter(id=encode_text(message_id), session_id=session_id)
    found = rows.values_list("branch", "seq", "role").first()
    if found is None:
        return None
    newest = Message.objects.filter(session_id=session_id, branch=found[0]).order_by("-seq")
    return (*found, newest.values_list("seq", flat=True)[0])


def ends_of_branches(session_id: str) -> dict[int, tuple[str, int]]:
    """Return by branch the last message and how many there are, of the branches that have any."""
    messages = Message.objects.filter(session_id=session_id)
    rows = messages.order_by().values_list("branch").annotate(last=Max("seq"), count=Count("id"))
    counts = {branch: (last, count) for branch, last, count in rows}
    ids = ids_at(session_id, [last for last, _ in counts.values()])
    return {branch: (ids[last], count) for branch, (last, count) in counts.items()}


def spans_of_branches(session_id: str, numbers: Sequence[int]) -> dict[int, tuple[int, int, int]]:
    """Return the first and the last message of each of these branches, and how many there are; without empty ones."""
    rows = Message.objects.filter(session_id=session_id, branch__in=numbers).order_by().values_list("branch")
    counted = rows.annotate(first=Min("seq"), last=Max("seq"), count=Count("id"))
    return {branch: (first, last, count) for branch, first, last, count in counted}


def last_seqs(session_id: str) -> dict[int, int]:
    """Return by branch the number of its last message, of the branches that have any."""
    messages = Message.objects.filter(session_id=session_id).order_by()
    return dict(messages.values_list("branch").annotate(last=Max("seq")))


def parents_of(session_id: str, places: Sequence[tuple[int, int]]) -> dict[int, str]:
    """Return by number the ids of the messages before these, which have none of their branches between them.

    ``places`` are pairs of branch and number, in order. The first message of all has none before it.
    """
    if not places:
        return {}
    first: dict[int, int] = {}  # by branch
    newest: dict[int, int] = {}  # by branch
    parents: dict[int, int] = {}
    for branch, seq in places:
        first.setdefault(branch, seq)
        if branch in newest:
            parents[seq] = newest[branch]
        newest[branch] = seq
    earlier = Q()
    for branch, seq in first.items():
        earlier |= Q(branch=branch, seq__lt=seq)
    rows = Message.objects.filter(earlier, session_id=session_id).order_by()
    begun = load_branches(session_id) if first.keys() - {0} else {}
    before = {branch.number: branch.after_seq for branch in begun.values()}
    before |= dict(rows.values_list("branch").annotate(last=Max("seq")))
    parents |= {seq: before[branch] for branch, seq in first.items() if branch in before}
    ids = ids_at(session_id, sorted(set(parents.values())))
    return {seq: ids[parent] for seq, parent in parents.items() if parent in ids}


def ids_at(session_id: str, seqs: Sequence[int]) -> dict[int, str]:
    """Return the ids of the messages with these numbers."""
    found: dict[int, str] = {}
    for start in range(0, len(seqs), 1000):
        rows = Message.objects.filter(session_id=session_id, seq__in=seqs[start : start + 1000])
        found |= dict(rows.values_list("seq", "id"))
    return found
