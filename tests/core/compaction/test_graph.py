"""The summary DAG walked: contexts made by swaps stand for every message once, and what was tampered with is named."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.compaction.dag import Graph, Node, check_cover, runs_of, slices_of
from mnesis_core.errors import SummaryNotFoundError


def node(id: str, first: int, last: int, sources: tuple[str, ...] = (), *, depth: int = 0, count: int = 0) -> Node:
    return Node(
        id=id,
        kind="condensed" if sources else "leaf",
        depth=depth,
        level=1,
        first_seq=first,
        last_seq=last,
        message_count=count or last - first + 1,
        token_count=10,
        source_tokens=100,
        tokens_input=100,
        tokens_output=10,
        cost_micros=7,
        sources=sources,
    )


@dataclass
class Talk:
    """A context that is compacted by swaps, in plain values."""

    context: list[int | str]
    nodes: dict[str, Node] = field(default_factory=dict)
    messages_of: dict[str, list[int]] = field(default_factory=dict)

    def swap(self, first: int, count: int) -> None:
        """Replace neighbours of one kind by a summary; less of them where there are not so many."""
        place = first % len(self.context)
        kind = type(self.context[place])
        chosen = []
        while len(chosen) < count and place < len(self.context) and type(self.context[place]) is kind:
            chosen.append(self.context.pop(place))
        id = f"sum_{len(self.nodes)}"
        if kind is int:
            self.messages_of[id] = chosen
            self.nodes[id] = node(id, chosen[0], chosen[-1])
        else:
            below = [self.nodes[source] for source in chosen]
            self.nodes[id] = node(
                id,
                below[0].first_seq,
                below[-1].last_seq,
                tuple(chosen),
                depth=1 + max(source.depth for source in below),
                count=sum(source.message_count for source in below),
            )
        self.context.insert(place, id)

    def revise(self, id: str, restores: str | None = None) -> str:
        """Put another text, or that of an earlier revision, in the place of a summary's newest revision."""
        graph = self.graph()
        old, new = graph.newest(id), f"sum_{len(self.nodes)}"
        sources = tuple(source.id for source in graph.sources(old.id))
        if restores is not None:
            sources = graph.find(restores).sources
        text = None if restores is None else graph.find(restores).text_of
        self.nodes[new] = replace(old, id=new, revises_id=old.id, restores_id=text, sources=sources)
        if old.kind == "leaf":
            self.messages_of[new] = self.messages_of[old.id]
        self.context = [new if item == old.id else item for item in self.context]
        return new

    def graph(self) -> Graph:
        return Graph(self.nodes.values())


@st.composite
def talks(draw: st.DrawFn) -> Talk:
    """Contexts after any swaps and revisions."""
    talk = Talk(list(range(1, draw(st.integers(1, 40)) + 1)))
    steps = st.tuples(st.integers(0, 60), st.integers(1, 8), st.booleans())
    for first, count, is_revision in draw(st.lists(steps, max_size=25)):
        if is_revision and talk.nodes:
            talk.revise(sorted(talk.nodes)[first % len(talk.nodes)])
        else:
            talk.swap(first, count)
    return talk


@given(talks())
def test_expanding_a_context_gives_every_message_once_in_order(talk: Talk):
    graph = talk.graph()
    seqs = [
        seq for item in talk.context for seq in ([item] if isinstance(item, int) else messages_under(graph, talk, item))
    ]
    last = len(seqs)
    assert seqs == list(range(1, last + 1))
    cover = check_cover(graph, talk.context, talk.messages_of, messages=range(1, last + 1))
    assert cover.ok
    assert cover.verbatim + cover.summarised == last


@given(talks(), st.integers(1, 9))
def test_pages_of_the_messages_behind_a_summary_are_all_of_them(talk: Talk, limit: int):
    graph = talk.graph()
    for id in graph.nodes:
        leaves, found = graph.leaves(id), []
        while slices := slices_of(leaves, offset=len(found), limit=limit):
            page = [seq for leaf, first, end in slices for seq in talk.messages_of[leaf][first:end]]
            assert 0 < len(page) <= limit
            # What one query for several leaves relies on.
            assert all((first, end) == (0, graph.find(leaf).message_count) for leaf, first, end in slices[1:-1])
            found += page
        assert found == messages_under(graph, talk, id)


