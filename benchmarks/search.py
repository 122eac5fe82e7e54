"""Our search against the database's own full-text search over the same million tokens, both ranked and with excerpts.

Then again after another account has written twice as much, which must not slow down our search.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import accumulate
from random import Random
from statistics import median
from time import perf_counter

from django.contrib.auth.models import User
from django.db import connection

from benchmarks.support.databases import Plain, plain_connection
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import Message, TextPart
from sessions_app.record import message_store, session_store, turn_store
from sessions_app.record.change import change
from sessions_app.search.ranked import answer
from sessions_app.search.search import Scope

TOKENS = 1_000_000
MESSAGES_A_CHANGE = 50
ROUNDS = 30
LIMIT = 20
QUESTION = "Which w40 had said to w700 that w2500 was under the marigold?"
QUERIES = {
    "a rare word": "marigold",
    "a common word": "w3",
    "two common words": "w5 w9",
    "a phrase": '"under marigold"',
    "a prefix": "marig*",
    "a common prefix": "w12*",
    "nothing": "nowhere",
    "a question": QUESTION,
}
FTS5 = (
    "SELECT rowid, snippet(plain_search, 0, '', '', '…', 16) FROM plain_search WHERE plain_search MATCH ?"
    f" ORDER BY rank LIMIT {LIMIT}"
)
TSVECTOR = (
    "WITH found AS (SELECT id, body FROM plain_search, to_tsquery('simple', ?) q WHERE words @@ q"
    f" ORDER BY ts_rank(words, q) DESC LIMIT {LIMIT})"
    " SELECT id, ts_headline('simple', body, to_tsquery('simple', ?), 'MaxWords=16,MinWords=8') FROM found"
)


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    owner, other = User.objects.create_user("benchmark"), User.objects.create_user("somebody")
    texts = make_texts(TOKENS)
    scope = Scope(owner_id=owner.pk, session_id=write(owner, texts))
    with plain_connection() as plain:
        fill(plain, texts)
        plain_query = _fts5(plain) if connection.vendor == "sqlite" else _tsvector(plain)
        alone = {name: (seconds(plain_query, query), seconds(_ours(scope), query)) for name, query in QUERIES.items()}
    for seed in (2, 3):
        write(other, make_texts(TOKENS, seed=seed))
    beside = {name: seconds(_ours(scope), query) for name, query in QUERIES.items()}
    return [
        (name, *(f"{1_000 * one:,.2f}" for one in (theirs, ours)), f"{ours / theirs:.1f}", f"{beside[name] / ours:.2f}")
        for name, (theirs, ours) in alone.items()
    ]


def make_texts(tokens: int, *, seed: int = 1) -> list[str]:
    """Make texts of about 650 tokens, with word frequencies as in natural language (Zipf)."""
    random = Random(seed)
    words = [f"w{rank}" for rank in range(20_000)]
    weights = list(accumulate(1 / (rank + 1) for rank in range(len(words))))
    texts: list[str] = []
    while tokens > 0:
        drawn = random.choices(words, cum_weights=weights, k=400)
        if len(texts) % 150 == 7:
            drawn[200:202] = ["under", "marigold"]
        texts.append(" ".join(drawn))
        tokens -= estimate_text(texts[-1])
    return texts


def write(owner: User, texts: list[str]) -> str:
    """Write a session with these texts. Return its id."""
    session_id = session_store.create_session(owner=owner, model="demo")
    with change(session_id) as record:
        turn_id = turn_store.start_turn(record, model="demo")
    for start in range(0, len(texts), MESSAGES_A_CHANGE):
        with change(session_id) as record:
            for text in texts[start : start + MESSAGES_A_CHANGE]:
                message = Message(role="user", parts=(TextPart(text=text),))
                message_store.append_message(record, turn_id=turn_id, message=message)
    return session_id


def fill(plain: Plain, texts: list[str]) -> None:
    """Fill the database's own index with the same texts."""
    rows = list(enumerate(texts, 1))
    if connection.vendor == "sqlite":
        plain.execute("CREATE VIRTUAL TABLE plain_search USING fts5(body)")
        with plain.transaction():
            plain.insert("plain_search", ("rowid", "body"), rows)
        return
    plain.execute("CREATE TABLE plain_search (id bigint PRIMARY KEY, body text)")
    with plain.transaction():
        plain.insert("plain_search", ("id", "body"), rows)
        plain.execute("ALTER TABLE plain_search ADD words tsvector")
        plain.execute("UPDATE plain_search SET words = to_tsvector('simple', body)")
        plain.execute("CREATE INDEX plain_words ON plain_search USING gin (words)")
    plain.execute("ANALYZE plain_search")


def seconds(ask: Callable[[str], object], query: str) -> float:
    """Return the median time of one answer."""
    times = []
    for _ in range(ROUNDS):
        started = perf_counter()
        ask(query)
        times.append(perf_counter() - started)
    return median(times)


def _ours(scope: Scope) -> Callable[[str], object]:
    return lambda query: answer(scope, query, mode="ranked" if query == QUESTION else "text", limit=LIMIT, around=0)


def _fts5(plain: Plain) -> Callable[[str], object]:
    return lambda query: plain.rows(FTS5, " OR ".join(query.strip("?").split()) if query == QUESTION else query)


def _tsvector(plain: Plain) -> Callable[[str], object]:
    def ask(query: str) -> object:
        words = query.strip('"?').replace("*", ":*").split()
        side_by_side, all_of = " <-> " if query.startswith('"') else " & ", query != QUESTION
        wanted = (side_by_side if all_of else " | ").join(words)
        return plain.rows(TSVECTOR, wanted, wanted)

    return ask
