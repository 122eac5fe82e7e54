"""Escalation of a summary from level 1 to 3: text in, a summary that is proven useful out. It never fails or loops.

Each piece escalates by itself, so that what one call did well is not paid for again. The model is not asked again about
a piece after two errors, after one that took too long, one that gave nothing however often it was asked (``retrying``),
or when it may not be asked: level 3 needs none. A model that refuses a piece as too long is given pieces of half the
length. A draft that loses too many of the salient items of its source is asked for once more, with them named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial

from mnesis_core.compaction.fidelity import Fidelity, Shown, SourceItem, measure
from mnesis_core.compaction.requests import (
    JOINT,
    KEEPS_NO_MORE,
    LOSSY,
    SHIPPED,
    SIDE_BY_SIDE,
    SMALLEST_TARGET,
    Attempt,
    Prompts,
    Question,
    Recorder,
    SummaryPrompt,
    cleaned,
    failure_of,
    judge,
    longest_summary,
    naming_missing,
    payload_of,
    reply_limit,
)
from mnesis_core.compaction.transcript import SMALLEST_LIMIT, VERSION, Quotable, excerpt, piece_limit, text_pieces
from mnesis_core.config import Config
from mnesis_core.context.entries import SummaryKind
from mnesis_core.context.fitting import SUMMARY_FRAME, Budget
from mnesis_core.errors import ModelTimeout
from mnesis_core.files.references import (
    MOST_TOKENS,
    NO_IDS,
    SHARE_OF_EXCERPT,
    SHARE_OF_SOURCE,
    SHARE_OF_TARGET,
    FileManifest,
    Named,
    name_files,
    with_footer,
    without_footer,
)
from mnesis_core.llm.interface import Model, Reply, Request, Source, Usage
from mnesis_core.llm.retrying import gave_nothing, is_too_long
from mnesis_core.llm.tokens import estimate_text

JOINT_TOKENS = 2
SHORTER_TRIES = 3
MOST_MISSING_TOKENS = 1_000  # of what a draft had lost, in the question that asks for another
MISSING_SHARE = 8  # one part in so many of what the model reads at once


class _TooLong(Exception):
    """The model refuses a piece as too long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryResult:
    text: str
    token_count: int
    level: int  # the highest that any of its pieces needed
    tries: tuple[Attempt, ...]
    usage: Usage
    prompt_version: str  # Of the prompt whose answer it is, such as ``level1.1``; ``excerpt.1`` at level 3.
    manifest: FileManifest | None = None