@given(talks())
def test_up_and_down_are_the_same_steps(talk: Talk):
    graph = talk.graph()
    current = [node.id for node in graph.current()]
    for id in current:
        below = {under.id for _, under in graph.below(id)} - {id}
        assert below == {other for other in current if id in {up.id for up in graph.above(other)}}
        assert graph.cost(id).summaries == len(below) + 1
        assert graph.cost(id).messages == graph.find(id).message_count
    assert [root.id for root in graph.roots()] == [item for item in talk.context if isinstance(item, str)]


@given(talks(), st.data())
def test_a_revision_makes_all_above_it_stale_and_undoing_it_gives_their_freshness_back(talk, data):
    if not talk.nodes:
        return
    id = talk.graph().newest(data.draw(st.sampled_from(sorted(talk.nodes)))).id
    before, above = talk.graph().stale(), {up.id for up in talk.graph().above(id)}
    newer = talk.revise(id)
    graph = talk.graph()
    assert graph.stale() - {newer} == (before | above) - {id}
    assert [node.id for node in graph.history(newer)][-2:] == [id, newer]
    back = talk.revise(newer, restores=id)
    renamed = {back if one == id else one for one in before}
    assert talk.graph().stale() == renamed


@given(talks())
def test_nothing_is_stale_when_all_is_made_again_from_below(talk: Talk):
    for node in sorted(talk.graph().current(), key=lambda node: node.depth):
        talk.revise(node.id)
    assert talk.graph().stale() == set()


@given(talks(), st.data())
def test_a_message_that_falls_out_is_named(talk: Talk, data: st.DataObject):
    last = max(seq for item in talk.context for seq in expanded(talk, item))
    lost = data.draw(st.integers(1, last))
    context = [item for item in talk.context if item != lost]
    messages_of = {id: [seq for seq in seqs if seq != lost] for id, seqs in talk.messages_of.items()}
    cover = check_cover(talk.graph(), context, messages_of, messages=range(1, last + 1))
    assert (cover.ok, cover.missing) == (False, ((lost, lost),))
    assert bool(cover.miscounted) == (lost not in talk.context)


def test_what_stands_twice_or_late_is_named():
    graph = Graph([node("a", 1, 2), node("b", 3, 4), node("c", 1, 4, ("a", "b"), depth=1)])
    messages_of = {"a": [1, 2], "b": [3, 4]}
    twice = check_cover(graph, ["c", "b", 5], messages_of, messages=range(1, 6))
    assert (twice.twice, twice.missing, twice.out_of_order) == (((3, 4),), (), ())
    late = check_cover(graph, ["b", "a", 5], messages_of, messages=range(1, 6))
    assert (late.out_of_order, late.twice, late.missing) == (((1, 2),), (), ())


def test_a_summary_that_counts_wrongly_is_named():
    graph = Graph([node("a", 1, 2), node("c", 1, 9, ("a",), depth=1)])
    cover = check_cover(graph, ["c"], {"a": [1, 2]}, messages=[1, 2])
    assert (cover.ok, cover.miscounted) == (False, ("c",))


def test_a_tampered_graph_ends():
    loop = Graph([node("a", 1, 2, ("b",)), node("b", 1, 2, ("a",))])
    assert [under.id for _, under in loop.below("a")] == ["a", "b"]
    assert [up.id for up in loop.above("a")] == ["b"]
    twins = Graph([replace(node("a", 1, 2), revises_id="b"), replace(node("b", 1, 2), revises_id="a")])
    assert (twins.newest("a").id, [one.id for one in twins.history("a")], twins.current()) == ("b", ["b", "a"], [])
    chain = Graph(node(f"n{n}", 1, 1, () if n == 0 else (f"n{n - 1}",)) for n in range(3_000))
    assert len(list(chain.below("n2999"))) == len(chain.above("n0")) + 1 == 3_000
    torn = Graph([replace(node("a", 1, 2), sources=("gone",))])
    with pytest.raises(SummaryNotFoundError):
        torn.cost("a")


def test_runs_of_neighbours():
    assert runs_of({7, 1, 3, 2}) == ((1, 3), (7, 7))
    assert runs_of([]) == ()


def messages_under(graph: Graph, talk: Talk, id: str) -> list[int]:
    return [seq for leaf in graph.leaves(id) for seq in talk.messages_of[leaf.id]]


def expanded(talk: Talk, item: int | str) -> list[int]:
    return [item] if isinstance(item, int) else messages_under(talk.graph(), talk, item)
