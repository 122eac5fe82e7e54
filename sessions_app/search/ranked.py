"""Ranked search: the index is asked for each word of a question, and what it finds is ranked
(``mnesis_core.search.ranking``).

Where the site has an embedding model, what is near by meaning counts too, and where it has a reranker, the reranker
reads the best of it. Rights and filters are in every statement, as in the exact search. However long a history is, a
bounded number of postings is read, those of the rarest words first; a word that is everywhere in a long history is not
read at all.
"""

# ruff: noqa: S608 - names in these statements are constants; user text is passed as values.

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, NamedTuple, TypeVar

from django.db import connection
from django.utils.translation import gettext_noop

from mnesis_core.context.branches import are_in
from mnesis_core.errors import BudgetExhausted, InvalidRequest
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.llm.search_models import Reranker
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import TextPart
from mnesis_core.providers.litellm_ import close_connections
from mnesis_core.search.ranking import (
    POOL,
    SESSION,
    Evidence,
    Nearness,
    Place,
    Posting,
    Question,
    Ranked,
    Turn,
    beside,
    blend,
    choose_terms,
    cosine,
    likely_near,
    parse_question,
    rank,
    signs_of,
    unpacked,
    with_scores,
)
from mnesis_core.search.words import LONGEST_QUERY, fold, parse_words, readable, snippet
from mnesis_core.text import decode_text
from sessions_app.conf import embedding_spec, get_embedder, get_reranker, rerank_spec, site_config
from sessions_app.database.tables import fetch, select_columns, time_of
from sessions_app.database.threads import waiting_for
from sessions_app.models import Message
from sessions_app.search.index import PIECE, SOURCES, engine
from sessions_app.search.rest import Rest, drawing
from sessions_app.search.search import (
    ENTRY,
    NEWEST,
    Candidate,
    Mode,
    Scope,
    SearchResult,
    condition_of,
    hits_of,
    messages_in,
    search,
    speakers_of,
    with_passages,
    with_texts,
)
from sessions_app.search.vector_store import embed, longest_text, text_of

MOST_POSTINGS, MOST_OF_TERM = 1_500, 500
"""The number of postings read for all words of a question, and for one of them; the newest are read."""
LONGEST_HIT = 480
"""The number of characters shown of a hit among the messages around it."""

_POSTING = "e.id, e.session_id, e.kind, e.first_seq, e.length"
_TURNS = """
    WITH w (session_id, seq, is_read) AS (VALUES {places})
    SELECT {columns}, CASE WHEN w.is_read = 1 THEN (
        SELECT p.content LIKE %s FROM message_parts p WHERE p.message_id = m.id AND p.part_type = 'text'
        ORDER BY p.part_index DESC LIMIT 1
    ) END FROM w JOIN messages m ON m.session_id = w.session_id AND m.seq = w.seq"""
_SAID = f"""
    WITH w (session_id, seq) AS (VALUES {{places}})
    SELECT m.session_id, m.seq, m.id, m.branch, m.role, p.id, substr(p.content, 1, {PIECE})
    FROM w JOIN messages m ON m.session_id = w.session_id AND m.seq = w.seq JOIN message_parts p ON p.id = (
        SELECT q.id FROM message_parts q WHERE q.message_id = m.id AND q.part_type = 'text'
        ORDER BY q.part_index DESC LIMIT 1
    )"""
# A message is filtered as the entry of its text is.
_PASSING = """
    WITH w (session_id, first_seq) AS (VALUES {places}), e AS (
        SELECT session_id, first_seq, 'messages' AS kind, 'content' AS field, '' AS source_id FROM w
    )
    SELECT e.session_id, e.first_seq FROM e WHERE """
_CURSOR = re.compile(r"r([0-9]{1,19})\.([0-9]{1,9})")
# Calls of memory tools are left out: they repeat what was said elsewhere.
_NO_MEMORY_TOOL = (
    " AND NOT (e.kind = 'tools' AND EXISTS"
    " (SELECT 1 FROM message_parts p WHERE p.id = e.source_id AND substr(p.tool_name, 1, 4) = 'lcm_'))"
)
T = TypeVar("T")
_OF_TURN = ("session_id", "seq", "created_at", "branch", "role")
MOST_VECTORS = 10_000
"""The number of messages, the newest ones, that are searched by meaning."""
MOST_NEAR, SAMPLE = 250, 100
"""The numbers of vectors that are compared in full: those that may be near, and a sample, which says what is usual."""
EMBEDDING = Rest("The embedding model of the search does not answer; words alone do")

_SIGNS = """
    SELECT e.session_id, e.first_seq, v.part_id, v.signs FROM search_entries e JOIN search_vectors v ON v.part_id = e.source_id
    WHERE e.kind = 'messages' AND e.start = 0 AND v.model = %s AND e.id < %s{condition}
    ORDER BY e.id DESC LIMIT %s"""