async def summarise(
    pieces: Sequence[str],
    source_tokens: int,
    model: Model | None,
    config: Config,
    budget: Budget,
    *,
    kind: SummaryKind,
    manifest_id: str,
    recorder: Recorder,
    quotables: Sequence[Quotable] = (),
    named: Named = NO_IDS,
    items: Sequence[SourceItem] = (),
    prompts: Prompts = SHIPPED,
    limit: int | None = None,
    cut: Callable[[int], Sequence[str]] | None = None,
) -> SummaryResult:
    """Return a summary of ``pieces``, which together are one span.

    ``source_tokens`` is what the span takes in the context now; the summary takes less, its frame included. Level 3
    quotes ``quotables``, or the pieces when there are none; it is used at once without a model. Every id of ``named``
    stands in the result, or in its manifest, whose id is ``manifest_id``. ``items`` are what it should not lose: when a
    draft lacks more of them than ``compaction.fidelity_bound`` allows, one more is asked for, and the better one is taken.
    ``recorder`` asks the model and keeps every attempt. ``limit`` is the most tokens of a piece, and ``cut`` makes the
    pieces again with another limit, for a model that refuses one as too long.
    """
    largest = max(1, source_tokens - SUMMARY_FRAME)
    room = min(MOST_TOKENS, largest // SHARE_OF_SOURCE, budget.target // SHARE_OF_TARGET)
    naming = name_files(named, room, manifest_id)
    run = _Run(
        recorder=recorder,
        model=model,
        config=config,
        budget=budget,
        source_tokens=source_tokens,
        largest=largest,
        named=naming.named,
        items=items,
        prompts=prompts,
        limit=limit or (piece_limit(model.spec, config) if model else 0),
    )
    written = await run.write(pieces, kind, cut)
    if written is not None:
        return run.result(written, with_footer(written.text, naming.named), naming.manifest)
    naming = name_files(named, min(room, run.excerpt_limit() // SHARE_OF_EXCERPT), manifest_id)
    quotables = quotables or [Quotable(order=index, label="text", text=piece) for index, piece in enumerate(pieces)]
    quoted = await run.draft_excerpt(excerpt(quotables, run.excerpt_limit(), largest, naming.named))
    # An excerpt of the whole already has its footer, cut to the room there is.
    return run.result(quoted, quoted.text, naming.manifest)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    text: str
    level: int
    version: str
    try_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    text: str
    kind: SummaryKind
    tokens: int  # A summary must be smaller.
    target: int  # Tokens that a level 1 summary may have; level 2 gets half.
    number: int = 1
    count: int = 1
    merges: tuple[str, ...] = ()
    named: Named = NO_IDS


@dataclass(slots=True, kw_only=True)
class _Run:
    recorder: Recorder
    model: Model | None  # None once it is not to be asked any more
    config: Config
    budget: Budget
    source_tokens: int
    largest: int  # Tokens that the summary must be below, so that in its frame it is smaller than what it stands for.
    named: Named
    items: Sequence[SourceItem]
    prompts: Prompts
    limit: int
    may_ask_again: bool = True  # for a draft that keeps more: once in a summary
    tries: list[Attempt] = field(default_factory=list)

    async def write(
        self, pieces: Sequence[str], kind: SummaryKind, cut: Callable[[int], Sequence[str]] | None
    ) -> _Draft | None:
        """Summarise the pieces, or shorter ones where the model refuses one as too long; ``None`` when level 3 is due."""
        for _ in range(1 + SHORTER_TRIES):
            with suppress(_TooLong):
                return await self.reduce(pieces, kind)
            if cut is None:
                break
            self.limit = max(SMALLEST_LIMIT, self.limit // 2)
            pieces = cut(self.limit)
        return None

    async def reduce(self, pieces: Sequence[str], kind: SummaryKind, merges: tuple[str, ...] = ()) -> _Draft | None:
        """Summarise each piece and merge the summaries until the whole passes; ``None`` when level 3 is due."""
        if self.model is None or not pieces:
            return None
        target = longest_summary(self.source_tokens, self.config, self.budget)
        if len(pieces) == 1:
            piece = _Piece(
                text=pieces[0], kind=kind, tokens=self.largest, target=target, merges=merges, named=self.named
            )
            return await self._escalate(piece)
        share = max(SMALLEST_TARGET, target // len(pieces) - JOINT_TOKENS)
        drafts = []
        for number, text in enumerate(pieces, start=1):
            piece = _Piece(
                text=text,
                kind=kind,
                tokens=estimate_text(text),
                target=share,
                number=number,
                count=len(pieces),
                merges=merges,
            )
            draft = await self._escalate(piece)
            if draft is None:
                quotable = Quotable(order=0, label="text", text=text)
                quoted = excerpt([quotable], min(share, self.excerpt_limit()), piece.tokens)
                draft = await self.draft_excerpt(quoted, number, len(pieces))
            drafts.append(draft)
        level = max(draft.level for draft in drafts)
        joined = JOINT.join(draft.text for draft in drafts)
        if all(draft.level == 3 for draft in drafts):
            return None
        text = with_footer(joined, self.named)
        if judge(text, source="", source_tokens=self.largest, target=target, named=self.named) is None:
            version = next(draft.version for draft in drafts if draft.level < 3)
            return replace(drafts[0], text=joined, level=level, version=version)
        again = text_pieces(joined, self.limit)
        tries = tuple(draft.try_id for draft in drafts)
        merged = await self.reduce(again, "condensed", tries) if len(again) < len(pieces) else None
        return replace(merged, level=max(level, merged.level)) if merged else None

    def result(self, draft: _Draft, text: str, manifest: FileManifest | None) -> SummaryResult:
        usages = [attempt.usage for attempt in self.tries if attempt.level < 3]
        is_reported = bool(usages) and all(usage.source is Source.PROVIDER for usage in usages)
        return SummaryResult(
            text=text,
            token_count=estimate_text(text),
            level=draft.level,
            tries=tuple(self.tries),
            usage=Usage(
                input_tokens=sum(usage.input_tokens for usage in usages),
                output_tokens=sum(usage.output_tokens for usage in usages),
                cache_read_tokens=sum(usage.cache_read_tokens for usage in usages),
                cache_write_tokens=sum(usage.cache_write_tokens for usage in usages),
                source=Source.PROVIDER if is_reported else Source.ESTIMATED,
            ),
            prompt_version=draft.version,
            manifest=manifest,
        )

    def excerpt_limit(self) -> int:
        return min(self.config.compaction.level3_tokens, max(SMALLEST_TARGET, self.budget.target // SIDE_BY_SIDE))

    async def draft_excerpt(self, text: str, number: int = 1, count: int = 1) -> _Draft:
        attempt = Attempt(level=3, accepted=True, piece=number, pieces=count)
        self.tries.append(attempt)
        return _Draft(text=text, level=3, version=VERSION, try_id=await self.recorder.excerpt(attempt, text))

    async def _escalate(self, piece: _Piece) -> _Draft | None:
        errors = 0
        is_merge = piece.kind == "condensed"  # The levels are the same for messages and summaries.
        levels = [(1, self.prompts.condense if is_merge else self.prompts.level1, piece.target)]
        if self.config.compaction.level2_enabled:
            shorter = self.prompts.condense2 if is_merge else self.prompts.level2
            levels.append((2, shorter, max(1, piece.target // 2)))
        for level, prompt, target in levels:
            if self.model is None:
                return None
            question = self._question(self.model, level, prompt, piece, target)
            answer = await self.recorder.ask(question, partial(self._judge, piece, target))
            self.tries.append(answer.attempt)
            reply = answer.reply
            if reply is not None and is_too_long(reply):
                raise _TooLong
            if reply is None or _is_in_vain(reply):
                self.model = None
                return None
            if answer.attempt.accepted:
                draft = _Draft(text=draft_text(reply.text), level=level, version=prompt.version, try_id=answer.try_id)
                is_due = answer.attempt.reason == LOSSY and self.may_ask_again
                return await self._ask_again(draft, question, piece) if is_due else draft
            errors += reply.error is not None
        if errors == len(levels):
            self.model = None
        return None

    async def _ask_again(self, first: _Draft, question: Question, piece: _Piece) -> _Draft:
        """Ask once more with what a draft lacks named, and return the one that keeps more."""
        if self.model is None:
            return first
        self.may_ask_again = False
        lost = self._fidelity(piece, first.text)
        room = min(MOST_MISSING_TOKENS, self.limit // MISSING_SHARE)
        prompt = naming_missing(question.prompt, [one.item.text for one in lost.missing], room=room)
        again = self._question(self.model, question.level, prompt, piece, question.target)
        answer = await self.recorder.ask(again, partial(self._judge, piece, question.target, than=lost))
        self.tries.append(answer.attempt)
        if answer.reply is not None and _is_in_vain(answer.reply):
            self.model = None
        if answer.reply is None or not answer.attempt.accepted:
            return first
        return replace(first, text=draft_text(answer.reply.text), try_id=answer.try_id)

    def _judge(self, piece: _Piece, target: int, reply: Reply, *, than: Fidelity | None = None) -> str | None:
        """Return why a reply may not be a summary, or that it is ``lossy``; with ``than`` it has to keep more."""
        if reason := failure_of(reply):
            return reason
        text = draft_text(reply.text)
        whole = with_footer(text, piece.named)
        if reason := judge(whole, source=piece.text, source_tokens=piece.tokens, target=target, named=piece.named):
            return reason
        fidelity = self._fidelity(piece, text)
        if than is not None and not fidelity.keeps_more(than):
            return KEEPS_NO_MORE
        return LOSSY if fidelity.passes(self.config.compaction.fidelity_bound) else None

    def _fidelity(self, piece: _Piece, text: str) -> Fidelity:
        items = self.items
        if items and piece.count != 1:
            source = Shown([piece.text])
            items = [one for one in items if source.has(one.item)]
        return measure(items, Shown([with_footer(text, self.named)]))

    def _question(self, model: Model, level: int, prompt: SummaryPrompt, piece: _Piece, target: int) -> Question:
        return Question(
            level=level,
            prompt=prompt,
            target=target,
            limit=self.limit,
            piece=piece.number,
            pieces=piece.count,
            merges=piece.merges,
            request=Request(
                payload=payload_of(prompt, piece.text, target), max_output_tokens=reply_limit(model.spec, target)
            ),
        )


def draft_text(reply: str) -> str:
    """Return what of a model's reply goes into a summary: no thinking in front, none of the footers that we write."""
    return without_footer(cleaned(reply))


def _is_in_vain(reply: Reply) -> bool:
    """Return whether another prompt would not help: the model is slow, or it is away and was asked again already."""
    is_away = reply.error is not None and reply.error.retriable and gave_nothing(reply)
    return is_away or isinstance(reply.error, ModelTimeout)
