"""A quotation is a place in what was said, or it is none: the check that no fact is invented."""

from __future__ import annotations

from collections.abc import Iterable

from mnesis_core.facts.values import Place
from mnesis_core.messages import StoredMessage, TextPart
from mnesis_core.text import encode_text

LONGEST_QUOTE = 2_000
SPEAKERS = ("user", "assistant")
"""The roles whose words a fact may quote. A tool's output or a file states no fact by itself."""


def find_quote(messages: Iterable[StoredMessage], quote: str) -> Place | None:
    """Return the first place where exactly these words were said; ``None`` if they were not.

    Every character counts, case and white space within the quotation too. A quotation begins and ends with whole words.
    """
    wanted = encode_text(quote.strip())
    if not wanted or len(wanted) > LONGEST_QUOTE:
        return None
    for message in messages:
        for stored in message.parts if message.role in SPEAKERS else ():
            if not isinstance(stored.part, TextPart):
                continue
            start = find_words(encode_text(stored.part.text), wanted)
            if start is not None:
                return Place(part_id=stored.id, start=start, end=start + len(wanted))
    return None


def find_words(text: str, wanted: str) -> int | None:
    """Return where a text has these characters first, with whole words at both ends; both texts as they are stored."""
    start = text.find(wanted)
    while start >= 0:
        end = start + len(wanted)
        if not _is_within_word(text, start) and not _is_within_word(text, end):
            return start
        start = text.find(wanted, start + 1)
    return None


def _is_within_word(text: str, index: int) -> bool:
    return 0 < index < len(text) and _is_of_word(text[index - 1]) and _is_of_word(text[index])


def _is_of_word(character: str) -> bool:
    # Scripts without upper and lower case often have no spaces between words either, so any of their characters may begin one.
    return character.isdigit() or character.lower() != character.upper()
