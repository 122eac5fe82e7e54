"""A span as text: all of it in pieces that a model can read whole, or an excerpt that is made without a model."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC
from itertools import groupby
from operator import itemgetter
from typing import NamedTuple, assert_never

from mnesis_core.config import Config
from mnesis_core.context.entries import SummaryEntry
from mnesis_core.context.fitting import common_cap
from mnesis_core.files.references import NO_IDS, Named, with_footer, without_footer
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.llm.tokens import MOST_CHARACTERS_PER_TOKEN, characters_within, estimate_text
from mnesis_core.messages import (
    CitationPart,
    CompactionMarkerPart,
    DataPart,
    FileRefPart,
    MediaPart,
    Part,
    PatchPart,
    ProviderPart,
    ProviderToolPart,
    ReasoningPart,
    RefusalPart,
    StepFinishPart,
    StepStartPart,
    StoredMessage,
    TextPart,
    ToolPart,
    UnknownPart,
)
from mnesis_core.text import quote

# How a transcript is written. The rules of a form never change, so that past questions can be made again:
# 1: labels have no days, and a line of a text may look like a label
# 2: the first label of each day and of each piece has the day, and a line that looks like a label begins with a backslash
FORM = 2
PROMPT_TOKENS = 500  # what the instructions around a piece take at the most
SMALLEST_PIECE = 256
# Tokens: pieces may not be asked to be smaller, since each begins with a line that says what it is.
SMALLEST_LIMIT = 64

HEADER = "[Level 3 excerpt, written without a model: beginnings and ends only]"
VERSION = "excerpt.1"
SHORTEST_QUOTE = 16  # Tokens; a text that gets less is not quoted.
LABEL_TOKENS = 8  # tokens of the name of a quoted text, roughly
SMALLEST_BODY = 48  # tokens
USER_SHARE = 2 / 3  # What the user said comes first.
_ELLIPSIS = " […] "
_LIKE_A_LABEL = re.compile(r"(?<=\n)\[(?=\d+ )")


def piece_limit(spec: ModelSpec, config: Config) -> int:
    window = config.context_window if 0 < config.context_window < spec.context_window else spec.context_window
    return max(SMALLEST_PIECE, int(window * config.compaction.input_share) - PROMPT_TOKENS)


def transcript_pieces(
    messages: Sequence[StoredMessage], limit_tokens: int, *, with_reasoning: bool = False, form: int = FORM
) -> list[str]:
    """Return the messages' whole text, quoted as data, in pieces of at most ``limit_tokens``.

    Inputs, outputs and errors of tools are there in full, tombstoned or not, each under a line such as ``[12 tool
    read_file output]``, with the day (UTC) where one or a piece begins: ``[13 user, 2026-05-07]``. What never stood in a context (imported records, citations, what only its provider reads) does
    not enter a summary either. A text too long for one piece goes on in the next: nothing is left out.
    """
    blocks = _blocks(messages, with_reasoning=with_reasoning, form=form)
    return _pack((block for _, block in blocks), limit_tokens)


def pieces_of_message(messages: Sequence[StoredMessage], seq: int, limit_tokens: int, *, form: int = FORM) -> set[int]:
    """Return which of ``transcript_pieces``, counted from 1, hold some of the message ``seq``; none if it says nothing."""
    limit = max(limit_tokens, SMALLEST_LIMIT)
    chunks = [(of, chunk) for of, block in _blocks(messages, form=form) for chunk in _chunks(block, limit)]
    placed = _number_pieces((chunk for _, chunk in chunks), limit)
    return {piece for (of, _), (piece, _) in zip(chunks, placed, strict=True) if of == seq}


def reading_tokens(messages: Sequence[StoredMessage], limit_tokens: int) -> int:
    """Return the tokens of the messages' whole text: up to ``limit_tokens`` it is one piece of ``transcript_pieces``."""
    limit = max(limit_tokens, SMALLEST_LIMIT)
    chunks = (chunk for _, block in _blocks(messages) for chunk in _chunks(block, limit))
    return sum(estimate_text(text) + 1 for _, text in _number_pieces(chunks, limit))


