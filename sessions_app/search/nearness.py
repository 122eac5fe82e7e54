"""Nearness of messages to a question by the site's embedding model, within the scope of a search.

Rights and filters are in the statement that finds candidates, as in the search by words. Signs of vectors are compared
first, which is cheap, and whole vectors only of those that may be near, so that no extension of a database is needed.
"""

# ruff: noqa: S608 - names in these statements are constants; user text is passed as values.

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import lru_cache, partial
from typing import NamedTuple

from mnesis_core.llm.interface import ModelSpec
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.search.meaning import Nearness, cosine, likely_near, signs_of, unpacked
from mnesis_core.search.ranking import Place
from sessions_app.conf import embedding_spec, get_embedder, site_config
from sessions_app.database.tables import fetch
from sessions_app.database.threads import waiting_for
from sessions_app.search.rest import Rest, drawing
from sessions_app.search.search import Scope, condition_of
from sessions_app.search.vectors import embed, longest_text, text_of

MOST_VECTORS = 10_000
"""The number of messages, the newest ones, that are searched by meaning."""
MOST_NEAR, SAMPLE = 250, 100
"""The numbers of vectors that are compared in full: those that may be near, and a sample, which says what is usual."""
REST = Rest("The embedding model of the search does not answer; words alone do")

_SIGNS = """
    SELECT e.session_id, e.first_seq, v.part_id, v.signs FROM search_entries e JOIN search_vectors v ON v.part_id = e.source_id
    WHERE e.kind = 'messages' AND e.start = 0 AND v.model = %s AND e.id < %s{condition}
    ORDER BY e.id DESC LIMIT %s"""


class Asked(NamedTuple):
    """A question as an embedding model sees it."""

    model: str
    vector: bytes


def read_question(text: str, *, owner_id: int) -> Asked | None:
    """Return the vector of a question; ``None`` where words alone answer: no model is set, or it fails, which is logged.

    :raises BudgetExhausted: a limit of the person who asks is used up.
    """
    if not site_config().search.embedding_model:
        return None
    return REST.ask(partial(_asked, text, owner_id))


def _asked(text: str, owner_id: int) -> Asked | None:
    spec = embedding_spec()
    if spec is None or not (said := text_of(text)[: longest_text(spec)]):
        return None
    return Asked(spec.litellm_model, _vector_of(spec, said, owner_id))


@lru_cache(maxsize=256)
def _vector_of(spec: ModelSpec, text: str, owner_id: int) -> bytes:
    # Kept, because every page of an answer asks again, and must be ranked like the one before.
    seconds = site_config().search.question_seconds
    with drawing(owner_id, spec, tokens=estimate_text(text)) as tell:
        embedded = waiting_for(embed, own_loop=True)(get_embedder(spec), [text], seconds=seconds)
        tell(embedded.usage.total_tokens)
    return embedded.vectors[0]


def nearness(
    scope: Scope,
    asked: Asked,
    *,
    below: int,
    place_of: Callable[[str, int], Place],
    candidates: Collection[Place],
) -> Nearness:
    """Return how near messages are to a question: those that may be nearest, and the given candidates.

    :param place_of: numbers a message
    """
    condition, values = condition_of(scope)
    if scope.before_seq is not None:
        condition, values = f"{condition} AND e.first_seq < %s", [*values, scope.before_seq]
    signs = signs_of(asked.vector)
    found = fetch(_SIGNS.format(condition=condition), [asked.model, below, *values, MOST_VECTORS])
    rows = [row for row in found if len(row[3]) == len(signs)]
    places = {part_id: place_of(session_id, seq) for session_id, seq, part_id, _ in rows}
    ids = [row[2] for row in rows]
    near = likely_near([bytes(row[3]) for row in rows], signs, most=MOST_NEAR)
    sample = ids[:: max(1, len(ids) // SAMPLE)]
    wanted = {ids[at] for at in near} | {id for id in ids if places[id] in candidates} | {*sample}
    question = unpacked(asked.vector)
    cosines = {
        id: cosine(question, unpacked(numbers)) for id, numbers in _numbers(wanted) if len(numbers) == len(asked.vector)
    }
    by_place: dict[Place, float] = {}
    for id, value in cosines.items():
        by_place[places[id]] = max(value, by_place.get(places[id], -1.0))
    return Nearness(by_place, usual=[cosines[id] for id in sample if id in cosines])


def _numbers(part_ids: Collection[str]) -> list[tuple[str, bytes]]:
    if not part_ids:
        return []
    marks = ", ".join(["%s"] * len(part_ids))
    rows = fetch(f"SELECT part_id, numbers FROM search_vector_numbers WHERE part_id IN ({marks})", sorted(part_ids))
    return [(id, bytes(numbers)) for id, numbers in rows]