MOST_RERANKED = 50
"""The number of messages that the model reads, the best by the other rules."""
CHARACTERS_RERANKED = 1_500
"""The most characters of each that it reads: many rerankers take no more than 512 tokens."""
RERANKER = Rest("The reranker of the search does not answer; the search does without it")
AROUND = 2
"""Messages on both sides of a hit that are its passage, if nothing else is asked for."""
MOST_AROUND = 10
NOTHING_EXACT = "No text has all of this; these passages have most of it."
# What asks for exactly this: words in quotes, or the beginning of a word with a star.
_EXACT = re.compile(r"[\"“”„][^\"“”„]+[\"“”„]|\w\*(?:\s|$)")


@dataclass(slots=True, kw_only=True)
class Finding:
    """The places that answer a question, ranked before any of their texts is read."""

    question: Question
    sessions: list[str]
    """The ids of the sessions; a ``Place`` has the index of its session in this list."""
    speakers: Mapping[str, Mapping[str, str]]
    """By session, the names of who speaks in each role."""
    ranked: list[Ranked]
    turns: Mapping[Place, Turn]
    postings: list[Posting]
    weights: Mapping[int, float]
    """The weight of each term."""
    total: int
    """The number of messages that were searched."""
    note: str = ""
    """Why a model of the search was not asked, where a spending limit is used up."""


