"""Defects 5, 6, 9, 18, 23 and 40 of the reference library: prompts without the question, or ever new."""

from __future__ import annotations

import json
from dataclasses import asdict
from itertools import pairwise

import pytest

from agents_app.turns import lifecycle
from compaction_app.compact import compact_now
from compaction_app.context.state import load_meter
from compaction_app.queries import list_summaries
from mnesis_core.errors import ModelUnreachable
from mnesis_core.llm.interface import Request, ToolCall
from mnesis_core.providers.answer import estimate_payload
from mnesis_core.providers.scripted import Script, Step
from mnesis_core.records import TurnState
from sessions_app.database.threads import db
from sessions_app.record.turn_queries import usage_of_session
from tests.defects.talks import WORDS, add_turn, is_summary_request, model_of
from tests.support.people.story import history, say, spoken
from tests.support.processes.children import run_child


def contents(request: Request) -> list[str]:
    return [str(message["content"]) for message in request.payload["messages"]]


def asked_of(requests: list[Request]) -> list[Request]:
    return [request for request in requests if not is_summary_request(request)]


async def test_level_3_leaves_the_last_turns_and_the_question_as_they_are(session, script):
    """Defect 5: the deterministic level swallowed the protected turns and the question; the model got neither."""
    model = script(model_of(ModelUnreachable()))
    for index in range(60):
        await db(add_turn, session, f"Question {index}. {WORDS * 8}")
    turn = await say(session, "Where are the ledgers?")
    assert turn.state == TurnState.COMPLETED
    assert {node.level for node in await db(list_summaries, session.id)} == {3}
    *before, question = contents(asked_of(model.requests)[-1])
    assert question == "Where are the ledgers?"
    assert f"Question 59. {WORDS * 8}" in before


@pytest.mark.slow
@pytest.mark.parametrize("window", [4_000, 32_000])
async def test_level_3_fits_the_window_of_the_session_and_never_grows_a_text(alice, script, window):
    """Defect 6: it was sized for 200,000 tokens: 36,888 in a window of 32,000, and more than it had been given."""
    model = script(model_of(ModelUnreachable()))
    session = await db(lifecycle.create_session, owner=alice, config={"context_window": window})
    while (meter := await db(load_meter, session.id)).used_tokens <= meter.hard_tokens:
        await db(add_turn, session, WORDS * 8)
    await say(session, "Where are the ledgers?")
    nodes = await db(list_summaries, session.id)
    assert nodes
    assert all(node.token_count <= 512 and node.token_count < node.source_tokens for node in nodes)
    assert (await db(load_meter, session.id)).used_tokens < meter.usable_tokens
    assert estimate_payload(asked_of(model.requests)[-1].payload) < meter.usable_tokens


async def test_a_needle_in_a_talk_that_was_summarised_is_found_by_the_model(session, script):
    """Defect 9: nothing that left the context could be reached again, and no id of it stood there."""
    found: list[str] = []

    def answer(request: Request) -> Script:
        if is_summary_request(request):
            return "- They moved the ledgers."
        if request.payload["messages"][-1]["role"] == "tool":
            found.append(contents(request)[-1])
            return "Found."
        return ToolCall(id="1", name="lcm_grep", arguments='{"pattern": "heron"}')

    model = script(answer)
    for index in range(40):
        await db(add_turn, session, f"Question {index}. {'The code word is heron-4711. ' * (index == 20)}{WORDS * 8}")
    await db(compact_now, session.id)
    await say(session, "What was the code word?")
    shown = [text for text in contents(asked_of(model.requests)[0]) if not text.startswith("<passages>")]
    assert "heron-4711" not in "\n".join(shown)
    assert (await db(list_summaries, session.id))[0].id in "\n".join(shown)
    assert "heron-4711" in found[0]


async def test_a_providers_error_is_not_the_assistants_word(session, script):
    """Defect 18: "[Error: …]" was stored as the answer and sent to the model with the next question."""
    error = ModelUnreachable("The server at mnemosyne.example is away.")
    model = script(Step(text="I was about to", error=error), "Here I am.")
    turn = await say(session, "Are you there?")
    assert (turn.state, turn.error_code) == (TurnState.INTERRUPTED, "MODEL_UNREACHABLE")
    assert spoken((await history(session))[1]) == "I was about to"
    await say(session, "And now?")
    sent = json.dumps(model.requests[-1].payload)
    assert "mnemosyne" not in sent
    assert "Error" not in sent


def state_of(session_id: str) -> dict[str, object]:
    meter, usage = asdict(load_meter(session_id)), asdict(usage_of_session(session_id))
    return {"meter": meter, "usage": usage}


def main(session_id: str) -> int:
    """What another process knows of a session."""
    print(json.dumps(state_of(session_id)))
    return 0


@pytest.mark.slow
async def test_another_process_knows_as_much_of_a_session(session, script):
    """Defect 23: counters began at 0 whenever a session was loaded, and snapshots and events were gone."""
    script(model_of())
    for index in range(20):
        await db(add_turn, session, f"Question {index}. {WORDS * 8}")
    await say(session, "Where are the ledgers?")
    await db(compact_now, session.id)
    here = await db(state_of, session.id)
    there = await db(lambda: run_child(__name__, session.id))
    assert json.loads(there) == json.loads(json.dumps(here))


def is_passages(message: dict[str, object]) -> bool:
    return str(message["content"]).startswith("<passages>")


async def test_the_prompt_only_grows_at_its_end_between_compactions(session, script):
    """Defect 40: summaries came and moved with every turn, so no provider's cache could ever help."""
    calls = iter(range(1, 1_000))

    def answer(request: Request) -> Script:
        if is_summary_request(request):
            return "- They moved the ledgers."
        number = next(calls)
        return (
            f"Answer {number}."
            if number % 2
            else ToolCall(id=f"c{number}", name="calculator", arguments='{"expression": "1+1"}')
        )

    model = script(answer)
    for _ in range(2):
        begun = len(asked_of(model.requests))
        for index in range(5):
            await say(session, f"Question {index}. {WORDS * 4}")
        requests = asked_of(model.requests)[begun:]
        assert len(requests) > 5
        for request, later in pairwise(requests):
            # The passages stand before the newest question, and only there.
            known, now = (
                [one for one in sent.payload["messages"] if not is_passages(one)] for sent in (request, later)
            )
            assert now[: len(known)] == known
            assert later.payload.get("tools") == request.payload.get("tools")
        assert (await db(compact_now, session.id)).summary_ids
