"""Statements that a person has forbidden, recognised by their words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from mnesis_core.search.words import readable, words_in_order


def is_forbidden(statement: str, forbidden: Iterable[str]) -> bool:
    """Return whether a statement says the same as a forbidden one, contains it, or is contained in it.

    Words count in their order, as a search folds them: case, accents and punctuation make no difference.
    """
    said = _words(statement)
    return any(_contains(said, words) or _contains(words, said) for words in map(_words, forbidden))


def _words(text: str) -> list[str]:
    # Signs alone have no words, and are then what they are.
    return words_in_order(readable(text)) or text.split()


def _contains(words: Sequence[str], some: Sequence[str]) -> bool:
    size = len(some)
    return size > 0 and any(words[start : start + size] == some for start in range(len(words) - size + 1))
