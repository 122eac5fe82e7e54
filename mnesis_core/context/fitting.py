"""How a context fits a model's window: the budget and when it calls for a compaction, the tool outputs that become
tombstones, what entries cost, and how the messages of one turn are shortened to fit.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from enum import StrEnum
from functools import partial
from itertools import accumulate, chain, takewhile
from math import ceil, inf
from typing import Any

from mnesis_core.config import Config
from mnesis_core.context.entries import EMPTY_MESSAGE, ContextEntry, MessageEntry, SummaryEntry, in_order
from mnesis_core.context.wording import (
    characters_of_arguments,
    ends_within,
    fields_of,
    going_back,
    is_object,
    is_tombstoned,
    message_row,
    read_field,
    read_summary,
    source_of,
    summary_row,
    valid_arguments,
)
from mnesis_core.files.references import with_output_files
from mnesis_core.llm.interface import ModelSpec, spec_as_said, spec_in_session
from mnesis_core.llm.tokens import (
    LARGEST_RATIO,
    MESSAGE_FRAMING,
    SMALLEST_RATIO,
    TOOL_FRAMING,
    Calibration,
    CountSource,
    estimate_text,
)
from mnesis_core.messages import (
    FileRefPart,
    MediaPart,
    ProviderPart,
    ProviderToolPart,
    StoredMessage,
    StoredPart,
    TextPart,
    ToolPart,
    ToolState,
)
from mnesis_core.values import dataclass

LARGEST_RESERVE_SHARE = 8  # The compaction reserve is at most one part in eight of what the answer leaves.
SMALLEST_WINDOW = 20  # Tokens. Nothing smaller can be divided.
LARGEST_SPACING = 2 / 3  # Of the room that a compaction has left: the most that may be taken before the next soft one.

MARKER_TOKENS = 32  # the most tokens of a tombstone without the files that it names
LARGEST_WINDOW_SHARE = 4  # The protected window is at most one part in four of usable.
LARGEST_MINIMUM_SHARE = 8  # The minimum is at most one part in eight of usable.

OUTPUTS = "tool-outputs/"  # The paths of files that hold outputs of tools begin with it: their contents are kept here.
HEAD_SHARE = 0.7  # The beginning says what the output is; the end says how it came out.
_OPENING = "[The whole of this output is "
_WHOLE = re.compile(re.escape(_OPENING) + r"(file_[0-9A-HJKMNP-TV-Z]{26}), ")

SHORTEST_FIELD = 128  # Tokens: a shortened text gets no less, so that some of it remains beside its note.
SUMMARY_FRAME = 104  # the most tokens of the frame around a summary
RESULT_FRAME = 12  # Tokens of "Error: " before a result, or of the sentence that stands for a missing one.
_BELIEVABLE = 8  # A stored estimate below one token for this many characters is counted anew.


@dataclass(frozen=True, slots=True, kw_only=True)
class Budget:
    """The window of a model, divided; all in tokens."""

    window: int
    reserved_output: int  # Kept free for the answer; also the most that a call may ask for.
    reserve: int  # Kept free for compaction and for the estimate's error.
    usable: int  # What system prompt, tools and context may take together.
    soft: int  # From here on a compaction is requested after the turn.
    hard: int  # From here on a compaction comes before the next call.
    target: int  # What compaction goes down to.


class Pressure(StrEnum):
    NONE = "none"
    SOFT = "soft"
    HARD = "hard"


class Reason(StrEnum):
    SOFT = "soft"
    HARD = "hard"
    BELOW_SOFT = "below_soft"
    AUTO_OFF = "auto_off"
    TOO_SOON = "too_soon"  # Too little is new since the last compaction.
    UNCHANGED = "unchanged"  # The last compaction failed, and nothing is new since.
    NOTHING_TO_SUMMARISE = "nothing_to_summarise"  # All that may be summarised or pruned is.
    ALREADY_REQUESTED = "already_requested"


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRun:
    tokens: int  # of the context at its end, as far as that is known
    failed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    compact: bool
    pressure: Pressure
    reason: Reason
    used: int
    source: CountSource = CountSource.ESTIMATED


def make_budget(spec: ModelSpec, config: Config, *, window_said: int | None = None) -> Budget:
    """Return the budget of a model under a configuration, within the window that its provider says it has.

    The reserves of seed 000 are absolute and leave nothing of a small window, so each is also bounded by a share: the
    answer's of the window, the compaction's of the rest. So a larger window never leaves less usable.
    """
    spec = spec_as_said(spec_in_session(spec, config), window_said)
    window = max(spec.context_window, SMALLEST_WINDOW)
    output_share = max(1, int(window * config.budget.reserved_output_share))
    reserved_output = min(spec.max_output_tokens, output_share) if spec.max_output_tokens > 0 else output_share
    rest = window - reserved_output
    usable = rest - min(config.budget.compaction_reserve_tokens, rest // LARGEST_RESERVE_SHARE)
    return Budget(
        window=window,
        reserved_output=reserved_output,
        reserve=rest - usable,
        usable=usable,
        soft=int(usable * config.budget.soft_threshold_fraction),
        hard=usable,
        target=int(usable * config.budget.target_fraction),
    )


def budget_beside(budget: Budget, tokens: int) -> Budget:
    """Return what remains of a budget where a call is sent this many tokens beside its prompt; at least half of it."""
    usable = max(budget.usable - tokens, budget.usable // 2)
    whole = max(budget.usable, 1)
    return replace(
        budget,
        reserve=budget.reserve + budget.usable - usable,
        usable=usable,
        soft=budget.soft * usable // whole,
        hard=budget.hard * usable // whole,
        target=budget.target * usable // whole,
    )


def pressure(used: int, budget: Budget) -> Pressure:
    """Return the pressure of a context that would take ``used`` tokens whole, before anything was cut."""
    return pressure_between(used, soft=budget.soft, hard=budget.hard)


def pressure_between(used: int, *, soft: int, hard: int) -> Pressure:
    if used >= hard:
        return Pressure.HARD
    return Pressure.SOFT if used >= soft else Pressure.NONE


def should_compact(
    *, used: int, budget: Budget, config: Config, last: LastRun | None, is_something_to_do: bool = True
) -> Trigger:
    """Decide whether automatic compaction is due.

    ``used`` is what the whole context would take now. The high mark is the soft threshold, the low one that a compaction
    goes down to is the target. Soft compactions keep a distance, so that a context which cannot shrink is not compacted
    after every step; the hard threshold beats the distance, but not for the context that a compaction has just failed on.
    """
    level = pressure(used, budget)
    new_tokens = used if last is None else used - last.tokens
    # A worker needs some room to be done before the hard threshold, where the turn has to wait. At least one token, so that
    # no compaction follows another on the same context.
    room = 0 if last is None else int((budget.hard - last.tokens) * LARGEST_SPACING)
    distance = max(1, min(int(budget.window * config.compaction.spacing_fraction), room))
    against = (
        (Reason.BELOW_SOFT, level is Pressure.NONE),
        (Reason.AUTO_OFF, not config.compaction.auto),
        (Reason.UNCHANGED, last is not None and last.failed and new_tokens <= 0),
        (Reason.TOO_SOON, level is Pressure.SOFT and last is not None and new_tokens < distance),
        (Reason.NOTHING_TO_SUMMARISE, not is_something_to_do),
    )
    reason = next((reason for reason, holds in against if holds), None)
    return Trigger(compact=reason is None, pressure=level, reason=reason or Reason(level.value), used=used)


# How large a context is: by the provider's own count of its last prompt where there is one, else by our estimate


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    tokens: int
    source: CountSource  # ``provider`` for its count of the last prompt with our estimate of what came since


@dataclass(frozen=True, slots=True, kw_only=True)
class LastPrompt:
    """A context as a model was last asked about it, in tokens, estimated and not corrected."""

    whole: int
    sent: int
    reported: int = 0  # what the provider counted in the prompt, or 0


def size_now(whole: int, calibration: Calibration, last: LastPrompt | None) -> Size:
    """Return the size of a context of ``whole`` tokens, estimated and not corrected.

    The provider's count stands for what was sent, within the bounds in which it is believed; what was left out then,
    and what came since, is our estimate. That count says nothing about a context that has lost something since.
    """
    if last is None or last.reported <= 0 or whole < last.whole:
        return Size(tokens=ceil(whole * calibration.ratio), source=calibration.source)
    counted = min(max(last.reported, int(last.sent * SMALLEST_RATIO)), int(last.sent * LARGEST_RATIO))
    return Size(tokens=counted + ceil((whole - last.sent) * calibration.ratio), source=CountSource.PROVIDER)


# The tool outputs that become tombstones. The rules are seed 000's ("ToolOutputPruner"), each a row of the table in
# tests/core/context/test_pruning.py. Two things are added, because the seed knows one size of model: both windows shrink
# with the budget (they are the seed's from about 160,000 usable tokens on), and an output smaller than its tombstone
# stays.


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneChoice:
    part_ids: tuple[str, ...]
    tokens: int
    scanned: int


def select_prunable(
    entries: Sequence[ContextEntry], config: Config, budget: Budget, *, at_most: float = inf
) -> PruneChoice:
    """Return the outputs to tombstone in a context.

    From the newest message back to the last summary, or to the beginning: the messages after the ``protect_turns``-th
    user message from the end are protected; so are outputs that are not completed, those of protected tools, and in one
    message whatever stands before a tombstone. Of the rest, in that order, the first ``protect_tokens`` stay, and what
    comes then is chosen, the output that crosses the border whole. Of these the oldest are taken that have ``at_most`` so
    many tokens together. Nothing is chosen when the sum is not above ``minimum_tokens``.
    """
    prune = config.prune
    parts = list(_tool_parts(entries, prune.protect_turns)) if prune.enabled else []
    window = min(prune.protect_tokens, budget.usable // LARGEST_WINDOW_SHARE)
    chosen, seen = [], 0
    for part_id, part in parts:
        is_prunable = part.state is ToolState.COMPLETED and part.compacted_at is None
        if not is_prunable or part.tool_name in prune.protected_tools:
            continue
        size = estimate_text(part.output or "")
        seen += size
        # The files that the output names stay in its tombstone.
        if seen > window and size > MARKER_TOKENS + estimate_text(with_output_files("", part, part_id)):
            chosen.append((part_id, size))
    sums = accumulate(size for _, size in reversed(chosen))
    chosen = chosen[len(chosen) - sum(1 for total in sums if total <= at_most) :]
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


# What of a long tool output stays in the conversation: its two ends, and where the whole of it is


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
    if len(output) <= characters:
        return output
    said = f"{len(output):,} characters, of which {characters:,} were kept"
    return f"{output[:characters]}\n[cut: the output had {said}]"


# What entries cost, and how the messages of one turn are shortened to fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Item:
    entry: ContextEntry
    row: dict[str, Any]
    cost: dict[str, int]  # Tokens by the names of ``Breakdown``; empty when there is nothing that a model is sent.
    tokens: int


def _item(entry: ContextEntry, row: dict[str, Any], cost: dict[str, int]) -> Item:
    return Item(entry=entry, row=row, cost=cost, tokens=sum(cost.values()))


def whole(entry: ContextEntry, provider: str = "") -> Item:
    """Return an entry uncut; with ``provider``, also what of it goes back to that provider only."""
    if isinstance(entry, SummaryEntry):
        if "<" in entry.text:  # Quoting may lengthen it.
            tokens = MESSAGE_FRAMING + estimate_text(read_summary(entry).text)
        else:
            tokens = SUMMARY_FRAME + _trusted_estimate(entry.token_count, len(entry.text), entry.text)
        return _item(entry, summary_row(entry), {"summaries": tokens})
    opaque = going_back(entry.message, provider) if provider else ()
    cost = _sum_by_category([_part_cost(stored, opaque) for stored in entry.message.parts])
    if not cost and entry.message.role == "user":
        cost["messages"] = MESSAGE_FRAMING + estimate_text(EMPTY_MESSAGE)
    return _item(entry, message_row(entry.message, provider=provider), cost)


def _sum_by_category(costs: Iterable[tuple[str, int]]) -> dict[str, int]:
    total: dict[str, int] = {}
    for category, tokens in costs:
        if tokens:
            total[category] = total.get(category, 0) + tokens
    return total


def _part_cost(stored: StoredPart, opaque: Collection[str]) -> tuple[str, int]:
    part = stored.part
    if isinstance(part, TextPart):
        tokens = (
            MESSAGE_FRAMING + _trusted_estimate(stored.token_estimate, len(part.text), part.text) if part.text else 0
        )
        return "messages", tokens
    if isinstance(part, ToolPart) and part.compacted_at is None and is_object(part.input):
        length = len(part.tool_name) + len(part.input) + len(part.output or "") + len(part.error or "")
        if stored.token_estimate * _BELIEVABLE >= length:
            return "tool_outputs", MESSAGE_FRAMING + RESULT_FRAME + stored.token_estimate
    if stored.id in opaque:
        return "messages", frame_of(stored, goes_back=True)
    fields = fields_of(part, tombstoned=is_tombstoned(part), naming=stored.id)
    return _category(stored), frame_of(stored) + sum(_sizes(fields)) if fields else 0


def _trusted_estimate(estimate: int, length: int, text: str) -> int:
    # Measuring a long context anew for every call would cost more than reading it.
    return estimate if estimate * _BELIEVABLE >= length else estimate_text(text)


def frame_of(stored: StoredPart, *, goes_back: bool = False) -> int:
    """Return the tokens around a part's texts. Every part counts as a message of its own, the most it can become.

    What goes back to its provider has no texts that may be shortened, so all of it is its frame.
    """
    if isinstance(stored.part, ProviderPart) or (goes_back and isinstance(stored.part, ProviderToolPart)):
        return MESSAGE_FRAMING + estimate_text(stored.part.data)
    if not isinstance(stored.part, ToolPart):
        return MESSAGE_FRAMING
    return MESSAGE_FRAMING + TOOL_FRAMING + RESULT_FRAME + estimate_text(stored.part.tool_name)


def _sizes(fields: Mapping[str, str]) -> tuple[int, ...]:
    return tuple(estimate_text(valid_arguments(text) if name == "input" else text) for name, text in fields.items())


def _category(stored: StoredPart) -> str:
    if isinstance(stored.part, ToolPart | ProviderToolPart):
        return "tool_outputs"
    return "files" if isinstance(stored.part, FileRefPart | MediaPart) else "messages"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Piece:
    message: StoredMessage
    stored: StoredPart
    fields: dict[str, str]
    sizes: tuple[int, ...]
    frame: int

    @property
    def smallest(self) -> int:
        """Return the tokens with every long field at its shortest."""
        return self.frame + sum(min(size, SHORTEST_FIELD) for size in self.sizes)

    def within(self, cap: int) -> int:
        return self.frame + sum(min(size, cap) for size in self.sizes)

    def cuts(self, cap: int) -> list[dict[str, Any]]:
        """Return the manifest's record of the fields longer than ``cap``: what remains of each, in characters."""
        cuts = []
        for (name, text), size in zip(self.fields.items(), self.sizes, strict=True):
            if size <= cap:
                continue
            if name == "input" and is_object(text):
                head, tail = characters_of_arguments(text, cap, source_of(self.message, self.stored)), 0
                name = "arguments"
            else:
                head, tail = ends_within(text, cap, partial(read_field, self.message, self.stored, name, text))
            cuts.append({"part": self.stored.id, "field": name, "head": head, "tail": tail})
        return cuts


