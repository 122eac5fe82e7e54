"""How large a context is, from what a turn knows."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from mnesis_core.context.fitting import LastPrompt, Size, size_now
from mnesis_core.llm.tokens import Calibration, CountSource

TOKENS = st.integers(0, 10**6)
DOUBLE = Calibration(ratio=2.0, samples=3)


def test_without_a_report_the_corrected_estimate_counts() -> None:
    assert size_now(1_000, DOUBLE, None) == Size(tokens=2_000, source=CountSource.PROVIDER)
    assert size_now(1_000, Calibration(), LastPrompt(whole=900, sent=900)) == Size(
        tokens=1_000, source=CountSource.ESTIMATED
    )


def test_what_came_since_is_added_to_the_provider_s_count() -> None:
    asked = LastPrompt(whole=1_000, sent=1_000, reported=1_500)
    assert size_now(1_100, DOUBLE, asked) == Size(tokens=1_700, source=CountSource.PROVIDER)


def test_what_was_left_out_of_the_prompt_counts_too() -> None:
    asked = LastPrompt(whole=5_000, sent=1_000, reported=1_500)
    assert size_now(5_000, DOUBLE, asked).tokens == 1_500 + 8_000


def test_of_a_context_that_has_shrunk_the_report_says_nothing() -> None:
    asked = LastPrompt(whole=5_000, sent=5_000, reported=6_000)
    assert size_now(1_000, Calibration(), asked) == Size(tokens=1_000, source=CountSource.ESTIMATED)


def test_a_report_beyond_all_bounds_is_not_believed() -> None:
    assert size_now(1_000, DOUBLE, LastPrompt(whole=1_000, sent=1_000, reported=10**9)).tokens == 3_000
    assert size_now(1_000, DOUBLE, LastPrompt(whole=1_000, sent=1_000, reported=1)).tokens == 500


@given(TOKENS, TOKENS, TOKENS, TOKENS)
def test_a_context_that_grows_is_never_measured_as_smaller(sent: int, left_out: int, reported: int, grown: int) -> None:
    asked = LastPrompt(whole=sent + left_out, sent=sent, reported=reported)
    before = size_now(asked.whole, DOUBLE, asked)
    assert size_now(asked.whole + grown, DOUBLE, asked).tokens >= before.tokens
