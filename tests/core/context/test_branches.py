"""Paths through a tree of messages, and what stands for them: each message once, whatever was summarised for which branch."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.context.branches import (
    END,
    Branch,
    Path,
    Span,
    Stretch,
    are_in,
    branches_through,
    path_to,
    siblings_of,
    standing_spans,
    versions_after,
)

pytestmark = pytest.mark.hypothesis


@dataclass
class Tree:
    """A tree that keeps the parent of every message, as nothing in the record does."""

    parents: dict[int, int] = field(default_factory=dict)
    branch_of: dict[int, int] = field(default_factory=dict)
    branches: dict[int, Branch] = field(default_factory=dict)
    tips: dict[int, int] = field(default_factory=lambda: {0: 0})
    spans: list[Span] = field(default_factory=list)

    def say(self, branch: int) -> None:
        seq = len(self.parents) + 1
        self.parents[seq], self.branch_of[seq] = self.tips[branch], branch
        self.tips[branch] = seq

    def begin(self, after: int) -> None:
        number = len(self.branches) + 1
        parent = self.branch_of.get(after, 0)
        self.branches[number] = Branch(number, parent, after)
        self.tips[number] = after

    def ancestry(self, seq: int) -> list[int]:
        line = []
        while seq:
            line.append(seq)
            seq = self.parents[seq]
        return line[::-1]

    def path(self, branch: int) -> Path:
        return path_to(self.branches, branch)

    def summarise(self, branch: int, first: int, count: int) -> None:
        """Put a summary in the place of some neighbours in a branch's context."""
        standing, verbatim = standing_spans(self.path(branch), self.spans)
        line = [(self.branch_of[seq], seq) for seq in self.ancestry(self.tips[branch])]
        messages = [seq for (_, seq), is_in in zip(line, are_in(verbatim, line), strict=True) if is_in]
        places = sorted([(one.first_seq, one.last_seq) for one in standing] + [(seq, seq) for seq in messages])
        chosen = places[first % len(places) :][: 1 + count] if places else []
        if chosen:
            last = chosen[-1][1]
            added = len(self.spans) + 1
            self.spans.append(Span(f"sum_{added}", self.branch_of[last], chosen[0][0], last, added))

    def expanded(self, branch: int) -> list[int]:
        standing, verbatim = standing_spans(self.path(branch), self.spans)
        found = [(span.first_seq, self._stands_for(span)) for span in standing]
        found += [
            (
                one.first_seq,
                [
                    seq
                    for seq, on in self.branch_of.items()
                    if on == one.branch and one.first_seq <= seq <= one.last_seq
                ],
            )
            for one in verbatim
        ]
        return [seq for _, seqs in sorted(found) for seq in seqs]

    def _stands_for(self, span: Span) -> list[int]:
        return [seq for seq in self.ancestry(span.last_seq) if seq >= span.first_seq]


steps = st.one_of(
    st.tuples(st.just("say"), st.integers(0, 50)),
    st.tuples(st.just("begin"), st.integers(0, 50)),
    st.tuples(st.just("summarise"), st.integers(0, 50), st.integers(0, 50), st.integers(0, 12)),
)


def grown(chosen: list[tuple[str, int] | tuple[str, int, int, int]]) -> Tree:
    tree = Tree()
    for kind, which, *rest in chosen:
        if kind == "say":
            tree.say(which % len(tree.tips))
        elif kind == "begin":
            tree.begin(which % (len(tree.parents) + 1))
        else:
            tree.summarise(which % len(tree.tips), *rest)
    return tree


@given(st.lists(steps, max_size=120))
def test_every_message_of_a_path_stands_there_once_and_nothing_of_another_branch(chosen):
    tree = grown(chosen)
    for branch, tip in tree.tips.items():
        assert tree.expanded(branch) == tree.ancestry(tip)


@given(st.lists(steps, max_size=120))
def test_a_path_has_the_ancestors_of_its_tip_alone(chosen):
    tree = grown(chosen)
    for branch, tip in tree.tips.items():
        path = tree.path(branch)
        assert path.branch == branch or tip == 0
        assert [seq for seq, on in tree.branch_of.items() if path.has(on, seq)] == tree.ancestry(tip)


@given(st.lists(steps, max_size=60), st.integers(0, 40), st.integers(0, 40))
def test_stretches_within_numbers_are_cut_to_them(chosen, first, last):
    tree = grown(chosen)
    for branch in tree.tips:
        path = tree.path(branch)
        cut = Path(tuple(path.within(first, last)))
        for seq, on in tree.branch_of.items():
            assert cut.has(on, seq) == (path.has(on, seq) and first <= seq <= last)


def test_a_summary_of_a_shared_beginning_serves_all_branches():
    tree = Tree()
    for _ in range(6):
        tree.say(0)
    tree.begin(6)
    tree.say(1)
    tree.say(0)
    tree.summarise(1, 0, 3)  # messages 1 to 4, made for branch 1
    for branch in (0, 1):
        standing, verbatim = standing_spans(tree.path(branch), tree.spans)
        assert [span.id for span in standing] == ["sum_1"]
        assert all(one.first_seq >= 5 for one in verbatim)


def test_a_branch_that_leaves_in_the_middle_of_a_summary_has_the_originals():
    tree = Tree()
    for _ in range(6):
        tree.say(0)
    tree.summarise(0, 0, 5)
    tree.begin(3)
    assert standing_spans(tree.path(1), tree.spans) == ([], [Stretch(0, 1, 3), Stretch(1, 4, END)])


def test_the_newest_of_equal_summaries_stands():
    spans = [Span("sum_1", 0, 1, 4, 7), Span("sum_3", 0, 1, 4, 11), Span("sum_2", 0, 1, 4, 9)]
    standing, _ = standing_spans(path_to({}, 0), spans)
    assert [span.id for span in standing] == ["sum_3"]


def test_a_branch_before_the_first_message_has_a_path_of_its_own():
    branches = {1: Branch(1, 0, 0), 2: Branch(2, 1, 5)}
    assert path_to(branches, 1) == Path((Stretch(1, 1, END),))
    assert path_to(branches, 2) == Path((Stretch(1, 1, 5), Stretch(2, 6, END)))


def test_ten_thousand_siblings_and_a_branch_at_every_message():
    siblings = {number: Branch(number, 0, 1) for number in range(1, 10_001)}
    assert path_to(siblings, 10_000).stretches == (Stretch(0, 1, 1), Stretch(10_000, 2, END))
    assert len(siblings_of(siblings.values(), path_to(siblings, 7))[1]) == 10_000
    deep = {number: Branch(number, number - 1, number) for number in range(1, 3_001)}
    assert len(path_to(deep, 3_000).stretches) == 3_001


@given(st.lists(steps, max_size=120))
def test_the_branches_through_a_message_are_those_whose_tips_come_after_it(chosen):
    tree = grown(chosen)
    for seq, parent in tree.parents.items():
        through = {number for number in [0, *tree.branches] if seq in tree.ancestry(tree.tips[number])}
        assert branches_through(tree.branches, tree.branch_of[seq], parent) == through


def test_the_versions_after_a_message_begin_with_its_own_branch():
    branches = [Branch(1, 0, 4), Branch(2, 1, 6), Branch(3, 1, 6), Branch(4, 0, 0)]
    assert versions_after(branches, 6) == [1, 2, 3]
    assert versions_after(branches, 0) == [0, 4]
    assert versions_after(branches, 5) == []
