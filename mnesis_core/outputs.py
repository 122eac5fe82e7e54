"""What of a long tool output stays in the conversation: its two ends, and where the whole of it is."""

from __future__ import annotations

import re

_OPENING = "[The whole of this output is "
_WHOLE = re.compile(re.escape(_OPENING) + r"(file_[0-9A-HJKMNP-TV-Z]{26}), ")
OUTPUTS = "tool-outputs/"
"""What the paths of files begin with that are outputs of tools: their contents are kept here."""
HEAD_SHARE = 0.7
"""Of what stays, the beginning: it says what the output is; the end says how it came out."""


def shorten_output(output: str, characters: int, *, file_id: str) -> str:
    """The two ends of an output, together ``characters`` long, and what is missing and which file has it.

    That stands first: whoever shortens this text again, for a small window or a preview, keeps its beginning.
    ``output`` must be longer than ``characters``.
    """
    head = int(characters * HEAD_SHARE)
    tail = characters - head
    missing = f"{len(output) - characters:,} characters left out here"
    said = (
        f"{_OPENING}{file_id}, with {len(output):,} characters; lcm_read reads it. Its beginning and its end follow.]"
    )
    return f"{said}\n{output[:head]}\n[… {missing} …]\n{output[len(output) - tail :]}"


def file_of_output(text: str) -> str:
    """The id of the file that has the whole of a shortened output; empty for any other text. Its beginning is enough."""
    found = _WHOLE.match(text)
    return found[1] if found else ""


def cap_output(output: str, characters: int) -> str:
    """An output that is kept whole, or its beginning and how long it was."""
    if len(output) <= characters:
        return output
    said = f"{len(output):,} characters, of which {characters:,} were kept"
    return f"{output[:characters]}\n[cut: the output had {said}]"
