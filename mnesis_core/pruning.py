"""Which tool outputs become tombstones. Chooses, never writes.

The rules are seed 000's ("ToolOutputPruner"), with the windows scaled to the model and without two traps
of the reference: an old tombstone does not hide what is older, and a summary does not either (whatever
stands in the context may be pruned).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain

from mnesis_core.budget import Budget
from mnesis_core.config import Config, PruneConfig
from mnesis_core.dag import whole_turns
from mnesis_core.messages import StoredMessage, StoredPart, ToolPart, ToolState
from mnesis_core.tokens import estimate_text

MARKER_TOKENS = 32
"""What a tombstone takes itself; a smaller output would grow."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneChoice:
    """What to tombstone."""

    part_ids: tuple[str, ...]
    """Newest first."""
    tokens: int
    """Of their outputs."""
    scanned: int
    """Tool parts that were looked at."""


def select_prunable(messages: Sequence[StoredMessage], config: Config, budget: Budget) -> PruneChoice:
    """The outputs to tombstone among the plain messages of a context, oldest message first.

    From the newest back: completed outputs beyond the protected turns count until the protected window is
    full; whatever comes then is chosen, the one that crosses the border whole. Nothing is chosen when the
    sum is not above the minimum. The newest turn is protected whatever the configuration says.
    """
    prune = config.prune
    turns = whole_turns(messages)
    unprotected = list(chain.from_iterable(turns[: -max(prune.protect_turns, 1)])) if prune.enabled else []
    parts = [stored for message in reversed(unprotected) for stored in reversed(message.parts)]
    chosen = list(_beyond_window(parts, prune, min(prune.protect_tokens, budget.usable // 4)))
    tokens = sum(size for _, size in chosen)
    scanned = sum(isinstance(stored.part, ToolPart) for stored in parts)
    if tokens <= min(prune.minimum_tokens, budget.usable // 8):
        return PruneChoice(part_ids=(), tokens=0, scanned=scanned)
    return PruneChoice(part_ids=tuple(part_id for part_id, _ in chosen), tokens=tokens, scanned=scanned)


def _beyond_window(parts: Sequence[StoredPart], prune: PruneConfig, window: int) -> Iterator[tuple[str, int]]:
    seen = 0
    for stored in parts:
        size = _output_tokens(stored, prune)
        seen += size
        if seen > window and size > MARKER_TOKENS:
            yield stored.id, size


def _output_tokens(stored: StoredPart, prune: PruneConfig) -> int:
    """Tokens that a tombstone would take out of the context; 0 for what may not be pruned."""
    part = stored.part
    if not isinstance(part, ToolPart) or part.state is not ToolState.COMPLETED or part.compacted_at is not None:
        return 0
    return 0 if part.tool_name in prune.protected_tools else estimate_text(part.output or "")
