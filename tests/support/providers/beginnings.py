"""A provider's cache that finds the beginning of a prompt by itself, as OpenAI's and Gemini's do.

* OpenAI, https://platform.openai.com/docs/guides/prompt-caching: from 1,024 tokens on, in steps of 128. What is kept goes
  after five to ten minutes without use; here after five.
* Gemini, https://ai.google.dev/gemini-api/docs/caching ("implicit caching"): the minimum is 2,048 tokens for Gemini 2.5 and
  4,096 for later ones. How long it lasts is not said ("a short amount of time"); here as long as OpenAI's.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.support.providers.prompts import CHARACTERS_PER_TOKEN, Prompt

IDLE_SECONDS = 300.0
MOST_KEPT = 20  # prompts


@dataclass(frozen=True, slots=True)
class Steps:
    """How much of a prompt may be read, in tokens."""

    least: int
    step: int = 1


OPENAI = Steps(least=1_024, step=128)


def steps_of_gemini(model: str) -> Steps:
    return Steps(least=2_048 if "2.5" in model else 4_096)


@dataclass(slots=True)
class Beginnings:
    _kept: dict[str, float] = field(default_factory=dict)  # the texts of prompts, and when each was last used

    def read(self, prompt: Prompt, steps: Steps, *, now: float) -> int:
        """Return how many tokens of a prompt are read, and keep it. What is read is kept for longer."""
        self._kept = {text: used for text, used in self._kept.items() if now < used + IDLE_SECONDS}
        best, common = "", 0
        for text in self._kept:
            if (length := _common(prompt.text, text)) > common:
                best, common = text, length
        tokens = common // CHARACTERS_PER_TOKEN
        is_read = tokens >= steps.least
        for used in [best, prompt.text] if is_read else [prompt.text]:
            self._kept.pop(used, None)
            self._kept[used] = now
        while len(self._kept) > MOST_KEPT:
            del self._kept[next(iter(self._kept))]
        return tokens // steps.step * steps.step if is_read else 0


def _common(one: str, other: str) -> int:
    """Return how many characters two texts begin with in common."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low
