"""Story: the active context of a session, now or as of any event, as a payload and as numbers.

Two reads whatever the history: the context items with their messages and parts, and the summaries among them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from math import ceil
from typing import Any

from compaction_app.queries import load_summary_entries
from mnesis_core.compaction.selection import Situation
from mnesis_core.compaction.transcript import piece_limit
from mnesis_core.config import Config
from mnesis_core.context.assembly import assemble
from mnesis_core.context.budget import Budget, Pressure, Size, make_budget, pressure, pressure_between
from mnesis_core.context.entries import Assembled, ContextEntry, ContextRows, MessageEntry, in_order
from mnesis_core.context.fitting import whole
from mnesis_core.context.manifest import Row, read_manifest
from mnesis_core.context.prompt_diff import Difference, difference
from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.calibration import Calibration, calibration_after
from mnesis_core.llm.interface import ModelSpec, ToolSpec
from mnesis_core.llm.limits import spec_as_said, spec_in_place, spec_in_session
from mnesis_core.providers.rendering import digest, render
from mnesis_core.records import CallRecord, SessionRecord
from sessions_app.conf import get_spec_to_read, session_config
from sessions_app.record import call_queries, context_queries, session_queries

USUAL_TOKENS = 50
"""Of a message: so many of the newest are read at first as would fill the window then."""
FEWEST_READ = 200
"""Messages."""
READ_MORE = 4
"""Times as many, if those did not fill it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltContext:
    """What the model will see, and all that is known about it."""

    assembled: Assembled
    payload: dict[str, Any]
    digest: str
    budget: Budget
    pressure: Pressure
    estimated_tokens: int
    """Of the payload, uncalibrated, to be compared with what the provider reports."""
    whole_tokens: int
    """Of everything in the context, tools included, left out or not; uncalibrated."""
    calibration: Calibration
    """What corrects the estimate."""
    context_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """How full the context is, and of what. All in tokens."""

    used_tokens: int
    usable_tokens: int
    soft_tokens: int
    hard_tokens: int
    window: int
    window_source: str
    """``configured``, ``litellm`` or ``default``: assumed, since nobody says."""
    breakdown: dict[str, int]
    source: str
    """What corrects the estimate: a value of ``calibration.CountSource``."""
    ratio: float
    """The estimate is our own count times this."""
    samples: int
    """Reports of the provider that the ratio comes from."""
    error: float | None
    """By how much the corrected estimates missed those reports, as a share; None: there were none."""

    @property
    def pressure(self) -> Pressure:
        """How full that is."""
        return pressure_between(self.used_tokens, soft=self.soft_tokens, hard=self.hard_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """What a context is put together and measured with: a turn loads it once."""

    session: SessionRecord
    spec: ModelSpec
    config: Config
    budget: Budget
    calibration: Calibration
    tool_tokens: int
    """What the tools took in the newest call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextState(Frame):
    """The rows behind a context, loaded once."""

    entries: list[ContextEntry]
    context_seq: int
    """The event as of which they were read."""
    unread_tokens: int = 0
    """Of older messages that are not among the entries, since nothing of them can fit; uncalibrated."""

    def assemble(self, tools: Sequence[ToolSpec] = ()) -> Assembled:
        """The prompt that these rows make."""
        return assemble(
            self.entries,
            system_prompt=self.session.system_prompt,
            tools=tools,
            budget=self.budget,
            calibration=self.calibration.ratio,
        )

    def build(self, tools: Sequence[ToolSpec] = ()) -> BuiltContext:
        """The payload that these rows make."""
        assembled = self.assemble(tools)
        payload = render(assembled)
        return BuiltContext(
            assembled=assembled,
            payload=payload,
            digest=digest(payload),
            budget=self.budget,
            pressure=pressure(assembled.wanted_tokens, self.budget),
            estimated_tokens=int(assembled.used_tokens / self.calibration.ratio),
            whole_tokens=int(assembled.wanted_tokens / self.calibration.ratio),
            calibration=self.calibration,
            context_seq=self.context_seq,
        )

    def summariser(self) -> ModelSpec:
        """The model that summarises."""
        alias = self.config.compaction.model
        return get_spec_to_read(alias) if alias and alias != self.session.model else self.spec

    def priced(self, asked: ModelSpec) -> ModelSpec:
        """A model as it is paid here: the session's own prices are those of its own model."""
        return spec_in_session(asked, self.config) if asked.alias == self.session.model else asked

    def situation(self, *, used: int, running_turn_id: str | None = None, everything: bool = False) -> Situation:
        """What a round of compaction decides on, ``used`` being the tokens of the whole context."""
        return Situation(
            entries=self.entries,
            config=self.config,
            budget=self.budget,
            used=used,
            reads=piece_limit(self.summariser(), self.config),
            calibration=self.calibration.ratio,
            running_turn_id=running_turn_id,
            everything=everything,
        )


def load_frame(session_id: str, *, model: str | None = None) -> Frame:
    """The session, its model and how that counts; or those of another ``model``, which is asked in its place.

    :raises SessionNotFoundError: there is no such session.
    """
    session = session_queries.load_session(session_id)
    config = session_config(session.config)
    is_own = model is None or model == session.model
    spec = spec_in_session(get_spec_to_read(session.model), config)
    if model is not None and not is_own:
        spec = spec_in_place(get_spec_to_read(model), config)
    newest = call_queries.newest_call(session_id)
    calibration = calibration_after(
        newest, model=spec.alias, shared_ratio=spec.shared_ratio, window=spec.context_window
    )
    return Frame(
        session=session,
        spec=spec_as_said(spec, calibration.window),
        config=config,
        budget=make_budget(spec, config, window_said=calibration.window),
        calibration=calibration,
        # The tools belong to the turn; the newest call tells what they took.
        tool_tokens=newest.tool_tokens if newest else 0,
    )


def load_state(session_id: str, *, at: int | None = None) -> ContextState:
    """Read what is in a session's context now, or was as of event ``at``.

    :raises SessionNotFoundError: there is no such session.
    """
    return read_state(load_frame(session_id), at=at)


def read_state(frame: Frame, *, at: int | None = None) -> ContextState:
    """The context of a session that is known, now or as of event ``at``: two queries, whatever the history."""
    return _state_of(frame, context_queries.load_context(frame.session.id, at=at), at=at)


def read_newest_state(frame: Frame) -> ContextState:
    """The context to be measured, not to be sent: all of one that fits, else its end, its summaries, and what the rest takes.

    So the texts that are read are bounded by the window, however much was said since the last compaction.
    """
    items = max(FEWEST_READ, frame.budget.usable // USUAL_TOKENS)
    state = _state_of(frame, context_queries.load_newest_context(frame.session.id, items=items))
    while state.unread_tokens and not _is_prompt_full(state):
        items *= READ_MORE
        state = _state_of(frame, context_queries.load_newest_context(frame.session.id, items=items))
    return state


def _is_prompt_full(state: ContextState) -> bool:
    """Whether nothing that is older than these entries can come into the prompt, but for summaries."""
    messages = [entry for entry in state.entries if isinstance(entry, MessageEntry)]
    tokens = sum(whole(entry).tokens for entry in messages)
    holds_question = any(entry.message.role == "user" for entry in messages)
    return holds_question and tokens * state.calibration.ratio > state.budget.usable


def _state_of(frame: Frame, rows: ContextRows, *, at: int | None = None) -> ContextState:
    entries: list[ContextEntry] = [*rows.messages, *load_summary_entries(rows.summaries, session_id=frame.session.id)]
    seq = frame.session.event_seq if rows.event_seq is None else rows.event_seq
    return ContextState(
        session=frame.session,
        spec=frame.spec,
        config=frame.config,
        budget=frame.budget,
        calibration=frame.calibration,
        tool_tokens=frame.tool_tokens,
        entries=in_order(entries) if rows.summaries else entries,
        context_seq=seq if at is None else at,
        unread_tokens=rows.unread_tokens,
    )


def build_context(session_id: str, *, tools: Sequence[ToolSpec] = (), at: int | None = None) -> BuiltContext:
    """The active context of a session as the payload of its next call.

    :raises SessionNotFoundError: there is no such session.
    """
    return load_state(session_id, at=at).build(tools)


def size_of(state: ContextState) -> Size:
    """The estimated size of a context that is loaded, with the tools that its newest call had."""
    return Size(tokens=meter_of(state).used_tokens, source=state.calibration.source)


def load_meter(session_id: str) -> Meter:
    """How full a session's context is.

    :raises SessionNotFoundError: there is no such session.
    """
    return meter_of(read_newest_state(load_frame(session_id)))


def meter_of(state: ContextState) -> Meter:
    """The numbers of a context that is loaded."""
    assembled = state.assemble()
    breakdown = asdict(assembled.breakdown) | {"tools": state.tool_tokens}
    breakdown["free"] = max(0, breakdown["free"] - state.tool_tokens)
    return Meter(
        used_tokens=assembled.wanted_tokens + ceil(state.unread_tokens * state.calibration.ratio) + state.tool_tokens,
        usable_tokens=state.budget.usable,
        soft_tokens=state.budget.soft,
        hard_tokens=state.budget.hard,
        window=state.budget.window,
        window_source=state.spec.context_window_source.value,
        breakdown=breakdown,
        **state.calibration.as_dict(),
    )


# Story: two calls of one session compared: what the later one shows in another way, and why.

MOST_CHANGES = 1_000
"""That are told one by one; all are counted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedCalls:
    """The difference of two calls."""

    earlier: CallRecord | None
    """``None`` when the later one was the first."""
    later: CallRecord
    changes: list[Difference]
    """The first of them."""
    counts: dict[str, int]
    """Of all, by what happened."""

    @property
    def total(self) -> int:
        """How many there are."""
        return sum(self.counts.values())


def compare_calls(call_id: str, *, owner_id: int, earlier_id: str | None = None) -> ComparedCalls:
    """What a call showed in another way than an earlier one, by default the one before it.

    :raises CallNotFoundError: one of them is not there, or belongs to somebody else.
    :raises InvalidRequest: they are not of one session, not in this order, or no calls of turns.
    """
    later = call_queries.load_call(call_id, owner_id=owner_id)
    earlier = _earlier(later, owner_id, earlier_id)
    before, after = _manifest(earlier) if earlier else [], _manifest(later)
    gone = {row["id"] for row in before if "id" in row} - {row["id"] for row in after if "id" in row}
    changes = list(
        difference(
            before,
            after,
            is_first=earlier is None,
            replaced=context_queries.replaced_items(later.session_id, sorted(gone)),
        )
    )
    return ComparedCalls(
        earlier=earlier,
        later=later,
        changes=changes[:MOST_CHANGES],
        counts=dict(Counter(change.change for change in changes)),
    )


def _earlier(later: CallRecord, owner_id: int, earlier_id: str | None) -> CallRecord | None:
    if later.purpose != "turn":
        raise InvalidRequest("only calls of turns can be compared", field="call_id")
    if earlier_id is None:
        return call_queries.load_call_before(later)
    earlier = call_queries.load_call(earlier_id, owner_id=owner_id)
    if (earlier.session_id, earlier.purpose) != (later.session_id, later.purpose):
        raise InvalidRequest("from must be a call of a turn of the same session", field="from")
    if (earlier.created_at, earlier.id) >= (later.created_at, later.id):
        raise InvalidRequest("from must be an earlier call", field="from")
    return earlier


def _manifest(call: CallRecord) -> list[Row]:
    try:
        return read_manifest(call.manifest)
    except ValueError as error:
        raise InvalidRequest(f"call {call.id}: {error}", field="call_id") from error
