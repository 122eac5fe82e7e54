"""Calls that are made again and again, whatever step they are made in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.turns.options import call_made, repeats

CALLS = st.lists(st.sampled_from([call_made("a", "{}"), call_made("b", "{}"), call_made("a", '{"x": 1}')]), max_size=12)


@given(CALLS, st.integers(0, 12), st.integers(2, 5))
def test_it_does_not_matter_where_the_steps_divide_the_calls(calls, place, threshold):
    before, after = calls[:place], calls[place:]
    whole = repeats([], calls, threshold)
    assert repeats([], before, threshold) + repeats(before, after, threshold) == whole
    for index, is_loop in enumerate(whole):
        row = calls[max(0, index + 1 - threshold) : index + 1]
        assert is_loop == (len(row) == threshold and len(set(row)) == 1)


@pytest.mark.parametrize("text", ["", "not json", "[" * 100_000, '{"a": NaN}', "\ud800"])
def test_arguments_that_are_no_json_are_compared_as_they_are(text):
    assert call_made("a", text) == call_made("a", text)
    assert call_made("a", text) != call_made("a", text + " x")
