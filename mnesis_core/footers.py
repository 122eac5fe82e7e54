"""The footer by which a summary names the files of its sources, and the summaries that it stands for.

It is the engine's work, never the model's (seed 000, LCM paper 2.2): what a model writes there is replaced.
"""

from __future__ import annotations

from dataclasses import dataclass

_START = "[LCM "
FILES = f"{_START}File IDs:"
SUMMARIES = f"{_START}Summary IDs:"


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The ids that a summary has to name."""

    summaries: tuple[str, ...] = ()
    """What a condensed summary was made of, in order."""
    files: tuple[str, ...] = ()
    """Every file named in its source."""


NO_IDS = Named()


def with_footer(text: str, named: Named) -> str:
    """The summary with its footer; one that was there is replaced, none is written for no ids."""
    lines = [
        f"{start} {', '.join(dict.fromkeys(ids))}]"
        for start, ids in ((SUMMARIES, named.summaries), (FILES, named.files))
        if ids
    ]
    body = without_footer(text)
    return "\n\n".join((body, "\n".join(lines))) if lines else body


def without_footer(text: str) -> str:
    """The summary without its footer, in linear time."""
    end = len(text.rstrip())
    start = _footer_before(text, end)
    while start >= 0:
        end = start
        while end and text[end - 1].isspace():
            end -= 1
        start = _footer_before(text, end)
    return text[:end]


def _footer_before(text: str, end: int) -> int:
    """Where the footer begins that reaches up to ``end``; -1: there is none."""
    start = text.rfind(_START, 0, end)
    if start < 0 or not text.startswith((FILES, SUMMARIES), start, end):
        return -1
    return start if text.find("]", start, end) == end - 1 else -1
