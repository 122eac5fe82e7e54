"""The lineage of sentences, measured on real conversations: what is found, and which changes are caught (docs/measured.md)."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from mnesis_core.compaction.lineage import Claim, Support, Told, align
from mnesis_core.providers.demo_summary import summarise
from mnesis_core.transcripts.locomo import date_of

HELD = (Support.QUOTED, Support.SUPPORTED)
NAMES = ("Wolfgang", "Ingeborg", "Ottoline", "Casimir")


class Talk(NamedTuple):
    """One meeting of two people, what another model wrote of it, and the statements it found in it with their evidence."""

    told: list[Told]
    text: str
    summary: str
    observed: list[tuple[str, set[str]]]


@pytest.fixture
def talks(real_data: Path) -> list[Talk]:
    samples = json.loads((real_data / "locomo" / "locomo2.json").read_text())
    return [talk for sample in samples for talk in read(sample)]


def read(sample: dict[str, Any]) -> Iterator[Talk]:
    said = sample["conversation"]
    for name in (name for name in said if re.fullmatch(r"session_\d+", name)):
        when = said[f"{name}_date_time"]
        day = date_of(when)
        assert day is not None
        told = [
            Told(
                source_id=one["dia_id"],
                ref="",
                text=f"{one['text']} {one.get('blip_caption', '')}",
                about=f"{one['speaker']} {when}",  # whoever wrote the summaries was told the time, too
                day=day.date(),
            )
            for one in said[name]
        ]
        lines = [f"[{at} user, {day.date()}] {one['speaker']}: {one['text']}" for at, one in enumerate(said[name], 1)]
        found = sample["observation"][f"{name}_observation"]
        observed = [(text, {ids} if isinstance(ids, str) else {*ids}) for some in found.values() for text, ids in some]
        yield Talk(told, "\n".join(lines), sample["session_summary"].get(f"{name}_summary", ""), observed)


def count(texts: list[tuple[str, list[Told]]]) -> Counter[str]:
    return Counter(claim.support.value for text, told in texts for claim in align(text, told))


def held(counts: Counter[str]) -> float:
    return sum(counts[support.value] for support in HELD) / counts.total()


def changed(talks: list[Talk], texts: list[str], pattern: str, change: Callable[[str], str]) -> tuple[int, int]:
    """Change one word of each sentence that was held; return how many are not held any more, and how many there are."""
    caught = tried = 0
    for talk, text in zip(talks, texts, strict=True):
        for claim in held_claims(text, talk.told):
            sentence = text[claim.start : claim.end]
            found = re.search(pattern, sentence)
            if found is None:
                continue
            wrong = sentence[: found.start(1)] + change(found[1]) + sentence[found.end(1) :]
            tried += 1
            caught += not any(claim.support in HELD for claim in align(f"- {wrong}", talk.told))
    return caught, tried


def held_claims(text: str, told: list[Told]) -> list[Claim]:
    return [claim for claim in align(text, told) if claim.support in HELD]


@pytest.mark.slow
def test_real_sentences_are_found_and_changed_ones_are_caught(talks: list[Talk]) -> None:
    chance = random.Random(1)
    demo = [summarise(talk.text, 200) for talk in talks]
    written = [talk.summary for talk in talks]
    counts = {
        "demo model": count([(text, talk.told) for text, talk in zip(demo, talks, strict=True)]),
        "another model": count([(talk.summary, talk.told) for talk in talks]),
        "its statements": count([(text, talk.told) for talk in talks for text, _ in talk.observed]),
        "of another talk": count([(talk.summary, talks[at - 3].told) for at, talk in enumerate(talks)]),
    }
    pointed = [
        not ids.isdisjoint(place.source_id for place in claim.places)
        for talk in talks
        for text, ids in talk.observed
        for claim in held_claims(text, talk.told)
    ]
    number, name = r"(?<![\w.])(\d+)(?![\w.])", r"(?<=[a-z] )([A-Z][a-z]+)\b"
    caught = {
        f"{what}, {of}": changed(talks, texts, pattern, change)
        for of, texts in (("demo model", demo), ("another model", written))
        for what, pattern, change in (
            ("a number", number, lambda digits: str(int(digits) + chance.randint(1, 40))),
            ("a name", name, lambda _: chance.choice(NAMES)),
        )
    }
    for what, counted in counts.items():
        print(f"{what}: {counted.total()} sentences, {held(counted):.0%} held, {dict(counted)}")
    print(f"the evidence is among the places of {sum(pointed)} of {len(pointed)} statements that are held")
    for what, (found, tried) in caught.items():
        print(f"{what} changed: {found} of {tried} caught")
    assert held(counts["demo model"]) > 0.95
    assert held(counts["its statements"]) > 0.9
    assert held(counts["of another talk"]) < 0.1
    assert sum(pointed) > 0.85 * len(pointed)
    assert all(found > 0.9 * tried for found, tried in caught.values())
