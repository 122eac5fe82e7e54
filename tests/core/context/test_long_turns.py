"""Sessions lived step by step: what the next prompt holds, in any window and with turns of any length."""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from mnesis_core.context.additions import MOST_PASSED, take_refill
from mnesis_core.context.entries import Assembled, SummaryEntry
from mnesis_core.context.fitting import LastRun, should_compact, whole
from mnesis_core.messages import StoredMessage
from tests.core.context import contexts as make
from tests.support.material.imagined_talks import Talk, talk_of


@dataclass(slots=True, kw_only=True)
class Life:
    """A session that is compacted as its turns would ask for it, at every step."""

    talk: Talk
    last: LastRun | None = None
    compactions: int = 0
    prompt: Assembled | None = None
    begun_anew: int = 0
    """Prompts that do not begin with the one before, although nothing was compacted: for lack of room."""

    async def step(self, message: StoredMessage) -> Assembled:
        talk = self.talk
        talk.entries = [*talk.entries, *make.entries_of([message])]
        talk.questions += [message] if message.role == "user" else []
        talk.said.append(message)
        used = talk.situation().used
        trigger = should_compact(used=used, budget=talk.budget, config=talk.config, last=self.last)
        before = talk.entries
        if trigger.compact:
            await talk.compact()
            talk.plan()
            self.last = LastRun(tokens=talk.situation().used, failed=False)
            self.compactions += talk.entries != before
        last, self.prompt = self.prompt, talk.assembled(self.prompt if talk.entries == before else None)
        if last and talk.entries == before and self.prompt.messages[: len(last.messages)] != last.messages:
            new = whole(talk.entries[-1]).tokens
            assert last.used_tokens + new > talk.budget.usable, "what was sent changes for lack of room only"
            self.begun_anew += 1
        return self.prompt


