"""Level 1 -> 2 -> 3: text in, a summary that is proven useful out. Never fails and never loops.

Each piece escalates by itself, so that what one call did well is not paid for again. After two errors of
the model on one piece it is not asked again: level 3 needs none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from mnesis_core.assembly.fitting import SUMMARY_FRAME
from mnesis_core.budget import Budget
from mnesis_core.compaction.excerpt import VERSION, Quotable, excerpt
from mnesis_core.compaction.judging import cleaned, judge
from mnesis_core.compaction.prompts import SHIPPED, Prompts, SummaryPrompt
from mnesis_core.compaction.transcript import piece_limit, text_pieces
from mnesis_core.config import Config
from mnesis_core.dag import SummaryKind
from mnesis_core.footers import NO_IDS, Named, with_footer, without_footer
from mnesis_core.llm import Model, Reply, Request, Source, Usage, complete
from mnesis_core.text import printable
from mnesis_core.tokens import estimate_text

LARGEST_SHARE = 0.35
"""Of the source: what level 1 is asked for at most."""
SMALLEST_TARGET = 48
"""Tokens."""
SIDE_BY_SIDE = 4
"""Summaries of full length that have room below the low mark: of fewer, each compaction would have to merge some."""
CUT_OFF = frozenset({"length", "max_tokens"})
"""Finish reasons of an answer that is not whole."""
JOINT_TOKENS = 2
"""Between the summaries of two pieces."""
REPLY_SLACK = 1_024
"""Tokens beside the summary that a call may write: some models think first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Try:
    """One attempt at one piece."""

    level: int
    accepted: bool
    reason: str
    """Why not: a reason of ``judge``, ``tool_call``, ``cut_off`` or a model's error code; empty when accepted."""
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
class SummaryResult:
    """An accepted summary and what it took."""

    text: str
    """With its footer of ids."""
    token_count: int
    level: int
    """The highest that any of its pieces needed."""
    tries: tuple[Try, ...]
    usage: Usage
    """Of all tries together."""
    prompt_version: str
    """Of the prompt whose answer it is, such as ``level1.1``; ``excerpt.1`` at level 3."""