def summary_pieces(summaries: Sequence[SummaryEntry], limit_tokens: int) -> list[str]:
    """Return the summaries' whole text, quoted as data, oldest first, in pieces of at most ``limit_tokens``."""
    label = "summary {0.id} of messages {0.first_seq} to {0.last_seq}"
    return _pack([_Block(label=label.format(entry), text=entry.text) for entry in summaries], limit_tokens)


def text_pieces(text: str, limit_tokens: int) -> list[str]:
    """Return one text that is no message, quoted as data, in pieces of at most ``limit_tokens``."""
    return _pack([_Block(label="text", text=text)], limit_tokens)


class _Block(NamedTuple):
    label: str
    text: str
    day: str = ""


class _Chunk(NamedTuple):
    label: str
    text: str
    day: str
    more: str  # what follows in the label of a chunk that goes on with a text

    def said(self, *, after: str) -> str:
        """Return the chunk under its label, which has the day unless that of the chunk before is the same."""
        return f"[{self.label}{f', {self.day}' if self.day != after else ''}{self.more}] {self.text}"


def _blocks(
    messages: Iterable[StoredMessage], *, with_reasoning: bool = False, form: int = FORM
) -> Iterator[tuple[int, _Block]]:
    """Yield each text with the number of its message."""
    for message in messages:
        day = "" if form == 1 else message.created_at.astimezone(UTC).date().isoformat()
        for label, text in _message_blocks(message, with_reasoning):
            said = text if form == 1 else _LIKE_A_LABEL.sub(r"\\[", text)
            yield message.seq, _Block(label=label, text=said, day=day)


def _message_blocks(message: StoredMessage, with_reasoning: bool = False) -> Iterator[tuple[str, str]]:
    for stored in message.parts:
        for label, text in texts_of_part(stored.part, role=message.role, with_reasoning=with_reasoning):
            yield f"{message.seq} {label}", text


def texts_of_part(part: Part, *, role: str, with_reasoning: bool = False) -> list[tuple[str, str]]:
    """Return what a summary is made of in a part: texts that are not empty, each with a label that says what it is."""
    blocks: Sequence[tuple[str, str]] = ()
    match part:
        case TextPart() | RefusalPart():
            blocks = [(role, part.text)]
        case ReasoningPart():
            blocks = [(f"{role} reasoning", part.text)] if with_reasoning else []
        case ToolPart() | ProviderToolPart():
            texts = (("input", part.input), ("output", part.output or ""), ("error", part.error or ""))
            blocks = [(f"tool {part.tool_name} {kind}", text) for kind, text in texts]
        case MediaPart():
            name = part.name or part.source or "without a name"
            text = "\n".join(filter(None, (f"{name} ({part.media_type or 'of an unknown type'})", part.caption)))
            blocks = [(f"{role} {part.type} {part.file_id}", text)]
        case FileRefPart():
            text = f"{part.path} ({part.file_type})\n{part.exploration_summary}"
            blocks = [(f"{role} file {part.file_id}", text)]
        case PatchPart():
            blocks = [(f"{role} patch {', '.join(part.files_changed)}", part.unified_diff)]
        case DataPart() | CitationPart() | ProviderPart() | UnknownPart():
            pass
        case CompactionMarkerPart() | StepStartPart() | StepFinishPart():
            pass
        case _:
            assert_never(part)
    return [(label, text) for label, text in blocks if text]


def _pack(blocks: Iterable[_Block], limit: int) -> list[str]:
    limit = max(limit, SMALLEST_LIMIT)
    chunks = (chunk for block in blocks for chunk in _chunks(block, limit))
    pieces = groupby(_number_pieces(chunks, limit), key=itemgetter(0))
    return ["\n".join(text for _, text in piece) for _, piece in pieces]


def _number_pieces(chunks: Iterable[_Chunk], limit: int) -> Iterator[tuple[int, str]]:
    """Yield each chunk's text with the number of its piece, counted from 1."""
    piece, size, day = 1, 0, ""
    for chunk in chunks:
        text = chunk.said(after=day)
        tokens = estimate_text(text) + 1
        if size and size + tokens > limit:
            piece, size, text = piece + 1, 0, chunk.said(after="")
            tokens = estimate_text(text) + 1
        yield piece, text
        size, day = size + tokens, chunk.day


