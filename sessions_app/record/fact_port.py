"""The port to the app that keeps facts: what an imported transcript brings along.

``compaction_app`` plugs in when Django is ready, so that the record need not import what is built upon it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from mnesis_core.transcripts.values import TranscriptFact

Keep = Callable[[str, Sequence[tuple[TranscriptFact, int]]], int]
"""Writes facts of a session, each with the number of the message that says it, and returns how many are new."""

_keepers: list[Keep] = []


def use(keep: Keep) -> None:
    _keepers[:] = [keep]


def keep_facts(session_id: str, said: Sequence[tuple[TranscriptFact, int]]) -> int:
    return sum(keep(session_id, said) for keep in _keepers) if said else 0