def turns_of(
    seed: int, turns: list[int], size: int, *, giant: int = 0, task: int = 20, calls: int = 1
) -> list[StoredMessage]:
    """Turns of so many steps each, of about ``size`` tokens a step: some of a tenth of it, some of three times as much.

    One step in ten is ``giant``, or half as large, or up to twice as large, and has so many ``calls``. Every other task
    has about ``task`` tokens.
    """
    random, messages = Random(seed), list[StoredMessage]()
    for turn, steps in enumerate(turns):
        name = f"turn_{turn}"
        messages.append(
            make.message(len(messages) + 1, "user", f"Task {turn}. {make.prose(20 if turn % 2 else task)}", turn=name)
        )
        for _ in range(steps):
            tokens, count = int(size * random.choice([0.1, 0.3, 0.5, 1, 1, 1, 2, 3])), 1
            if giant and random.random() < 0.1:
                tokens, count = int(giant * random.uniform(0.5, 2)), calls
            each, wrote = make.prose(tokens // count), f'{{"content": "{make.prose(tokens if count > 1 else 4)}"}}'
            made = [
                make.tool(output=each, input="{}" if number else wrote, tool_call_id=f"call_{len(messages)}_{number}")
                for number in range(count)
            ]
            messages.append(make.message(len(messages) + 1, "assistant", "Let me look.", *made, turn=name))
        messages.append(make.message(len(messages) + 1, "assistant", "Done.", turn=name))
    return messages


async def live(
    window: int,
    turns: list[int],
    *,
    seed: int = 1,
    size: int = 0,
    kind: str = "filling its target",
    giant: float = 0,
    task: float = 0,
    calls: int = 1,
) -> Life:
    """Live such turns in a window and check every prompt on the way."""
    life = Life(talk=talk_of([], kind, window))
    budget, question = life.talk.budget, ""
    size, giant_size, task_size = size or max(20, budget.usable // 60), giant * budget.usable, task * budget.usable
    messages = turns_of(seed, turns, size, giant=int(giant_size), task=max(20, int(task_size)), calls=calls)
    for message in messages:
        prompt = await life.step(message)
        question = message.id if message.role == "user" else question
        check(prompt, life, message, question)
    assert life.talk.expanded() == [message.id for message in messages]
    return life


def check(prompt: Assembled, life: Life, newest: StoredMessage, question: str) -> None:
    usable = life.talk.budget.usable
    asked = {message.id for message in life.talk.questions}
    assert prompt.used_tokens <= usable
    rows = {row["id"]: row for row in prompt.manifest if row["kind"] in ("message", "pinned")}
    for id in (newest.id, question) if newest.token_estimate <= usable // 2 else (question,):
        assert not rows[id]["shortened"] + rows[id]["omitted"]
    seqs = {row["seq"] for row in rows.values() if row["kind"] == "message" or row["id"] not in asked}
    missing = set(range(min(seqs - {rows[question]["seq"]}, default=newest.seq), newest.seq)) - seqs
    assert not missing, "nothing newer is left out for something older but the question"
    for message in prompt.messages:
        assert {call.id for call in message.tool_calls} == {result.call_id for result in message.tool_results}
    if life.compactions:
        assert prompt.used_tokens >= 0.5 * usable
    else:
        assert not prompt.left_out or prompt.used_tokens >= 0.7 * usable


windows = st.sampled_from([2_000, 4_000, 8_000, 12_000, 32_000, 128_000, 200_000, 1_000_000, 2_000_000])


@pytest.mark.slow
@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(windows, st.lists(st.integers(0, 120), min_size=1, max_size=6), st.integers(0, 10**6))
@example(window=12_000, turns=[40, 0], seed=1)
@example(window=32_000, turns=[72, 70, 0], seed=2)
async def test_every_prompt_of_a_long_session_is_well_filled(window: int, turns: list[int], seed: int) -> None:
    await live(window, turns, seed=seed)


@pytest.mark.slow
@settings(max_examples=4, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.integers(2_000, 2_000_000),
    st.lists(st.one_of(st.integers(1, 40), st.integers(1, 1_000)), min_size=1, max_size=2),
    st.integers(0, 10**6),
)
async def test_turns_of_any_length_leave_well_filled_prompts_in_any_window(
    window: int, turns: list[int], seed: int
) -> None:
    await live(window, turns, seed=seed, size=max(20, window // 90))


@pytest.mark.slow
@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([4_000, 8_000, 12_000, 32_000]),
    st.lists(st.integers(0, 60), min_size=1, max_size=4),
    st.integers(0, 10**6),
    st.sampled_from([0.2, 0.4, 0.6, 0.9, 2]),
    st.sampled_from([1, 4, 12]),
)
@example(window=12_000, turns=[40, 0], seed=1, giant=0.6, calls=1)
@example(window=4_000, turns=[32], seed=0, giant=0.4, calls=1)
@example(window=4_000, turns=[32], seed=0, giant=2, calls=12)
async def test_prompts_stay_well_filled_when_steps_of_half_a_window_leave(
    window: int, turns: list[int], seed: int, giant: float, calls: int
) -> None:
    await live(window, turns, seed=seed, giant=giant, calls=calls)


@pytest.mark.parametrize("window", [4_000, 8_000, 12_000, 32_000])
async def test_prompts_stay_well_filled_when_a_new_task_takes_the_place_of_a_long_one(window: int) -> None:
    await live(window, [60, 3, 30, 2, 0, 0, 30, 3], task=0.3)


@pytest.mark.slow
@pytest.mark.parametrize("window", [2_000, 12_000])
async def test_a_turn_of_four_thousand_steps_is_summarised_while_it_runs(window: int) -> None:
    life = await live(window, [4_000, 1])
    assert life.compactions > 100
    depths = [entry.depth for entry in life.talk.entries if isinstance(entry, SummaryEntry)]
    assert max(depths) >= 2


@pytest.mark.parametrize("kind", ["good", "failing", "verbose"])
async def test_any_model_s_summaries_leave_half_of_the_window(kind: str) -> None:
    await live(8_000, [60, 60, 3], kind=kind)


def test_where_nothing_of_the_newest_step_can_be_shown_an_older_one_is() -> None:
    asked = make.message(1, "user", make.prose(100))
    wrote = make.tool(name="write", input=f'{{"content": "{make.prose(5_000)}"}}', tool_call_id="call_1")
    long, short = make.message(2, "assistant", "Let me write.", wrote), make.message(3, "assistant", "Done.")
    assert [item.row["seq"] for item in take_refill([asked, long], 150)] == [1]
    assert [item.row["seq"] for item in take_refill([asked, long, short], 150)] == [3], "nothing behind a gap"
    assert take_refill([long], 150) == []
    many = [replace(long, seq=seq, id=f"msg_{seq:04}") for seq in range(2, 2 + MOST_PASSED + 1)]
    assert [item.row["seq"] for item in take_refill([asked, *many[1:]], 150)] == [1]
    assert take_refill([asked, *many], 150) == [], "trying another costs a squeeze"
