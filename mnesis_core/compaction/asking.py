"""One question to a summarising model: what it reads, how it is asked, and how it is rebuilt from what was stored of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from mnesis_core.compaction.prompts import SummaryPrompt
from mnesis_core.compaction.transcript import summary_pieces, text_pieces, transcript_pieces
from mnesis_core.dag import SummaryEntry
from mnesis_core.llm import Model, Reply, Request, Source, complete
from mnesis_core.messages import StoredMessage
from mnesis_core.text import printable
from mnesis_core.tokens import estimate_text

JOINT = "\n\n"
"""Between the drafts that are merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question, ready to be asked."""

    level: int
    prompt: SummaryPrompt
    target: int
    """Tokens that the summary is asked to keep to."""
    limit: int
    """Tokens of a piece: with ``piece``, what is needed to cut the same one again."""
    piece: int
    pieces: int
    """Of how many, counted from 1."""
    merges: tuple[str, ...]
    """The tries whose drafts are merged, in order; none when it reads what the summary stands for."""
    request: Request

    @property
    def tokens(self) -> int:
        """What the request takes, by our own estimate."""
        return sum(estimate_text(message["content"]) for message in self.request.payload["messages"])


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One attempt at one piece."""

    level: int
    accepted: bool
    reason: str
    """Why not: a reason of ``judge`` or ``spending``, ``tool_call``, ``cut_off``, ``timeout`` or a model's error code; empty
    when accepted."""
    input_tokens: int
    output_tokens: int
    source: Source
    """Who counted the tokens."""
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    """Of the input, in the provider's cache."""
    piece: int = 1
    pieces: int = 1
    """Of how many, counted from 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What came of a question."""

    try_id: str
    """What the recorder calls this try, for the question that merges its draft."""
    attempt: Try
    reply: Reply | None
    """``None`` when the question was not allowed."""


Judge = Callable[[Reply], str | None]
"""Why a reply may not be a summary, or ``None`` when it may."""


class Recorder(Protocol):
    """Asks a model, and keeps each try. Without one, ``Unrecorded`` just asks."""

    async def ask(self, question: Question, judge: Judge) -> Answer:
        """Ask, judge, and keep both."""
        ...

    async def excerpt(self, attempt: Try, text: str) -> str:
        """Keep a level-3 excerpt; returns what this try is called."""
        ...


class Unrecorded:
    """Asks and keeps nothing."""

    def __init__(self, model: Model | None) -> None:
        self._model = model
        self._tries = 0

    async def ask(self, question: Question, judge: Judge) -> Answer:
        """Ask and judge.

        :raises ValueError: there is no model.
        """
        if self._model is None:
            raise ValueError("there is no model to ask")
        reply = await complete(self._model, question.request)
        return Answer(try_id=self._next(), attempt=try_of(question, reply, judge(reply)), reply=reply)

    async def excerpt(self, attempt: Try, text: str) -> str:
        """A name and nothing else."""
        return self._next()

    def _next(self) -> str:
        self._tries += 1
        return str(self._tries)


def try_of(question: Question, reply: Reply, reason: str | None) -> Try:
    """What is to be said of a question that was answered."""
    return Try(
        level=question.level,
        accepted=reason is None,
        reason=reason or "",
        input_tokens=reply.usage.input_tokens,
        output_tokens=reply.usage.output_tokens,
        source=reply.usage.source,
        cache_read_tokens=reply.usage.cache_read_tokens,
        cache_write_tokens=reply.usage.cache_write_tokens,
        piece=question.piece,
        pieces=question.pieces,
    )


def refused(question: Question, reason: str) -> Try:
    """What is to be said of a question that was not allowed: it cost nothing."""
    return Try(
        level=question.level,
        accepted=False,
        reason=reason,
        input_tokens=0,
        output_tokens=0,
        source=Source.ESTIMATED,
        piece=question.piece,
        pieces=question.pieces,
    )


def payload_of(prompt: SummaryPrompt, source: str, target: int) -> dict[str, Any]:
    """Exactly what the model is sent."""
    return {"messages": prompt.messages(printable(source), target)}


# What is stored of a question


def question_manifest(question: Question, sources: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """JSON rows by which the same payload can be made again.

    ``sources`` are the rows of what the summary stands for, ``messages_row`` or ``summary_rows``.
    """
    prompt = {"kind": "prompt", "id": question.prompt.version, "target": question.target}
    piece = {"kind": "piece", "number": question.piece, "count": question.pieces, "limit": question.limit}
    read = [{"kind": "try", "id": try_id} for try_id in question.merges] or sources
    return [prompt, piece, *map(dict, read)]


def messages_row(messages: Sequence[StoredMessage]) -> dict[str, Any]:
    """The manifest row of a span: its messages' ``seq`` as stretches, first and last, since there may be 100,000."""
    ranges: list[list[int]] = []
    for message in messages:
        if ranges and ranges[-1][1] + 1 == message.seq:
            ranges[-1][1] = message.seq
        else:
            ranges.append([message.seq, message.seq])
    return {"kind": "messages", "ranges": ranges}


def summary_rows(summaries: Sequence[SummaryEntry]) -> Iterator[dict[str, Any]]:
    """The manifest rows of summaries that are condensed."""
    for entry in summaries:
        yield {"kind": "summary", "id": entry.id, "first_seq": entry.first_seq, "last_seq": entry.last_seq}


def rebuild_question(
    manifest: Sequence[Mapping[str, Any]],
    prompt: SummaryPrompt,
    *,
    messages: Sequence[StoredMessage] = (),
    summaries: Sequence[SummaryEntry] = (),
    drafts: Sequence[str] = (),
) -> dict[str, Any]:
    """The payload of a stored question again, from what its manifest names, in that order.

    :raises ValueError: the manifest is not one of a question, or what it names does not reach to its piece.
    """
    rows = {row["kind"]: row for row in manifest}
    if not {"prompt", "piece"} <= rows.keys():
        raise ValueError("the manifest names no prompt or no piece")
    limit, number = rows["piece"]["limit"], rows["piece"]["number"]
    if "try" in rows:
        pieces = text_pieces(JOINT.join(drafts), limit)
    else:
        pieces = summary_pieces(summaries, limit) if summaries else transcript_pieces(messages, limit)
    if not 1 <= number <= len(pieces):
        raise ValueError(f"there is no piece {number} of what the manifest names, only {len(pieces)}")
    return payload_of(prompt, pieces[number - 1], rows["prompt"]["target"])