def find_ranked(scope: Scope, text: str, *, below: int = NEWEST) -> Finding:
    """Rank what answers a question, in visible sessions.

    :param below: only entries of the index with lower ids
    :raises InvalidRequest: the question has no word, or too many characters.
    """
    speakers = speakers_of([scope.session_id]) if scope.session_id else {}
    known = {word for names in _folded(speakers).values() for name in names.values() for word in name.split()}
    question = parse_question(text, without=known)
    total = messages_in(scope)
    counts, rows = _postings(scope, question, below)
    numbers: dict[str, int] = {}

    def place_of(session_id: str, seq: int) -> Place:
        return numbers.setdefault(session_id, len(numbers)) * SESSION + seq

    postings = [
        Posting(term, -id if kind in SOURCES else place_of(session_id, seq), id, length)
        for term, (id, session_id, kind, seq, length) in rows
    ]
    evidence = Evidence(question, postings, counts, total=total)
    candidates = evidence.candidates(POOL)
    near = None
    has_vectors = scope.kind in ("all", "messages") and not scope.filters.tool
    asked, note = _within_limits(partial(read_question, text, owner_id=scope.owner_id)) if has_vectors else (None, "")
    if asked:
        near = nearness(scope, asked, below=below, place_of=place_of, candidates=beside(candidates, 1))
    nearest = near.nearest() if near else []
    sessions = list(numbers)
    inside = {sessions[place // SESSION] for place in [*candidates, *nearest] if place >= 0}
    speakers = speakers or speakers_of(inside)
    turns = _turns([*candidates, *nearest], sessions, _folded(speakers))
    allowed = {*_allowed(scope, candidates, evidence, turns, sessions), *nearest}
    ranked = rank(question, evidence, allowed, turns)
    found = Finding(
        question=question,
        sessions=sessions,
        speakers=speakers,
        ranked=blend(ranked, near, turns) if near else ranked,
        turns=turns,
        postings=postings,
        weights=evidence.weights,
        total=total,
        note=note,
    )
    return _reranked(text, found, owner_id=scope.owner_id)


def _within_limits(ask: Callable[[], T | None]) -> tuple[T | None, str]:
    """Return what a model of the search answers, and why it was not asked where a limit is used up."""
    try:
        return ask(), ""
    except BudgetExhausted as error:
        return None, f"The search did without its models. {error.message}"


def _reranked(question: str, found: Finding, *, owner_id: int) -> Finding:
    config = site_config().search
    if not config.rerank_model:
        return found
    texts = {
        place: snippet(one.text, found.question, size=CHARACTERS_RERANKED, is_densest=True).text.replace("\x00", " ")
        for place, one in _candidates(found, found.ranked[:MOST_RERANKED]).items()
        if one.text.strip("\x00 \n")
    }
    scores, note = _within_limits(partial(read_beside, question, [*texts.values()], owner_id=owner_id))
    if scores is None:
        return replace(found, note=found.note or note)
    by_place = dict(zip(texts, scores, strict=True))
    return replace(found, ranked=with_scores(found.ranked, by_place, weight=config.rerank_weight))


def _postings(scope: Scope, question: Question, below: int) -> tuple[list[int], list[tuple[int, Any]]]:
    condition, values = condition_of(scope)
    condition += _NO_MEMORY_TOOL
    if scope.before_seq is not None:
        condition, values = f"{condition} AND e.first_seq < %s", [*values, scope.before_seq]
    index = engine()
    queries = [
        index.query_any(term.words, owner_id=scope.owner_id, session_id=scope.session_id) for term in question.terms
    ]
    count = " UNION ALL ".join([f"SELECT * FROM ({index.counts.format(limit=MOST_OF_TERM)}) AS one"] * len(queries))
    select = index.select(_POSTING, condition, limit=MOST_OF_TERM)
    with connection.cursor() as cursor, index.asked(cursor):
        counts = [number for (number,) in fetch(count, queries)]
        terms = choose_terms(counts, most=MOST_POSTINGS)
        # One statement for all terms, since each way to the server takes as long as reading a rare word.
        each = [f"SELECT {place} AS place, found.* FROM ({select}) AS found" for place in range(len(terms))]
        asked = [value for term in terms for value in (queries[term], below, *values)]
        rows = [(terms[place], row) for place, *row in fetch(" UNION ALL ".join(each), asked)] if terms else []
    return counts, rows


def _turns(
    candidates: Collection[Place], sessions: list[str], names: Mapping[str, Mapping[str, str]]
) -> dict[Place, Turn]:
    """Return the turns of candidates and of the messages around them. Texts are read of the former and of what is before."""
    places = beside(candidates)
    if not places:
        return {}
    numbers = {id: number for number, id in enumerate(sessions)}
    read = {place - step for place in candidates for step in (0, 1)}
    pairs = ", ".join(["(%s, %s, %s)"] * len(places))
    values = [value for place in places for value in (sessions[place // SESSION], place % SESSION, int(place in read))]
    statement = _TURNS.format(places=pairs, columns=select_columns(Message, "m", _OF_TURN))
    turns = {}
    for session_id, seq, at, branch, role, asks in fetch(statement, [*values, "%?"]):
        speaker = names.get(session_id, {}).get(role, "")
        place = numbers[session_id] * SESSION + seq
        turns[place] = Turn(time_of(at), branch, speaker, says=asks is not None, is_question=bool(asks))
    return turns


def _allowed(
    scope: Scope, candidates: Iterable[Place], evidence: Evidence, turns: Mapping[Place, Turn], sessions: list[str]
) -> list[Place]:
    """Return the candidates that may be hits: those which the index found, and messages beside them that are searched."""
    found = {place for places in evidence.terms.values() for place in places}
    first, last = scope.first_seq or 0, min(scope.last_seq or NEWEST, (scope.before_seq or NEWEST) - 1)
    beside = [place for place in candidates if place not in found and place in turns and turns[place].says]
    # Someone who types a single word looks for that word.
    if scope.kind not in ("all", "messages") or evidence.words < 2:
        beside = []
    inside = [place for place in beside if first <= place % SESSION <= last]
    if scope.filters and inside:
        narrowed = list(scope.filters.conditions(owner_id=scope.owner_id, session_id=scope.session_id))
        pairs = ", ".join(["(%s, %s)"] * len(inside))
        values = [value for place in inside for value in (sessions[place // SESSION], place % SESSION)]
        values += [value for _, given in narrowed for value in given]
        rows = fetch(_PASSING.format(places=pairs) + " AND ".join(condition for condition, _ in narrowed), values)
        passing = {(session_id, seq) for session_id, seq in rows}
        inside = [place for place in inside if (sessions[place // SESSION], place % SESSION) in passing]
    if scope.stretches:
        there = are_in(scope.stretches, [(turns[place].branch, place % SESSION) for place in inside])
        inside = [place for place, is_there in zip(inside, there, strict=True) if is_there]
    return [place for place in candidates if place in found] + inside


def _folded(speakers: Mapping[str, Mapping[str, str]]) -> dict[str, dict[str, str]]:
    return {id: {role: fold(name) for role, name in names.items()} for id, names in speakers.items()}


def search_ranked(scope: Scope, text: str, *, limit: int, cursor: str | None = None, around: int) -> SearchResult:
    """Return a page of messages that answer a question, the best first, each with those around it.

    :raises InvalidRequest: the question has no word or too many characters, or the cursor is of no page.
    """
    if cursor:
        below, skip = _place_of(cursor)
    else:
        [(newest,)] = fetch("SELECT COALESCE(MAX(id), 0) FROM search_entries")
        below, skip = newest + 1, 0
    found = find_ranked(scope, text, below=below)
    best = found.ranked[skip : skip + limit]
    candidates = [*_candidates(found, best).values()]
    shown = {
        (one.source_id, one.field): snippet(one.text, found.question, size=LONGEST_HIT, is_densest=True).text
        for one in candidates
    }
    hits = hits_of(candidates, found.question, is_densest=True)
    more = skip + limit < len(found.ranked)
    return SearchResult(
        hits=tuple(with_passages(hits, shown, around=around, speakers=found.speakers)),
        messages_searched=found.total,
        messages_total=found.total,
        cut_off=False,
        next_cursor=f"r{below}.{skip + limit}" if more else None,
        mode="ranked",
        note=found.note,
    )


def _place_of(cursor: str) -> tuple[int, int]:
    match = _CURSOR.fullmatch(cursor)
    if match is None:
        raise InvalidRequest(gettext_noop("cursor must be the next_cursor of the page before"), field="cursor")
    return min(int(match[1]), NEWEST), int(match[2])


def _candidates(found: Finding, ranked: Iterable[Ranked]) -> dict[Place, Candidate]:
    """Return the texts of hits by their places, in order: that with most of the question, or what the message says."""
    places = dict.fromkeys(place for place, _ in ranked)
    scores: dict[tuple[Place, int], float] = defaultdict(float)
    for term, place, entry, _ in found.postings:
        if place in places:
            scores[place, entry] += found.weights[term]
    best = dict(sorted(scores, key=lambda key: (scores[key], -key[1])))
    ids = {place: best.get(place) for place in places}  # a place that has nothing of the question has none
    entries = [id for id in ids.values() if id is not None]
    by_place: dict[Place, Candidate] = {}
    if entries:
        marks = ", ".join(["%s"] * len(entries))
        rows = fetch(f"SELECT {ENTRY} FROM search_entries e WHERE e.id IN ({marks})", entries)
        with connection.cursor() as cursor:
            texts = {one.id: one for one in with_texts(cursor, rows)}
        by_place = {place: texts[id] for place, id in ids.items() if id in texts}
    by_place |= _said([place for place, id in ids.items() if id is None], found.sessions)
    return {place: by_place[place] for place in ids if place in by_place}


def _said(places: Sequence[Place], sessions: Sequence[str]) -> dict[Place, Candidate]:
    if not places:
        return {}
    numbers = {id: number for number, id in enumerate(sessions)}
    pairs = ", ".join(["(%s, %s)"] * len(places))
    values = [value for place in places for value in (sessions[place // SESSION], place % SESSION)]
    said = {}
    for session_id, seq, message_id, branch, role, part_id, content in fetch(_SAID.format(places=pairs), values):
        said[numbers[session_id] * SESSION + seq] = Candidate(
            id=0,
            session_id=session_id,
            kind="messages",
            source_id=part_id,
            field="content",
            first_seq=seq,
            last_seq=seq,
            message_id=message_id,
            branch=branch,
            role=role,
            part_type=TextPart.type,
            text=readable(decode_text(content)),
        )
    return said


# Nearness of messages to a question by the site's embedding model, within the scope of a search.
#
# Rights and filters are in the statement that finds candidates, as in the search by words. Signs of vectors are
# compared first, which is cheap, and whole vectors only of those that may be near, so that no extension of a database
# is needed.


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
    return EMBEDDING.ask(partial(_asked, text, owner_id))


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


# Reranking: where the site has a reranker, it reads the best messages that a search found beside the question.


def read_beside(question: str, texts: Sequence[str], *, owner_id: int) -> tuple[float, ...] | None:
    """Return a score for each text; ``None`` where there is no model, or it fails, which is logged.

    :raises BudgetExhausted: a limit of the person who asks is used up.
    """
    if not texts or not site_config().search.rerank_model:
        return None
    return RERANKER.ask(partial(_scores, question, tuple(texts), owner_id))


def _scores(question: str, texts: tuple[str, ...], owner_id: int) -> tuple[float, ...] | None:
    spec = rerank_spec()
    return _scores_of(spec, question, texts, owner_id) if spec else None


@lru_cache(maxsize=64)
def _scores_of(spec: ModelSpec, question: str, texts: tuple[str, ...], owner_id: int) -> tuple[float, ...]:
    # Kept, because every page of an answer asks again, and must be ranked like the one before.
    # Rerankers seldom say what they read, so our estimate counts: the question once more with each text.
    tokens = len(texts) * estimate_text(question) + sum(map(estimate_text, texts))
    with drawing(owner_id, spec, tokens=tokens) as tell:
        scores = waiting_for(_rerank, own_loop=True)(get_reranker(spec), question, texts)
        tell(tokens)
    return scores


async def _rerank(reranker: Reranker, question: str, texts: Sequence[str]) -> tuple[float, ...]:
    try:
        return await reranker.rerank(question, texts, seconds=site_config().search.question_seconds)
    finally:
        await close_connections()


# The one search behind every endpoint: a question is ranked, and exact words, phrases and patterns are found as asked.


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
