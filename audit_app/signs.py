"""One line of a page about health: what was looked at, how it is, and what to do about it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class State(StrEnum):
    """How something is; the word that the page shows."""

    GOOD = "good"
    NOTE = "note"
    LOOK = "look"
    PROBLEM = "problem"


@dataclass(frozen=True, slots=True, kw_only=True)
class Check:
    """One thing that was looked at."""

    name: str
    state: State
    words: str
    """How it is, in a sentence."""
    to_do: str = ""
    """What to do about it; empty: nothing."""
    address: str = ""
    """Where more is to be seen."""
    label: str = ""
    """What the link to there says."""
