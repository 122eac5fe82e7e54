"""The charts of a run: drawings that stay in their frame, and the same in words."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.maps.throughput import Interval
from sessions_app.llm.usage import HEIGHT, WIDTH, draw_run


def stretch(begins: float, ends: float, *, completed: float = 1, failed: float = 0, tokens: float = 0, cost: float = 0):
    return Interval(begins=begins, ends=ends, completed=completed, failed=failed, tokens=tokens, cost_micros=cost)


def test_before_anything_has_ended_there_is_nothing_to_draw() -> None:
    assert draw_run([]) is None


def test_a_run_is_drawn_and_said() -> None:
    charts = draw_run(
        [stretch(0, 60, completed=30, cost=1_000), stretch(60, 120, completed=50, failed=10, cost=3_000_000)]
    )
    assert charts is not None
    assert charts[0].sentence == ("90 items ended in 2 min: 45 a minute on average, 60 at the most.")
    assert charts[0].highest == "60 / min"
    assert charts[1].sentence == "$3.00 after 2 min, $0.001 after half of the time."
    assert charts[0].times == ["0", "1 min", "2 min"]
    first, second = charts[0].bars
    assert (first.segments[0].y, first.segments[0].height) == (50, 50)
    assert second.segments[1].y == 0
    assert [tuple(row[1:]) for row in charts[0].rows] == [
        ("30 / min", "0", "$0.001"),
        ("60 / min", "10", "$3.00"),
    ]


def test_without_a_price_tokens_are_drawn() -> None:
    charts = draw_run([stretch(0, 1, tokens=1_500)])
    assert charts is not None
    assert charts[0].sentence.startswith("1 item ended in 1 s")
    assert charts[1].name == "Tokens"
    assert charts[1].sentence.startswith("1.5k tokens after 1 s")
    nothing = draw_run([stretch(0, 1)])
    assert nothing is not None
    assert nothing[1].highest == "1"


def parts_of(most: float) -> st.SearchStrategy[float]:
    """Parts of whole numbers, as stretches have them, which divide what was counted in a span of time."""
    return st.just(0.0) | st.floats(1e-3, most)


@given(
    st.lists(st.tuples(parts_of(1e9), parts_of(1e9), parts_of(1e15)), min_size=1, max_size=40),
    st.floats(0.001, 1e8),
)
def test_nothing_is_drawn_outside_the_frame(values: list[tuple[float, float, float]], seconds: float) -> None:
    cost, stretches = 0.0, []
    for index, (completed, failed, spent) in enumerate(values):
        cost += spent
        stretches.append(
            stretch(index * seconds, (index + 1) * seconds, completed=completed, failed=failed, tokens=cost, cost=cost)
        )
    charts = draw_run(stretches)
    assert charts is not None
    for bar in charts[0].bars:
        assert all(segment.y >= -0.1 and segment.height >= 0 for segment in bar.segments)
        assert bar.x + bar.width <= WIDTH + 0.1
    for point in charts[1].points.split():
        x, y = map(float, point.split(","))
        assert 0 <= x <= WIDTH
        assert -0.1 <= y <= HEIGHT
    assert len(charts[0].rows) <= 12
