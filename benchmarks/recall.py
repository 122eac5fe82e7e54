"""Recall of search: how much evidence for LoCoMo's questions is found by our search, and by plain FTS5.

The conversations are read from the file that ``MNESIS_LOCOMO`` names, else from the folder of sample files
(``MNESIS_SAMPLES``); without them the table is empty. The recall of a question is the share of its evidence that is
found; adversarial questions (category 5), which the conversation does not answer, are left out of it. Sessions are
LoCoMo's days of talk: what counts is whether any day with evidence is among the first five. The row of ``lcm_grep`` is what
a model gets that asks: its passages within their tokens, and how much of the evidence is in them. The last rows are what a
model gets that asks for nothing: how many prompts in a window of 8,000 tokens have every word of the answer, function words
left out (categories 1 and 4), with the passages that were found for the question and without; and how many of the answers
are words of the conversation at all.

With ``MNESIS_EMBEDDING`` (such as ``openai/all-minilm http://127.0.0.1:8080/v1``) our search is measured again with that
embedding model; ``MNESIS_CONFIG`` must name a file with ``search.embedding_model = "measured"``.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean, median
from time import perf_counter
from typing import Any

from django.contrib.auth.models import User

from agents_app.tools.memory.grepping import Asked as Grep
from agents_app.tools.memory.grepping import grep
from agents_app.tools.memory.reach import load_family
from agents_app.tools.registry import ToolContext
from audit_app.evaluation.asking import numbers_in
from compaction_app.compact import compact_before_call
from compaction_app.context.retrieval import retrieve
from compaction_app.context.state import load_state, size_of
from mnesis_core.compaction.evaluation.datasets import LOCOMO_ANSWERED, LOCOMO_PLAIN
from mnesis_core.compaction.evaluation.measures import said_in, words_of
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.search.ranking import SESSION
from mnesis_core.transcripts import FORMATS
from sessions_app.llm.model_store import put_model
from sessions_app.models import Message, Session
from sessions_app.record.histories import store_transcripts
from sessions_app.search.ranked import EMBEDDING, find_ranked
from sessions_app.search.search import Scope
from sessions_app.search.vector_store import fill
from tests.support.material.samples import FOLDER, LOCOMO

DEPTHS = (5, 10, 20)
DAYS = 5
DEEP, PASSAGES = 100, 5
_DIALOGUE_ID = re.compile(r"D\d+:\d+")

Search = Callable[[str, int], list[str]]
"""Return the external ids of the best messages for a question, at most a number of them, best first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    question: str
    answer: str
    evidence: frozenset[str]
    is_answered: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Talk:
    session_id: str
    texts: dict[str, str]
    """The messages' texts by external id, in the order of the conversation."""
    captions: list[str]
    """What is said of its pictures."""
    asked: list[Asked]


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table; none if there is no conversation."""
    path = Path(os.environ.get("MNESIS_LOCOMO") or FOLDER / LOCOMO)
    if not path.exists():
        print(f"left out: there is no {path}; MNESIS_LOCOMO names another file", file=sys.stderr)
        return []
    owner = User.objects.create_user("benchmark")
    talks = list(write(owner, path))
    rows = [
        _row("FTS5, porter, BM25", [(talk, _fts5(talk)) for talk in talks]),
        _row("ours", [(talk, _ours(owner, talk)) for talk in talks]),
        _told(owner, talks),
        *_prompted(owner, talks),
    ]
    if model := os.environ.get("MNESIS_EMBEDDING"):
        _make_vectors(model)
        rows += [_row(f"ours, {model}", [(talk, _ours(owner, talk)) for talk in talks]), _told(owner, talks)]
    return rows


def _make_vectors(model: str) -> None:
    name, _, address = model.partition(" ")
    spec = ModelSpec(
        alias="measured",
        litellm_model=name,
        api_base=address,
        context_window=2_000,
        max_output_tokens=1,
        entered_on_host=True,
    )
    put_model(spec, api_key_env="")
    EMBEDDING.until = 0.0  # The rows before were measured without the model.
    while fill():
        pass


def write(owner: User, path: Path) -> Iterator[Talk]:
    """Import the conversations of a file. Yield each with its questions."""
    text = path.read_text(encoding="utf-8")
    samples = {sample["sample_id"]: sample for sample in json.loads(text)}
    store_transcripts(FORMATS["locomo"](text, name=path.name), owner=owner, model="demo")
    for session in Session.objects.filter(owner=owner).order_by("id"):
        said = Message.objects.filter(session=session, parts__part_type="text").order_by("seq")
        texts = dict(said.values_list("external_id", "parts__content"))
        shown = Message.objects.filter(session=session, parts__part_type="image")
        yield Talk(
            session_id=session.id,
            texts=texts,
            captions=list(shown.values_list("parts__content", flat=True)),
            asked=list(_questions(samples[session.external_id], texts)),
        )


def _questions(sample: dict[str, Any], texts: dict[str, str]) -> Iterator[Asked]:
    for one in sample["qa"]:
        # In some samples of LoCoMo a question names a turn that is not there.
        evidence = frozenset(_DIALOGUE_ID.findall(str(one["evidence"]))) & texts.keys()
        if evidence:
            yield Asked(
                question=one["question"],
                answer=str(one.get("answer", "")) if one["category"] in LOCOMO_PLAIN else "",
                evidence=evidence,
                is_answered=one["category"] in LOCOMO_ANSWERED,
            )


def _row(name: str, searches: Sequence[tuple[Talk, Search]]) -> tuple[str, ...]:
    recalls: dict[int, list[float]] = {depth: [] for depth in DEPTHS}
    days, seconds = [], []
    for talk, search in searches:
        for asked in talk.asked:
            started = perf_counter()
            found = search(asked.question, DEEP)
            seconds.append(perf_counter() - started)
            first_days = list(dict.fromkeys(map(_day, found)))[:DAYS]
            days.append(any(_day(id) in first_days for id in asked.evidence))
            for depth in DEPTHS if asked.is_answered else ():
                recalls[depth].append(len(asked.evidence & set(found[:depth])) / len(asked.evidence))
    shares = [f"{100 * fmean(recalls[depth]):.1f}" for depth in DEPTHS]
    return (name, str(len(recalls[5])), *shares, f"{100 * fmean(days):.1f}", "", "", f"{1_000 * median(seconds):.2f}")


def _told(owner: User, talks: Sequence[Talk]) -> tuple[str, ...]:
    """Return the row of five passages, as a model gets them."""
    recalls, tokens, seconds = [], [], []
    for talk in talks:
        ids = _external_ids(talk)
        family = load_family(ToolContext(session_id=talk.session_id, owner_id=owner.pk))
        for asked in talk.asked:
            if asked.is_answered:
                started = perf_counter()
                text = grep(family, Grep(pattern=asked.question, limit=PASSAGES))
                seconds.append(perf_counter() - started)
                told = {ids[seq] for seq in numbers_in(text)}
                recalls.append(len(asked.evidence & told) / len(asked.evidence))
                tokens.append(estimate_text(text))
    found = (f"{100 * fmean(recalls):.1f}", f"{fmean(tokens):,.0f}", f"{1_000 * median(seconds):.2f}")
    return (f"lcm_grep, {PASSAGES} passages", str(len(recalls)), "", "", "", "", *found)


def _prompted(owner: User, talks: Sequence[Talk]) -> Iterator[tuple[str, ...]]:
    """Yield the rows of prompts in a small window, without passages and with them."""
    outcomes: list[tuple[str, bool, int]] = []  # what the model reads, whether the answer is there, tokens used
    seconds: list[float] = []
    for talk in talks:
        asyncio.run(compact_before_call(talk.session_id, size=size_of(load_state(talk.session_id))))
        state = load_state(talk.session_id)
        for asked in (one for one in talk.asked if one.answer):
            started = perf_counter()
            passages = retrieve(state, asked.question)
            seconds.append(perf_counter() - started)
            for found in (None, passages):
                prompt = state.assemble(passages=found)
                is_there = words_of(asked.answer) <= words_of(said_in(prompt.messages))
                name = "prompt" if found is None else "prompt with passages"
                outcomes.append((name, is_there, prompt.used_tokens))
            told = " ".join([*talk.texts.values(), *talk.captions])
            outcomes.append(("the whole conversation", words_of(asked.answer) <= words_of(told), estimate_text(told)))
    for name in dict.fromkeys(name for name, *_ in outcomes):
        chosen = [outcome for outcome in outcomes if outcome[0] == name]
        share, tokens = fmean(outcome[1] for outcome in chosen), fmean(outcome[2] for outcome in chosen)
        took = f"{1_000 * median(seconds):.2f}" if name == "prompt with passages" else ""
        blank = ("",) * (len(DEPTHS) + 1)
        yield (name, str(len(chosen)), *blank, f"{100 * share:.1f}", f"{tokens:,.0f}", took)


def _external_ids(talk: Talk) -> dict[int, str]:
    return dict(Message.objects.filter(session_id=talk.session_id).values_list("seq", "external_id"))


def _day(id: str) -> str:
    return id.partition(":")[0]


def _ours(owner: User, talk: Talk) -> Search:
    scope = Scope(owner_id=owner.pk, session_id=talk.session_id)
    ids = _external_ids(talk)
    return lambda question, limit: [ids[head.place % SESSION] for head in find_ranked(scope, question).ranked[:limit]]


def _fts5(talk: Talk) -> Search:
    plain = sqlite3.connect(":memory:")
    plain.execute("CREATE VIRTUAL TABLE said USING fts5(id UNINDEXED, body, tokenize='porter unicode61')")
    plain.executemany("INSERT INTO said VALUES (?, ?)", talk.texts.items())

    def search(question: str, limit: int) -> list[str]:
        words = " OR ".join(f'"{word}"' for word in re.findall(r"\w+", question))
        rows = plain.execute("SELECT id FROM said WHERE said MATCH ? ORDER BY rank LIMIT ?", (words, limit))
        return [id for (id,) in rows]

    return search
