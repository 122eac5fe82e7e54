"""Story: somebody follows a run and gets each result when its item has ended, until the run is over."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import aclosing
from typing import Any

from agents_app.operators.items import lines_of_items
from agents_app.operators.output import output_line
from agents_app.queries import load_results, load_run, seq_before
from files_app.queries import load_file_reference
from mnesis_core.events import EventType
from mnesis_core.operators.prompts import schema_of
from mnesis_core.operators.values import RunRecord, RunState
from sessions_app.database import db, work
from sessions_app.follow import Check, Frame, follow

_OVER = (RunState.COMPLETED, RunState.CANCELLED, RunState.FAILED)


async def results_as_they_end(run_id: str, *, after: int, check: Check) -> AsyncIterator[bytes]:
    """Lines of results in the order in which items end, each with the ``seq`` of the event that told of it.

    Those of one event come together: who goes on after the event before the last one that it knows misses nothing. A
    run that is paused is waited for. An item that is tried again later comes again.

    :param after: the event from which on results are wanted; 0: all
    :param check: asked now and then; what it raises ends the stream
    :raises FileContentNotFound: the input's content is not kept here any more.
    """
    run = await db(load_run, run_id)
    state, is_live = run.state, False
    begun = await db(seq_before, run_id)
    async with aclosing(follow(run.session_id, after=max(after, begun), check=check)) as frames:  # type: ignore[type-var]
        async for frame in frames:
            if ended := _ended(frame, run_id):
                yield await work(_lines, run, frame["seq"], ended)
            state = _state(frame, run_id) or state
            is_live = is_live or frame["type"] == "caught_up"
            if is_live and state in _OVER:  # before, it may be one that was tried again
                return


def _ended(frame: Frame, run_id: str) -> list[int]:
    """Items that have a result, or none for good."""
    told: dict[str, Any] = frame.get("data", {})
    if frame["type"] != EventType.MAP_ITEM_COMPLETED or told["run_id"] != run_id:
        return []
    return [*told["completed"], *told["failed"]]


def _state(frame: Frame, run_id: str) -> RunState | None:
    """The state that a run has from this event on."""
    if frame.get("data", {}).get("run_id") != run_id:
        return None
    if frame["type"] == EventType.MAP_COMPLETED:
        return RunState.COMPLETED
    return RunState(frame["data"]["state"]) if frame["type"] == EventType.MAP_STATE_CHANGED else None


def _lines(run: RunRecord, seq: int, numbers: Sequence[int]) -> bytes:
    content_id = load_file_reference(run.input_file_id, session_id=run.session_id).content_id
    results = [result for result in load_results(run.id, numbers) if result.state.is_end]
    schema, head = schema_of(run.spec), b'{"seq":%d,' % seq
    return b"".join(
        head + output_line(result, line, schema).removeprefix(b"{")
        for result, line in lines_of_items(content_id, results)
    )
