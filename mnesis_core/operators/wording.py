"""What the engine says beside a run's own words: by version, since past questions are made again from it.

Whoever changes a word adds a version and keeps those before.
"""

from __future__ import annotations

from dataclasses import dataclass

MARKER = "MNESIS-MAP"
"""In every system text: by it a model, or a gateway, knows what is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The words of one version."""

    version: str
    """Name and version, as of the prompts of summaries."""
    alone: str
    """Of the system text: what an answer is for."""
    with_schema: str
    """Before the schema."""
    again: str
    """After what is wrong with an answer."""


FIRST = Wording(
    version="map.1",
    alone=f"{MARKER}\nThis is one of many items that are worked on one by one. A program reads your answer, nobody else does: "
    "no greeting, no question back, no remark.",
    with_schema="Answer with one JSON value that fits this JSON Schema, and with nothing before or after it:",
    again="Write the whole answer again, corrected.",
)
CURRENT = FIRST
KNOWN = {one.version: one for one in (FIRST,)}


def wording_of(version: str) -> Wording:
    """The words of a version.

    :raises ValueError: it is none that is known here.
    """
    if version not in KNOWN:
        raise ValueError(f"the prompt {version} of then is not known here")
    return KNOWN[version]