def squeeze(entries: Sequence[MessageEntry], room: int, *, provider: str = "", keep_one: bool = False) -> list[Item]:
    """Fit messages of one turn into ``room`` tokens: the newest parts stay, and no text is longer than a common cap.

    The cap is the largest that fits, so that one huge output gives way before ten small ones do. Messages of which
    nothing stays are absent. With ``keep_one`` the newest part stays however small the room is.
    """
    parts = [_pieces(entry.message, provider) for entry in entries]
    pieces = list(chain.from_iterable(parts))
    totals = accumulate(piece.smallest for piece in reversed(pieces))
    count = sum(1 for total in totals if total <= room)
    kept = pieces[len(pieces) - count :] or (pieces[-1:] if keep_one else [])
    cap = common_cap([size for piece in kept for size in piece.sizes], room - sum(piece.frame for piece in kept))
    stays = {piece.stored.id for piece in kept}
    items = []
    for entry, own in zip(entries, parts, strict=True):
        staying = [piece for piece in own if piece.stored.id in stays]
        row = message_row(
            entry.message,
            provider=provider,
            shortened=[cut for piece in staying for cut in piece.cuts(cap)],
            omitted=[piece.stored.id for piece in own if piece.stored.id not in stays],
        )
        cost = _sum_by_category((_category(piece.stored), piece.within(cap)) for piece in staying)
        items.append(_item(entry, row, cost))
    return [item for item in items if item.cost]


def _pieces(message: StoredMessage, provider: str) -> list[_Piece]:
    pieces, opaque = [], going_back(message, provider)
    for stored in message.parts:
        goes_back = stored.id in opaque
        fields = {} if goes_back else fields_of(stored.part, tombstoned=is_tombstoned(stored.part), naming=stored.id)
        if fields or goes_back:
            frame = frame_of(stored, goes_back=goes_back)
            pieces.append(_Piece(message=message, stored=stored, fields=fields, sizes=_sizes(fields), frame=frame))
    return pieces


def common_cap(sizes: Sequence[int], room: int) -> int:
    """Return the largest cap with ``sum(min(size, cap)) <= room``."""
    for index, size in enumerate(sorted(sizes)):
        share = max(0, room) // (len(sizes) - index)
        if size > share:
            return share
        room -= size
    return max(sizes, default=0)
