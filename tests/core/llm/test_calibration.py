"""A model's own counts correct the estimate: near after ten turns, by real tokenisers; and it says how near."""

from __future__ import annotations

import gettext
import json
from collections.abc import Callable
from dataclasses import asdict
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from pydoc_data.topics import topics
from random import Random

import django
import pytest
import tiktoken
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from mnesis_core.context.assembly import assemble
from mnesis_core.context.entries import Assembled
from mnesis_core.llm.tokens import (
    Calibration,
    CountSource,
    calibrate,
    calibrate_refused,
    calibration_after,
    first_calibration,
    read_measure,
    share_ratio,
)
from mnesis_core.providers.litellm_ import load_litellm
from mnesis_core.providers.rendering import render
from tests.core.context.contexts import budget, entries_of, turn

KINDS = ("english", "code", "cjk", "json")
TOKENISERS = ("cl100k_base", "o200k_base", "anthropic")
FRAMING = 4
"""What OpenAI and Anthropic count for a message beside its text, nearly."""


@cache
def corpus(kind: str) -> str:
    """Text of one kind that was not written for this test, and that every installation has."""
    if kind == "english":
        return "\n".join(topics.values())
    if kind == "code":
        library = Path(json.__file__).parents[1]
        return "\n".join((library / name).read_text() for name in ("argparse.py", "tarfile.py", "typing.py"))
    if kind == "json":
        table = load_litellm().model_cost
        return "\n".join(json.dumps({name: entry}) for name, entry in table.items())
    places = [*Path(django.__file__).parent.glob("**/locale")]
    catalogs = [
        gettext.translation("django", place, [language])
        for place in places
        for language in ("zh_Hans", "ja", "ko")
        if (place / language / "LC_MESSAGES" / "django.mo").exists()
    ]
    texts = [text for catalog in catalogs for text in catalog._catalog.values()]  # type: ignore[attr-defined]
    return "\n".join(filter(None, texts))


@cache
def counter(name: str) -> Callable[[str], int]:
    """A real tokeniser, whose files litellm brings along."""
    load_litellm()  # says where tiktoken's files are, so that it does not look on the network
    if name != "anthropic":
        encoding = tiktoken.get_encoding(name)
        return cache(lambda text: len(encoding.encode(text, disallowed_special=())))
    package = Path(str(find_spec("litellm").origin)).parent  # type: ignore[union-attr]
    tokeniser = Tokenizer.from_file(str(package / "litellm_core_utils/tokenizers/anthropic_tokenizer.json"))
    return cache(lambda text: len(tokeniser.encode(text).ids))


def growing_contexts(kind: str, turns: int) -> list[Assembled]:
    """A conversation after each of its turns: a question, and an answer of uneven length."""
    chance, text = Random(kind), corpus(kind)
    said, contexts = [], []
    for number in range(1, turns + 1):
        start, length = chance.randrange(len(text) - 9_000), chance.randrange(600, 9_000)
        said += turn(number, text[start : start + length // 6], text[start : start + length])
        contexts.append(assemble(entries_of(said), system_prompt="Be brief.", tools=(), budget=budget(2_000_000)))
    return contexts


@pytest.mark.parametrize("tokeniser", TOKENISERS)
@pytest.mark.parametrize("kind", KINDS)
def test_after_ten_turns_the_estimate_is_within_a_tenth_of_the_models_own_count(kind: str, tokeniser: str) -> None:
    count, known, misses = counter(tokeniser), Calibration(), []
    for context in growing_contexts(kind, 20):
        reported = sum(FRAMING + count(message["content"]) for message in render(context)["messages"])
        misses.append(abs(context.used_tokens * known.ratio - reported) / reported)
        known = calibrate(known, context.used_tokens, reported)
    assert max(misses[10:]) < 0.1
    assert known.error == pytest.approx(sum(misses[-5:]) / 5, abs=0.05)


def test_the_estimate_alone_is_not_as_near() -> None:
    """If it were, the test above could not fail."""
    context, count = growing_contexts("cjk", 20)[-1], counter("o200k_base")
    reported = sum(FRAMING + count(message["content"]) for message in render(context)["messages"])
    assert abs(context.used_tokens - reported) / reported > 0.1


def test_the_error_is_that_of_the_estimates_before_each_report() -> None:
    known = calibrate(Calibration(), estimated=1_000, reported=1_250)
    assert known == Calibration(ratio=1.125, samples=1, error=0.2)
    known = calibrate(known, estimated=1_000, reported=1_125)
    assert known.error == 0.1
    for _ in range(30):
        known = calibrate(known, estimated=1_000, reported=1_250)
    assert known.error == pytest.approx(0, abs=0.01)


def test_one_odd_report_moves_calibration_only_so_far() -> None:
    assert calibrate(Calibration(), estimated=1_000, reported=900_000).ratio == 2.0
    assert calibrate(Calibration(), estimated=1_000_000, reported=1).ratio == 0.75


@pytest.mark.parametrize(("estimated", "reported"), [(0, 10), (10, 0), (-1, 10), (10, -1)])
def test_a_count_of_nothing_changes_no_calibration(estimated: int, reported: int) -> None:
    known = Calibration(ratio=1.2, samples=3)
    assert calibrate(known, estimated, reported) is known


@given(st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 10**9)), max_size=20))
def test_calibration_stays_within_its_bounds_and_can_be_written_down(reports: list[tuple[int, int]]) -> None:
    known = Calibration()
    for estimated, reported in reports:
        known = calibrate(known, estimated, reported)
        assert 0.5 <= known.ratio <= 3.0
        assert 0 <= (known.error or 0) <= 10
    parameters = {"calibration": json.loads(json.dumps(asdict(known)))}
    measure = read_measure(parameters, model="a", estimated=0, reported=0)
    assert calibration_after(measure, model="a", shared_ratio=None, window=8_000) == known


