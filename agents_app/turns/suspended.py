"""The transactions of a suspended turn: answered by its caller, decided by a person, resumed.

No process holds the turn: it is its state and its calls in the record. The transaction that writes the last answer that
it waits for also claims it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from agents_app.turns.claim import StartedTurn
from agents_app.turns.transactions import LongResult, keep_long_result, tool_parts, write_result
from mnesis_core.errors import (
    ApprovalNotPending,
    InvalidRequest,
    RequestTooLarge,
    ToolCallAnswered,
    ToolCallNotCallers,
    ToolCallNotFoundError,
)
from mnesis_core.messages import StoredPart, ToolPart, ToolState
from mnesis_core.records import TurnRecord, TurnState, WaitsFor
from mnesis_core.turns.options import read_options
from sessions_app.conf import session_config
from sessions_app.record import message_store, turn_store
from sessions_app.record.change import Change, change
from sessions_app.record.message_queries import find_tool_part, load_messages_by_ids
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import load_turn, open_turn

MOST_RESULTS = 1_000
NOTE_CHARACTERS = 2_000
LATE_ERROR = "Error: "


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolResult:
    """What a tool of the caller's answered: ``output``, or ``error`` if it failed."""

    tool_call_id: str  # as the turn's ``waits_for`` has it; the id of the part is understood too
    output: str | None = None
    error: str | None = None


Calls = list[tuple[StoredPart, ToolPart]]


def answer_tools(
    session_id: str, turn_id: str, *, owner_id: int, results: Sequence[ToolResult], lease_owner: str
) -> StartedTurn:
    """Write results of the caller's tools, and claim the turn if it waits for nothing more.

    :raises MnesisError: see ``lifecycle.answer_tools``
    """
    session = load_session(session_id, owner_id=owner_id)
    config = session_config(session.config)
    _check_results(results, characters=config.limits.message_characters)
    long = [keep_long_result(result.output or result.error or "", config.turn.tool_output_inline) for result in results]
    with change(session_id) as record:
        seq = record.next_seq
        turn = load_turn(turn_id, session_id=session_id)
        messages = load_messages_by_ids(turn.message_ids, session_id=turn.session_id)
        # The newest first: models begin to count their calls anew with each step.
        calls = [call for message in reversed(messages) for call in tool_parts(message)]
        callers = read_options(turn.options).tool_names
        answered = {_write_answer(record, turn, calls, callers, *given) for given in zip(results, long, strict=True)}
        rest = [waiting for waiting in turn.waits_for if waiting.part_id not in answered]
        is_resumed = _resume(record, turn, rest, lease_owner, config.turn.lease_seconds)
    return StartedTurn(turn=load_turn(turn_id, session_id=session_id), seq=seq, is_new=is_resumed)


def decide_approval(
    session_id: str, part_id: str, *, owner_id: int, approved: bool, note: str, lease_owner: str
) -> StartedTurn:
    """Write a person's yes or no, and claim the turn if it waits for nothing more.

    :raises MnesisError: see ``lifecycle.decide_approval``
    """
    session = load_session(session_id, owner_id=owner_id)
    if len(note) > NOTE_CHARACTERS:
        raise RequestTooLarge(f"note may have {NOTE_CHARACTERS:,} characters, not more", field="note")
    with change(session_id) as record:
        seq = record.next_seq
        turn = _find_asking_turn(session_id, part_id)
        comment = f" They said: {note}" if note.strip() else ""
        refusal = f"A person refused this call, so it was not run.{comment}"
        message_store.decide_approval(record, part_id, turn_id=turn.id, approved=approved, note=note, refusal=refusal)
        rest = [waiting for waiting in turn.waits_for if waiting.part_id != part_id]
        is_resumed = _resume(record, turn, rest, lease_owner, session_config(session.config).turn.lease_seconds)
    return StartedTurn(turn=load_turn(turn.id, session_id=session_id), seq=seq, is_new=is_resumed)


def _resume(record: Change, turn: TurnRecord, rest: Sequence[object], lease_owner: str, lease_seconds: float) -> bool:
    if turn.state != TurnState.SUSPENDED or rest:
        return False
    turn_store.resume_turn(record, turn.id, fence=turn.fence, lease_owner=lease_owner, lease_seconds=lease_seconds)
    return True


def _write_answer(
    record: Change, turn: TurnRecord, calls: Calls, callers: frozenset[str], result: ToolResult, long: LongResult | None
) -> str:
    call_id = result.tool_call_id
    found = [(stored, part) for stored, part in calls if call_id in (part.tool_call_id, stored.id)]
    if not found:
        raise ToolCallNotFoundError(turn_id=turn.id, tool_call_id=call_id)
    # A call that waits for its result, else the newest.
    stored, part = next((call for call in found if call[1].state is ToolState.PENDING), found[0])
    if part.tool_name not in callers:
        raise ToolCallNotCallers(tool_call_id=result.tool_call_id, tool_name=part.tool_name)
    if part.state is ToolState.PENDING:
        write_result(record, stored.id, output=result.output, error=result.error, long=long)
        return stored.id
    late = result.output if result.error is None else f"{LATE_ERROR}{result.error}"
    # The end of a turn and the errors of its open calls are written in one transaction, at one time.
    is_closed = turn.ended_at is not None and part.state is ToolState.ERROR and part.completed_at == turn.ended_at
    if not is_closed or not message_store.keep_late_output(record, stored.id, late or ""):
        raise ToolCallAnswered(tool_call_id=result.tool_call_id)
    return stored.id


def _find_asking_turn(session_id: str, part_id: str) -> TurnRecord:
    """Return the suspended turn that waits for this approval.

    :raises PartNotFoundError: the session has no such tool call.
    :raises ApprovalNotPending: it waits for none.
    """
    found = open_turn(session_id)
    turn = load_turn(found[0], session_id=session_id) if found else None
    asking = [waiting.part_id for waiting in turn.waits_for if waiting.reason is WaitsFor.APPROVAL] if turn else []
    if turn is None or part_id not in asking:
        state = find_tool_part(part_id, session_id=session_id)
        raise ApprovalNotPending(part_id=part_id, state=state)
    return turn


def _check_results(results: Sequence[ToolResult], *, characters: int) -> None:
    if not 1 <= len(results) <= MOST_RESULTS:
        raise InvalidRequest(f"send 1 to {MOST_RESULTS:,} results", field="results")
    ids = [result.tool_call_id for result in results]
    for place, result in enumerate(results):
        if (result.output is None) == (result.error is None):
            raise InvalidRequest(f"results.{place} needs either its output or its error", field=f"results.{place}")
        if len(result.output or result.error or "") > characters:
            raise RequestTooLarge(f"results.{place} may have {characters:,} characters", field=f"results.{place}")
        if ids.index(result.tool_call_id) < place:
            field = f"results.{place}.tool_call_id"
            raise InvalidRequest(f"{field} has a result already in this request", field=field)