async def summarise(
    pieces: Sequence[str],
    source_tokens: int,
    model: Model | None,
    config: Config,
    budget: Budget,
    *,
    kind: SummaryKind,
    deterministic_only: bool = False,
    quotables: Sequence[Quotable] = (),
    named: Named = NO_IDS,
    prompts: Prompts = SHIPPED,
) -> SummaryResult:
    """A summary of ``pieces``, which together are one span.

    ``source_tokens`` is what the span takes in the context now; the summary takes less, its frame included.
    Level 3 quotes ``quotables``, or the pieces when there are none. Every id of ``named`` stands in the result,
    whatever the model wrote. Without a model, or with ``deterministic_only``, level 3 is used at once.
    """
    run = _Run(
        model=None if deterministic_only else model,
        config=config,
        budget=budget,
        source_tokens=source_tokens,
        largest=max(1, source_tokens - SUMMARY_FRAME),
        named=named,
        prompts=prompts,
    )
    written = await run.reduce(pieces, kind)
    quotables = quotables or [Quotable(order=index, label="text", text=piece) for index, piece in enumerate(pieces)]
    draft = written or run.level3(quotables)
    # An excerpt of the whole has its footer already, cut to the room there is.
    text = with_footer(written.text, named) if written else draft.text
    return SummaryResult(
        text=text,
        token_count=estimate_text(text),
        level=draft.level,
        tries=tuple(run.tries),
        usage=_total(run.tries),
        prompt_version=draft.version,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    text: str
    level: int
    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    """One text to summarise, and what its summary must keep to."""

    text: str
    kind: SummaryKind
    tokens: int
    """A summary must be smaller."""
    target: int
    """Tokens that a level 1 summary may have; level 2 gets half."""
    number: int = 1
    count: int = 1
    named: Named = NO_IDS


@dataclass(slots=True, kw_only=True)
class _Run:
    """One call of ``summarise``."""

    model: Model | None
    """``None`` once it is not to be asked any more."""
    config: Config
    budget: Budget
    source_tokens: int
    largest: int
    """Tokens that the summary must be below, so that in its frame it is smaller than what it stands for."""
    named: Named
    prompts: Prompts
    tries: list[Try] = field(default_factory=list)

    async def reduce(self, pieces: Sequence[str], kind: SummaryKind) -> _Draft | None:
        """Summarise each piece, join the summaries, and merge them until the whole passes; ``None``: level 3 is due."""
        if self.model is None or not pieces:
            return None
        target = self._target()
        if len(pieces) == 1:
            whole = _Piece(text=pieces[0], kind=kind, tokens=self.largest, target=target, named=self.named)
            return await self._escalate(whole)
        limit = piece_limit(self.model.spec, self.config)
        drafts = [await self._part(piece) for piece in _shares(pieces, kind, target)]
        level = max(draft.level for draft in drafts)
        joined = "\n\n".join(draft.text for draft in drafts)
        if all(draft.level == 3 for draft in drafts):
            return None
        if self._is_accepted(joined, target):
            version = next(draft.version for draft in drafts if draft.level < 3)
            return _Draft(text=joined, level=level, version=version)
        again = text_pieces(joined, limit)
        merged = await self.reduce(again, "condensed") if len(again) < len(pieces) else None
        return replace(merged, level=max(level, merged.level)) if merged else None

    def level3(self, quotables: Sequence[Quotable]) -> _Draft:
        """An excerpt of the whole span."""
        text = excerpt(quotables, self._excerpt_limit(), self.largest, self.named)
        self._record_level3()
        return _Draft(text=text, level=3, version=VERSION)

    def _target(self) -> int:
        share = min(int(self.source_tokens * LARGEST_SHARE), self.budget.target // SIDE_BY_SIDE)
        return max(SMALLEST_TARGET, min(self.config.compaction.summary_target_tokens, share))

    def _excerpt_limit(self) -> int:
        return min(self.config.compaction.level3_tokens, max(SMALLEST_TARGET, self.budget.target // 2))

    def _is_accepted(self, text: str, target: int) -> bool:
        whole = with_footer(text, self.named)
        return judge(whole, source="", source_tokens=self.largest, target=target, named=self.named) is None

    def _record_level3(self, number: int = 1, count: int = 1) -> None:
        self.tries.append(
            Try(
                level=3,
                accepted=True,
                reason="",
                input_tokens=0,
                output_tokens=0,
                source=Source.ESTIMATED,
                piece=number,
                pieces=count,
            )
        )

    async def _part(self, piece: _Piece) -> _Draft:
        """A piece of several, at whatever level works."""
        draft = await self._escalate(piece)
        if draft is not None:
            return draft
        quotable = Quotable(order=0, label="text", text=piece.text)
        text = excerpt([quotable], min(piece.target, self._excerpt_limit()), piece.tokens)
        self._record_level3(piece.number, piece.count)
        return _Draft(text=text, level=3, version=VERSION)

    async def _escalate(self, piece: _Piece) -> _Draft | None:
        """Level 1, then 2; ``None`` when neither gave anything of use."""
        errors = 0
        levels = list(self._levels(piece))
        for level, prompt, target in levels:
            if self.model is None:
                return None
            reply = await complete(self.model, self._request(self.model, prompt, piece, target))
            text = without_footer(cleaned(reply.text))
            reason = _reason(reply, text, piece, target)
            self.tries.append(_try(level, reason, reply, piece))
            if reason is None:
                return _Draft(text=text, level=level, version=prompt.version)
            errors += reply.error is not None
        if errors == len(levels):
            self.model = None
        return None

    def _levels(self, piece: _Piece) -> Iterator[tuple[int, SummaryPrompt, int]]:
        """Level, prompt and target, in the order of escalation; the same for messages and summaries."""
        is_merge = piece.kind == "condensed"
        yield 1, self.prompts.condense if is_merge else self.prompts.level1, piece.target
        if self.config.compaction.level2_enabled:
            yield 2, self.prompts.condense2 if is_merge else self.prompts.level2, max(1, piece.target // 2)

    def _request(self, model: Model, prompt: SummaryPrompt, piece: _Piece, target: int) -> Request:
        wanted = min(target + REPLY_SLACK, max(target, model.spec.context_window // 4))
        most = model.spec.max_output_tokens
        return Request(
            payload={"messages": prompt.messages(printable(piece.text), target)},
            max_output_tokens=min(wanted, most) if most > 0 else wanted,
        )


def _shares(pieces: Sequence[str], kind: SummaryKind, target: int) -> Iterator[_Piece]:
    share = max(SMALLEST_TARGET, target // len(pieces) - JOINT_TOKENS)
    for number, text in enumerate(pieces, start=1):
        yield _Piece(text=text, kind=kind, tokens=estimate_text(text), target=share, number=number, count=len(pieces))


def _reason(reply: Reply, text: str, piece: _Piece, target: int) -> str | None:
    if reply.error is not None:
        return reply.error.code
    if reply.tool_calls:
        return "tool_call"
    if reply.finish_reason in CUT_OFF:
        return "cut_off"
    whole = with_footer(text, piece.named)
    return judge(whole, source=piece.text, source_tokens=piece.tokens, target=target, named=piece.named)


def _try(level: int, reason: str | None, reply: Reply, piece: _Piece) -> Try:
    return Try(
        level=level,
        accepted=reason is None,
        reason=reason or "",
        input_tokens=reply.usage.input_tokens,
        output_tokens=reply.usage.output_tokens,
        source=reply.usage.source,
        cache_read_tokens=reply.usage.cache_read_tokens,
        cache_write_tokens=reply.usage.cache_write_tokens,
        piece=piece.number,
        pieces=piece.count,
    )


def _total(tries: Sequence[Try]) -> Usage:
    asked = [attempt for attempt in tries if attempt.level < 3]
    is_reported = bool(asked) and all(attempt.source is Source.PROVIDER for attempt in asked)
    return Usage(
        input_tokens=sum(attempt.input_tokens for attempt in asked),
        output_tokens=sum(attempt.output_tokens for attempt in asked),
        cache_read_tokens=sum(attempt.cache_read_tokens for attempt in asked),
        cache_write_tokens=sum(attempt.cache_write_tokens for attempt in asked),
        source=Source.PROVIDER if is_reported else Source.ESTIMATED,
    )
