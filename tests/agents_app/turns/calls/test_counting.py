"""What a turn teaches about a model's way of counting, and where the next session begins."""

from __future__ import annotations

import pytest

from agents_app.turns import lifecycle
from compaction_app.context.state import load_meter
from mnesis_core.llm.interface import ModelSpec, Request, Usage
from mnesis_core.llm.interface import Source as CountedBy
from mnesis_core.providers.answer import estimate_payload
from mnesis_core.providers.scripted import Step
from sessions_app.conf import get_spec
from sessions_app.database.threads import db
from sessions_app.llm.model_store import put_model
from sessions_app.record.turn_queries import list_calls
from tests.support.people.story import say


def counting(factor: float, source: CountedBy = CountedBy.PROVIDER):
    """A model that answers in a word and counts so much more than we do."""

    def answer(request: Request) -> Step:
        tokens = int(estimate_payload(request.payload) * factor)
        return Step(text="Noted.", usage=Usage(input_tokens=tokens, output_tokens=2, source=source))

    return answer


WORDS = "The tide gauge at Portwell reads forty one. " * 20


async def test_a_session_learns_from_its_provider_and_says_how_well(session, script):
    script(counting(1.5))
    before = await db(load_meter, session.id)
    assert (before.source, before.ratio, before.samples, before.error) == ("estimated", 1.0, 0, None)
    for _ in range(4):
        await say(session, WORDS)
    after = await db(load_meter, session.id)
    assert (after.source, after.samples) == ("provider", 4)
    assert 1.2 < after.ratio < 1.6
    assert 0 < after.error < 0.4
    stored = [call.parameters["calibration"]["samples"] for call in await db(list_calls, session.id)]
    assert stored == [3, 2, 1, 0]


async def test_a_report_that_is_no_providers_teaches_nothing(session, script):
    script(counting(1.5, CountedBy.ESTIMATED))
    await say(session, WORDS)
    assert (await db(load_meter, session.id)).source == "estimated"


@pytest.fixture
def row(transactional_db) -> ModelSpec:
    """The model of these sessions as an entry that can keep what is learnt."""
    spec = ModelSpec(alias="demo", litellm_model="scripted/demo", context_window=8_000, max_output_tokens=1_000)
    put_model(spec)
    return spec


async def test_a_new_session_begins_with_what_others_have_learnt_of_its_model(row, alice, session, script):
    asked = script(counting(1.5))
    for _ in range(3):
        asked.spec = await db(get_spec, "demo", user_id=None)
        await say(session, WORDS)
    learnt = (await db(load_meter, session.id)).ratio
    other = await db(lifecycle.create_session, owner=alice)
    meter = await db(load_meter, other.id)
    assert (meter.source, meter.samples, meter.error) == ("model", 0, None)
    assert 1.1 < meter.ratio <= learnt
    await say(other, WORDS)
    assert (await db(load_meter, other.id)).source == "provider"


async def test_an_entry_that_is_replaced_begins_anew(row, session, script):
    script(counting(1.5))
    await say(session, WORDS)
    assert (await db(get_spec, "demo", user_id=None)).shared_ratio > 1.1
    await db(put_model, row)
    assert (await db(get_spec, "demo", user_id=None)).shared_ratio is None
