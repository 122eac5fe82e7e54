"""Payloads of real conversations, for every provider."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from mnesis_core.context.assembly import assemble
from mnesis_core.messages import StoredMessage
from mnesis_core.providers.rendering import render
from mnesis_core.transcripts.values import Transcript
from tests.core.context import contexts as make
from tests.core.providers.rendering import (
    test_rendering_anthropic,
    test_rendering_gemini,
    test_rendering_openai_responses,
)
from tests.core.providers.rendering.rendered import Answered, Called, read
from tests.support.material.samples import read_samples

CHECKS = {
    "openai_responses": test_rendering_openai_responses.assert_accepted,
    "anthropic": test_rendering_anthropic.assert_accepted,
    "gemini": test_rendering_gemini.assert_accepted,
}


def stored(transcript: Transcript) -> Iterator[StoredMessage]:
    numbered = ((turn.external_id, message) for turn in transcript.turns for message in turn.messages)
    for seq, (turn, message) in enumerate(numbered, start=1):
        yield make.message(seq, message.role, *message.parts, turn=turn)


@pytest.mark.parametrize("usable", [8_000, 500_000])
@pytest.mark.parametrize("provider", CHECKS)
def test_every_provider_accepts_them(real_data: Path, provider: str, usable: int) -> None:
    calls = 0
    for sample in read_samples(real_data):
        entries = make.entries_of(list(stored(sample.transcript)))
        prompt = assemble(entries, system_prompt="Be brief.", tools=(make.CALCULATOR,), budget=make.budget(usable))
        payload = render(prompt, provider=provider)
        CHECKS[provider](payload)
        said = read(payload, provider)
        assert [item.id for item in said if isinstance(item, Called)] == [
            item.id for item in said if isinstance(item, Answered)
        ]
        calls += sum(isinstance(item, Called) for item in said)
    assert calls == 186 or usable < 500_000
