"""Bytes of no known kind: how many, and what text is in their beginning."""

from __future__ import annotations

import re

from mnesis_core.exploration.findings import Findings, counted, listed
from mnesis_core.exploration.source import HEAD_BYTES, Source

VERSION = 1
_WORDS = re.compile(rb"[\x20-\x7e]{6,200}")


def explore(source: Source) -> Findings:
    """Count the bytes and name what can be read in the first of them, as ``strings`` does."""
    head = source.head()
    words = dict.fromkeys(match.decode("ascii").strip() for match in _WORDS.findall(head))
    return Findings(
        lines=(
            counted(source.size, "byte"),
            f"It begins with the bytes {head[:16].hex(' ')}",
            f"Readable in it: {listed(word for word in words if word)}",
        ),
        covered="all of it" if source.size <= HEAD_BYTES else f"the first {HEAD_BYTES:,} of {source.size:,} bytes",
    )
