"""Tool outputs in the context: which become tombstones, and what stays of a long one.

The rules of pruning are seed 000's ("ToolOutputPruner"), each a row of the table in ``tests/core/test_pruning.py``. Two
things are added, because the seed knows one size of model: both windows shrink with the budget (they are the seed's
from about 160,000 usable tokens on), and an output that is smaller than its tombstone stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import takewhile

from mnesis_core.config import Config, PruneConfig
from mnesis_core.context.budget import Budget
from mnesis_core.context.entries import ContextEntry, MessageEntry, in_order
from mnesis_core.files.references import with_output_files
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import ToolPart, ToolState

MARKER_TOKENS = 32  # the most tokens of a tombstone without the files that it names
LARGEST_WINDOW_SHARE = 4  # The protected window is at most one part in four of usable.
LARGEST_MINIMUM_SHARE = 8  # The minimum is at most one part in eight of usable.


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneChoice:
    part_ids: tuple[str, ...]
    tokens: int
    scanned: int


def select_prunable(entries: Sequence[ContextEntry], config: Config, budget: Budget) -> PruneChoice:
    """Return the outputs to tombstone in a context.

    From the newest message back to the last summary, or to the beginning: the messages after the ``protect_turns``-th
    user message from the end are protected; so are outputs that are not completed, those of protected tools, and in one
    message whatever stands before a tombstone. Of the rest, in that order, the first ``protect_tokens`` stay, and what
    comes then is chosen, the output that crosses the border whole. Nothing is chosen when the sum is not above
    ``minimum_tokens``.
    """
    prune = config.prune
    parts = list(_tool_parts(entries, prune.protect_turns)) if prune.enabled else []
    window = min(prune.protect_tokens, budget.usable // LARGEST_WINDOW_SHARE)
    chosen = list(_beyond_window(parts, prune, window))
    tokens = sum(size for _, size in chosen)
    if tokens <= min(prune.minimum_tokens, budget.usable // LARGEST_MINIMUM_SHARE):
        return PruneChoice(part_ids=(), tokens=0, scanned=len(parts))
    return PruneChoice(part_ids=tuple(part_id for part_id, _ in chosen), tokens=tokens, scanned=len(parts))


def _tool_parts(entries: Sequence[ContextEntry], protect_turns: int) -> Iterator[tuple[str, ToolPart]]:
    newest_first = takewhile(lambda entry: isinstance(entry, MessageEntry), reversed(in_order(entries)))
    users = 0
    for message in (entry.message for entry in newest_first if isinstance(entry, MessageEntry)):
        users += message.role == "user"
        if users < protect_turns:
            continue
        for stored in reversed(message.parts):
            if isinstance(stored.part, ToolPart):
                yield stored.id, stored.part
                if stored.part.compacted_at is not None:
                    break


def _beyond_window(parts: Sequence[tuple[str, ToolPart]], prune: PruneConfig, window: int) -> Iterator[tuple[str, int]]:
    seen = 0
    for part_id, part in parts:
        is_prunable = part.state is ToolState.COMPLETED and part.compacted_at is None
        if not is_prunable or part.tool_name in prune.protected_tools:
            continue
        size = estimate_text(part.output or "")
        seen += size
        # The files that the output names stay in its tombstone.
        if seen > window and size > MARKER_TOKENS + estimate_text(with_output_files("", part, part_id)):
            yield part_id, size


# What of a long tool output stays in the conversation: its two ends, and where the whole of it is

_OPENING = "[The whole of this output is "
_WHOLE = re.compile(re.escape(_OPENING) + r"(file_[0-9A-HJKMNP-TV-Z]{26}), ")
OUTPUTS = "tool-outputs/"  # The paths of files that hold outputs of tools begin with it: their contents are kept here.
HEAD_SHARE = 0.7  # The beginning says what the output is; the end says how it came out.


def shorten_output(output: str, characters: int, *, file_id: str) -> str:
    """Return the two ends of an output, ``characters`` long together, under a line that names the file with the whole.

    That line stands first because a text that is shortened again, for a small window or a preview, keeps its beginning.
    ``output`` must be longer than ``characters``.
    """
    head = int(characters * HEAD_SHARE)
    tail = characters - head
    missing = f"{len(output) - characters:,} characters left out here"
    said = (
        f"{_OPENING}{file_id}, with {len(output):,} characters; lcm_read reads it. Its beginning and its end follow.]"
    )
    return f"{said}\n{output[:head]}\n[… {missing} …]\n{output[len(output) - tail :]}"


def file_of_output(text: str) -> str:
    """Return the id of the file that has the whole of a shortened output, or an empty text. The beginning is enough."""
    found = _WHOLE.match(text)
    return found[1] if found else ""


def cap_output(output: str, characters: int) -> str:
    """Return an output that is kept whole, or its beginning and how long it was."""
    if len(output) <= characters:
        return output
    said = f"{len(output):,} characters, of which {characters:,} were kept"
    return f"{output[:characters]}\n[cut: the output had {said}]"
