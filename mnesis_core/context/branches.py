"""The tree of a session's messages: branches, paths through them, and the summaries that stand for a path.

A branch is a line of messages. Branch 0 begins with the session; every other one leaves an earlier branch after one of
its messages, or before the first of all. The parent of a message is the one before it on its branch, or the one that its
branch begins after. So a path from the root to a message is a few stretches of branches, and in a session without
branches it is everything. Messages of all branches share one count, so the numbers on a path always rise.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

ROOT = "root"  # in the place of a message's id: before the first message
END = 2**63 - 1


class Branch(NamedTuple):
    number: int
    parent: int  # the branch of the message that it begins after; 0 where there is none
    after_seq: int  # of that message; 0 for none: it begins before the first message


class Stretch(NamedTuple):
    branch: int
    first_seq: int
    last_seq: int  # ``END`` on the branch that the path ends on


class Span(NamedTuple):
    """A summary in a context, by the messages that it stands for."""

    id: str
    branch: int  # of its last message: a path with that one has all the others too
    first_seq: int
    last_seq: int
    added_seq: int


@dataclass(frozen=True)
class Path:
    """The way from the root to the end of a branch, as stretches in order, each of another branch."""

    stretches: tuple[Stretch, ...]

    @property
    def branch(self) -> int:
        return self.stretches[-1].branch

    @cached_property
    def _by_branch(self) -> dict[int, Stretch]:
        return {stretch.branch: stretch for stretch in self.stretches}

    def has(self, branch: int, seq: int) -> bool:
        stretch = self._by_branch.get(branch)
        return stretch is not None and stretch.first_seq <= seq <= stretch.last_seq

    def within(self, first_seq: int, last_seq: int) -> Iterator[Stretch]:
        """Yield those stretches that have numbers from the first to the last, cut to them."""
        for branch, first, last in self.stretches:
            first, last = max(first, first_seq), min(last, last_seq)
            if first <= last:
                yield Stretch(branch, first, last)


LINE = Path((Stretch(0, 1, END),))
"""The path of a session without branches."""


def path_to(branches: Mapping[int, Branch], number: int) -> Path:
    """Return the path to the end of a branch.

    :raises KeyError: there is no such branch.
    """
    stretches: list[Stretch] = []
    last = END
    while number:
        branch = branches[number]
        stretches.append(Stretch(number, branch.after_seq + 1, last))
        # Branches that leave between this one and its parent's message do not belong to the path.
        number, last = branch.parent, min(last, branch.after_seq)
    if last > 0:
        stretches.append(Stretch(0, 1, last))
    return Path(tuple(reversed(stretches)))


def standing_spans(path: Path, spans: Iterable[Span], *, last_seq: int = END) -> tuple[list[Span], list[Stretch]]:
    """Return what stands for a path: the summaries, and the stretches of messages that none of them stands for, in order.

    From the end backwards, of the summaries that end at a place the one that reaches back furthest stands there, of
    equal ones the newest. So each message is there once, in whichever order and for whichever branch they were made.
    """
    ending: dict[int, Span] = {}
    for span in spans:
        other = ending.get(span.last_seq)
        if path.has(span.branch, span.last_seq) and (other is None or _reach(span) > _reach(other)):
            ending[span.last_seq] = span
    standing: list[Span] = []
    verbatim: list[Stretch] = []
    free = last_seq  # the last message for which nothing stands yet
    for end in sorted(ending, reverse=True):
        if end <= free:
            standing.append(ending[end])
            verbatim += reversed(list(path.within(end + 1, free)))
            free = ending[end].first_seq - 1
    verbatim += reversed(list(path.within(1, free)))
    return standing[::-1], verbatim[::-1]


def covering_span(path: Path, spans: Iterable[Span], branch: int, seq: int) -> Span | None:
    """Return the summary in whose place a message of a path first was, or ``None`` as long as it stands there itself."""
    if not path.has(branch, seq):
        return None
    covering = [
        span for span in spans if span.first_seq <= seq <= span.last_seq and path.has(span.branch, span.last_seq)
    ]
    return min(covering, key=lambda span: span.added_seq, default=None)


def are_in(stretches: Iterable[Stretch], places: Iterable[tuple[int, int]]) -> list[bool]:
    """Return of each place, a branch and a number, whether it is in one of these stretches."""
    by_branch: dict[int, list[Stretch]] = defaultdict(list)
    for stretch in stretches:
        by_branch[stretch.branch].append(stretch)
    return [any(one.first_seq <= seq <= one.last_seq for one in by_branch.get(branch, ())) for branch, seq in places]


def _reach(span: Span) -> tuple[int, int]:
    return -span.first_seq, span.added_seq


def siblings_of(branches: Iterable[Branch], path: Path) -> Mapping[int, Sequence[Branch]]:
    """Return by ``after_seq`` the branches that begin at messages of a path, in the order in which they were begun."""
    found: dict[int, list[Branch]] = {}
    for branch in branches:
        if branch.after_seq == 0 or path.has(branch.parent, branch.after_seq):
            found.setdefault(branch.after_seq, []).append(branch)
    return found


def versions_after(branches: Iterable[Branch], after_seq: int) -> list[int]:
    """Return the branches of the messages that follow one, or that are the first for 0; empty where there is no choice.

    The branch of the message itself is the first of them.
    """
    begun = [branch for branch in branches if branch.after_seq == after_seq]
    return [begun[0].parent, *(branch.number for branch in begun)] if begun else []


def branches_through(branches: Mapping[int, Branch], number: int, after_seq: int) -> set[int]:
    """Return the branches whose paths go on along a branch behind its message ``after_seq``, itself among them."""
    through = {number}
    for branch in sorted(branches.values()):
        if branch.after_seq > after_seq if branch.parent == number else branch.parent in through:
            through.add(branch.number)
    return through
