"""The results of a run: its output file (JSON Lines in the order of the input), a CSV table, and a stream as items end.

The output file is written when the last item has ended, and when a budget or a person has stopped the run.
"""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import aclosing
from typing import Any

from agents_app import store
from agents_app.maps.executor import lines_of_items
from agents_app.queries import accepted_outputs, is_output_due, load_results, load_run, seq_before
from files_app.contents import content_size, on_disk, put_stream, read_content
from files_app.intake import add_file
from files_app.queries import load_file_reference
from mnesis_core.errors import OperatorRunNotInState
from mnesis_core.events import EventType
from mnesis_core.files.detection import detect
from mnesis_core.files.footers import SAMPLE_BYTES, estimate_tokens
from mnesis_core.files.source import Source
from mnesis_core.maps.prompts import result_of, schema_of
from mnesis_core.maps.schema import OutputSchema
from mnesis_core.maps.values import ItemResult, RunRecord, RunState, one_line
from mnesis_core.text import printable, text_of_bytes
from sessions_app.conf import site_config
from sessions_app.database.threads import db, work
from sessions_app.live import Check, Frame, follow
from sessions_app.record.change import Change, change

ITEMS_A_READ = 1_000


def finish_run(run_id: str) -> bool:
    """Write the output and end the run if every item has ended; return whether the run is over."""
    run = load_run(run_id)
    if run.state is not RunState.RUNNING:
        return True
    if run.counts.items is None or run.counts.left:
        return False
    output = Output(run)
    try:
        with change(run.session_id) as record:
            store.finish_run(record, run_id, output_file_id=output.keep(record))
    except OperatorRunNotInState:
        return False  # another worker was first, or the failed items are to be attempted again
    return True


def write_output(run_id: str) -> None:
    """Write the results so far of a stopped run, unless that is done or items are in flight."""
    if not is_output_due(run_id):
        return
    run = load_run(run_id)
    output = Output(run)
    with change(run.session_id) as record:
        if is_output_due(run_id):
            store.keep_output(record, run_id, output_file_id=output.keep(record))


class Output:
    """The output of a run, whose bytes are on the disk."""

    def __init__(self, run: RunRecord) -> None:
        """Write the bytes. Call it before the session's lock is taken, because it takes as long as there are items."""
        self.path = f"maps/{run.id}.jsonl"
        self.content_id, self.size = put_stream(output_lines(run), largest=site_config().files.largest_bytes)
        with on_disk(self.content_id) as place:
            self.file_type = detect(Source(path=place, name=self.path, size=self.size)).name
        sample = read_content(self.content_id, 0, SAMPLE_BYTES)
        self.tokens = estimate_tokens(text_of_bytes(sample), sampled=len(sample), size=self.size)

    def keep(self, record: Change) -> str:
        """Make it a file of the session; return the file's id."""
        return add_file(
            record,
            content_id=self.content_id,
            path=self.path,
            file_type=self.file_type,
            token_count=self.tokens,
            size=self.size,
        )


def output_lines(run: RunRecord) -> Iterator[bytes]:
    """Yield a line for each item, in the order of the input.

    :raises FileContentNotFound: the input's content is not kept here any more.
    """
    content_id = load_file_reference(run.input_file_id, session_id=run.session_id).content_id
    schema, after = schema_of(run.spec), 0
    while results := accepted_outputs(run.id, after=after, limit=ITEMS_A_READ):
        after = results[-1].number
        yield b"".join(output_line(result, line, schema) for result, line in lines_of_items(content_id, results))


def output_line(result: ItemResult, line: bytes, schema: OutputSchema | None) -> bytes:
    # The input's own bytes: no number and no key changes on the way.
    return b'{"item":%d,"input":%s,%s}\n' % (result.number, line, _result_json(result, schema).encode())


def _result_json(result: ItemResult, schema: OutputSchema | None) -> str:
    if result.output is not None:
        return f'"output":{one_line(result_of(result.output, schema))}'
    kind = result.error_kind or ("cancelled" if result.state.is_end else "unfinished")
    message = result.error or "This item was not tried to an end."
    return f'"error":{one_line({"kind": kind, "message": message})}'


ROWS_A_READ = 1_000
HEADER = ("item", "state", "input", "output", "error_kind", "error")
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # a cell that begins so is one to a spreadsheet


def readable_run(run_id: str, *, owner_id: int) -> RunRecord:
    """Return a run whose results can be read to their end.

    :raises OperatorRunNotFoundError: there is no such run, or it belongs to another person.
    :raises FileContentNotFound: the input's content is not kept here any more.
    """
    run = load_run(run_id, owner_id=owner_id)
    content_size(load_file_reference(run.input_file_id, session_id=run.session_id).content_id)
    return run


def table_rows(run: RunRecord) -> Iterator[bytes]:
    """Yield CSV: inputs and results as JSON, results that are text as text.

    :raises FileContentNotFound: the input's content is not kept here any more.
    """
    content_id = load_file_reference(run.input_file_id, session_id=run.session_id).content_id
    schema, after = schema_of(run.spec), 0
    yield _csv([HEADER])
    while results := accepted_outputs(run.id, after=after, limit=ROWS_A_READ):
        after = results[-1].number
        yield _csv(
            [
                result.number,
                result.state.value,
                _cell(line.decode(errors="replace")),
                _cell(_output_text(result, schema)),
                result.error_kind.value if result.error_kind else "",
                _cell(printable(result.error)),
            ]
            for result, line in lines_of_items(content_id, results)
        )


def _output_text(result: ItemResult, schema: OutputSchema | None) -> str:
    if result.output is None:
        return ""
    return printable(result.output) if schema is None else one_line(result_of(result.output, schema))


def _cell(text: str) -> str:
    return f"'{text}" if text.startswith(_FORMULAS) and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _csv(rows: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


_OVER = (RunState.COMPLETED, RunState.CANCELLED, RunState.FAILED)


async def results_as_they_end(run_id: str, *, after: int, check: Check) -> AsyncIterator[bytes]:
    """Yield lines of results in the order in which items end, each with the ``seq`` of its event, until the run is over.

    The lines of one event come together: a reader that resumes after the event before its last one misses nothing. The
    stream waits while the run is paused. An item that is attempted again later comes again.

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
    told: dict[str, Any] = frame.get("data", {})
    if frame["type"] != EventType.MAP_ITEM_COMPLETED or told["run_id"] != run_id:
        return []
    return [*told["completed"], *told["failed"]]


def _state(frame: Frame, run_id: str) -> RunState | None:
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