def _chunks(block: _Block, limit: int) -> Iterator[_Chunk]:
    """Yield a labelled text in chunks of at most ``limit - 1`` tokens."""
    label, text = quote(" ".join(block.label.split())), quote(block.text)
    label = label[: characters_within(label, limit // 3)]
    chunk = _Chunk(label=label, text="", day=block.day, more="")
    offset = 0
    while offset < len(text):
        # Take a slice: a copy of the whole rest for every chunk would take quadratic time.
        window = text[offset : offset + limit * MOST_CHARACTERS_PER_TOKEN]
        count = max(1, characters_within(window, limit - estimate_text(chunk.said(after="")) - 3))
        yield chunk._replace(text=window[:count])
        offset += count
        chunk = chunk._replace(more=", continued")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quotable:
    order: int
    label: str
    text: str
    is_user: bool = False


def message_quotables(messages: Sequence[StoredMessage]) -> tuple[Quotable, ...]:
    found: list[Quotable] = []
    for message in messages:
        for part in (stored.part for stored in message.parts):
            if isinstance(part, TextPart | RefusalPart) and part.text.strip():
                label, text, is_user = f"{message.seq} {message.role}", part.text.strip(), message.role == "user"
            elif isinstance(part, ToolPart | ProviderToolPart):
                text = f"{part.input} {part.output or ''} {part.error or ''}".strip()
                label, is_user = f"{message.seq} tool {part.tool_name[:40]}", False
            else:
                continue
            found.append(Quotable(order=len(found), label=label, text=text, is_user=is_user))
    return tuple(found)


def summary_quotables(summaries: Sequence[SummaryEntry]) -> tuple[Quotable, ...]:
    return tuple(
        Quotable(order=order, label=f"{entry.first_seq}-{entry.last_seq}", text=without_footer(entry.text))
        for order, entry in enumerate(summaries)
    )


def excerpt(quotables: Sequence[Quotable], limit: int, source_tokens: int, named: Named = NO_IDS) -> str:
    """Return the beginnings and ends of texts, those of users first, within ``limit`` tokens; never fails.

    The excerpt is smaller than ``source_tokens`` when that is above 60, or, with summaries to name, when those stand in
    it. Ids are named whatever ``limit`` says, since a lost id is a lost file: ``naming`` keeps them few.
    """
    largest = source_tokens - 1
    footer = estimate_text(with_footer("-", named)) if named != NO_IDS else 0
    # Some tokens are left to quotations, however many files have to be named.
    room = max(min(limit, largest) - footer, min(SMALLEST_BODY, largest - footer))
    users = [quotable for quotable in quotables if quotable.is_user]
    others = [quotable for quotable in quotables if not quotable.is_user]
    text, left = HEADER, room - estimate_text(HEADER)
    while left > SHORTEST_QUOTE:
        said = _quotes(users, int(left * USER_SHARE) if others else left)
        rest = _quotes(others, left - sum(estimate_text(line) for line in said.values()))
        quoted = "\n".join([HEADER, *(line for _, line in sorted((said | rest).items()))])
        if estimate_text(quoted) <= room:
            text = quoted
            break
        left = left * 17 // 20
    return with_footer(text, named)


def _quotes(quotables: Sequence[Quotable], room: int) -> dict[int, str]:
    count = max(0, room) // (SHORTEST_QUOTE + LABEL_TOKENS)
    if count < len(quotables):
        quotables = [*quotables[: count - count // 2], *quotables[len(quotables) - count // 2 :]]
    sizes = [estimate_text(quotable.text) for quotable in quotables]
    cap = common_cap(sizes, room - LABEL_TOKENS * len(quotables))
    half = (cap - estimate_text(_ELLIPSIS)) // 2
    quotes = {}
    for quotable, size in zip(quotables, sizes, strict=True):
        text = quotable.text
        if size > cap:
            tail = characters_within(text, half, from_end=True)
            text = text[: characters_within(text, half)].rstrip() + _ELLIPSIS + text[len(text) - tail :].lstrip()
        quotes[quotable.order] = f"[{quotable.label}] {text}"
    return quotes