def test_it_says_what_corrects_the_estimate() -> None:
    assert Calibration().source is CountSource.ESTIMATED
    borrowed = first_calibration(1.5)
    assert (borrowed.ratio, borrowed.samples, borrowed.source) == (1.5, 0, CountSource.MODEL)
    assert calibrate(borrowed, 1_000, 1_500).source is CountSource.PROVIDER


def test_a_call_of_another_model_teaches_nothing() -> None:
    measure = read_measure({}, model="other", estimated=1_000, reported=2_000)
    assert calibration_after(measure, model="mine", shared_ratio=1.2, window=8_000) == first_calibration(1.2)
    assert calibration_after(measure, model="other", shared_ratio=None, window=8_000).ratio == 1.5
    assert calibration_after(None, model="mine", shared_ratio=None, window=8_000) == Calibration()


@pytest.mark.parametrize(
    "stored",
    [
        None,
        [],
        {},
        {"ratio": 1.5},
        {"ratio": "1.5", "samples": 1, "error": None},
        {"ratio": 1e9, "samples": 1, "error": None},
        {"ratio": float("nan"), "samples": 1, "error": None},
        {"ratio": 1.5, "samples": -1, "error": None},
        {"ratio": 1.5, "samples": 1, "error": float("nan")},
        {"ratio": 1.5, "samples": 1, "error": -0.5},
    ],
)
def test_a_record_that_says_nonsense_is_not_believed(stored: object) -> None:
    measure = read_measure({"calibration": stored, "tool_tokens": stored}, model="a", estimated=0, reported=0)
    assert measure.calibration is None
    assert measure.tool_tokens == 0


def test_a_model_shares_what_its_sessions_learn_slowly_and_only_what_matters() -> None:
    learnt = Calibration(ratio=1.4, samples=3)
    assert share_ratio(None, Calibration()) is None
    assert share_ratio(None, learnt) == 1.4
    assert share_ratio(1.0, learnt) == 1.08
    assert share_ratio(1.38, learnt) is None


UNKNOWN = Calibration()


def refused(words: str, known: Calibration = UNKNOWN, *, estimated: int = 24_000) -> Calibration:
    """What a model of 32,000 tokens teaches that refuses a prompt, 1,000 tokens kept for the answer."""
    return calibrate_refused(known, estimated=estimated, output=1_000, window=32_000, words=words)


def test_a_refusal_s_own_count_stands_at_once() -> None:
    learnt = refused("prompt is too long: 33600 tokens > 32000 maximum")
    assert learnt == Calibration(ratio=1.4, samples=1, error=pytest.approx(0.2857, abs=0.0001))
    assert learnt.source is CountSource.PROVIDER


def test_a_smaller_window_that_a_refusal_names_explains_it_alone() -> None:
    learnt = refused("maximum context length is 8192 tokens. However, your messages resulted in 24000 tokens")
    assert (learnt.ratio, learnt.window) == (1.0, 8_192)
    assert refused("context length is only 100 tokens").window is None
    assert refused("maximum context length is 64000 tokens").window is None


def test_a_refusal_that_no_number_explains_raises_the_ratio_until_the_prompt_must_shrink() -> None:
    known = Calibration(ratio=1.1, samples=9, error=0.01)
    learnt = refused("Too long.", known)
    assert 24_000 * learnt.ratio > 32_000
    assert (learnt.samples, learnt.error) == (0, None)
    assert refused("prompt is too long: 9 tokens > 32000 maximum", known) == learnt
    assert refused("prompt is too long: 99999999999 tokens > 32000 maximum", known) == learnt


def test_a_short_prompt_that_is_refused_as_too_long_teaches_nothing() -> None:
    assert refused("Too long.", estimated=300) == Calibration()


@given(st.integers(1, 31_000), st.floats(0.5, 8.0), st.one_of(st.none(), st.integers(1, 10**6)), st.integers(1, 10**6))
def test_what_a_refusal_teaches_is_bounded_never_less_and_can_be_written_down(
    estimated: int, ratio: float, limit: int | None, counted: int
) -> None:
    words = f"prompt is too long: {counted} tokens" + (f" > {limit} maximum" if limit else "")
    known = Calibration(ratio=round(ratio, 4))
    learnt = refused(words, known, estimated=estimated)
    assert known.ratio <= learnt.ratio <= 8.0
    parameters = {"calibration": json.loads(json.dumps(asdict(learnt)))}
    measure = read_measure(parameters, model="a", estimated=0, reported=0)
    assert calibration_after(measure, model="a", shared_ratio=None, window=32_000) == learnt
