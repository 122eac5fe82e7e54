"""Compaction ends with any history and any model: the context fits or the end has a name, and nothing is lost."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from mnesis_core.compaction.selection import Outcome
from mnesis_core.config import Config, override
from mnesis_core.context.entries import ContextEntry, MessageEntry, SummaryEntry
from tests.core.context import contexts as make
from tests.support.material.histories import FILE, Exchange, exchanges
from tests.support.material.imagined_talks import Talk, history, id_of, talk_of
from tests.support.providers.hostile_models import MODELS


async def check(talk: Talk) -> Outcome:
    """Everything that has to hold of a compaction of any talk by any model."""
    before = talk.entries
    ended = await talk.compact()
    used, prompt = talk.situation().used, talk.assembled()
    assert used < talk.budget.hard or ended in (Outcome.STILL_TOO_LARGE, Outcome.NOTHING_TO_SUMMARISE)
    assert prompt.used_tokens <= talk.budget.usable
    assert talk.expanded() == [id_of(entry) for entry in before]
    shown = {id_of(entry) for entry in talk.entries}
    assert newest_step(before) <= shown
    assert {message.id for message in talk.questions[-1:]} <= {row["id"] for row in prompt.manifest if "id" in row}
    asked = len(talk.model.requests)
    assert await talk.compact() in (ended, Outcome.NOTHING_TO_SUMMARISE)
    assert len(talk.model.requests) == asked, "a second compaction of the same context asks no model"
    return ended


def newest_step(entries: Sequence[ContextEntry]) -> set[str]:
    """The newest message that says anything, and what came after it."""
    ids = [entry.message.id for entry in entries if isinstance(entry, MessageEntry)]
    said = [entry.message.id for entry in entries if isinstance(entry, MessageEntry) and entry.message.parts]
    return set(ids[ids.index(said[-1]) :]) if said else set(ids)


@pytest.mark.slow
@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(
    st.lists(exchanges, max_size=14),
    st.sampled_from(sorted(MODELS)),
    st.sampled_from([4_000, 8_000, 8_000, 32_000]),
    st.booleans(),
)
async def test_compaction_converges(talk: list[Exchange], kind: str, window: int, everything: bool) -> None:
    await check(talk_of(history(talk), kind, window, everything=everything))


@pytest.mark.slow
@settings(max_examples=40, suppress_health_check=[HealthCheck.too_slow])
@given(make.contexts(size=20), st.sampled_from(sorted(MODELS)))
async def test_compaction_of_the_nastiest_texts_converges(entries: list[ContextEntry], kind: str) -> None:
    await check(talk_of(entries, kind, 4_000))


@pytest.mark.parametrize("kind", sorted(MODELS))
@pytest.mark.parametrize("window", [4_000, 32_000])
async def test_a_long_talk_ends_below_the_target_with_any_model(kind: str, window: int) -> None:
    named = make.turn(1, f"keep {FILE} in mind", make.prose(300))
    entries = make.entries_of([*named, *make.conversation(window // 300, tokens=140)[2:]])
    talk = talk_of(entries, kind, window)
    assert talk.situation().used > talk.budget.soft
    assert await check(talk) in (Outcome.TARGET_MET, Outcome.FITS)
    assert talk.situation().used < talk.budget.soft
    assert any(FILE in entry.text for entry in talk.entries if isinstance(entry, SummaryEntry))


@pytest.mark.slow
async def test_many_rounds_make_a_dag_of_some_depth_and_not_one_heap() -> None:
    config = override(Config(), {"compaction": {"condense_fan_in": 4, "condense_min_fan_in": 2}})
    talk = talk_of([], "filling its target", 16_000, config=config)
    for number in range(1, 400):
        added = make.entries_of(make.turn(number, make.prose(300), make.prose(300)))
        talk.entries = [*talk.entries, *added]
        await talk.compact()
    depths = [entry.depth for entry in talk.entries if isinstance(entry, SummaryEntry)]
    assert max(depths) >= 2
    assert len(depths) > 1
    assert all(len(names) <= 4 for names in talk.sources.values() if names[0].startswith("sum_"))
    assert talk.expanded() == [f"msg_{seq:04}" for seq in range(1, 799)]
    assert len(talk.sources["sum_made_1"]) > 2
