"""The one search behind every endpoint: a question is ranked, and exact words, phrases and patterns are found as asked."""

from __future__ import annotations

import re
from dataclasses import replace

from mnesis_core.errors import InvalidRequest
from mnesis_core.search.words import LONGEST_QUERY, parse_words
from sessions_app.search.passages import with_passages
from sessions_app.search.ranked import search_ranked
from sessions_app.search.search import Mode, Scope, SearchResult, search

AROUND = 2
"""Messages on both sides of a hit that are its passage, if nothing else is asked for."""
MOST_AROUND = 10
NOTHING_EXACT = "No text has all of this; these passages have most of it."
# What asks for exactly this: words in quotes, or the beginning of a word with a star.
_EXACT = re.compile(r"[\"“”„][^\"“”„]+[\"“”„]|\w\*(?:\s|$)")


def answer(
    scope: Scope,
    text: str,
    *,
    mode: Mode = "ranked",
    limit: int = 20,
    cursor: str | None = None,
    around: int | None = None,
) -> SearchResult:
    """Search as asked. Where no text has all words of an exact search, the best passages come instead, with a note.

    :param around: messages on both sides of each hit; by default two of a ranked one, and none of others
    :raises InvalidRequest: the text or the cursor cannot be understood.
    """
    is_ranked = cursor[:1] == "r" if cursor else mode == "ranked" and not _is_exact(text)
    if mode == "regex" or not is_ranked:
        exact: Mode = "regex" if mode == "regex" else "text"
        found = search(scope, text, mode=exact, limit=limit, cursor=cursor)
        if mode == "regex" or cursor or found.hits or found.more:
            return replace(found, hits=tuple(with_passages(found.hits, {}, around=around or 0)))
    ranked = search_ranked(scope, text, limit=limit, cursor=cursor, around=AROUND if around is None else around)
    why = NOTHING_EXACT if ranked.hits and not is_ranked else ""
    return replace(ranked, note=" ".join(filter(None, (why, ranked.note))))


def _is_exact(text: str) -> bool:
    if len(text) > LONGEST_QUERY or not _EXACT.search(text):
        return False
    try:
        parse_words(text)
    except InvalidRequest:
        return False
    return True
