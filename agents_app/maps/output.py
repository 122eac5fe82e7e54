"""The results of a run: its output file (JSON Lines in the order of the input), a CSV table, and a stream as items end.

The output file is written when the last item has ended, and when a budget or a person has stopped the run. Whatever reads
the input raises ``FileContentNotFound`` where its content is not kept here any more.
"""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Callable, Iterator
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
from mnesis_core.files.references import SAMPLE_BYTES, estimate_tokens
from mnesis_core.files.source import Source
from mnesis_core.maps.prompts import result_of, schema_of
from mnesis_core.maps.schema import OutputSchema
from mnesis_core.maps.values import ItemResult, RunRecord, RunState, one_line
from mnesis_core.text import printable, text_of_bytes
from sessions_app.conf import site_config
from sessions_app.database.threads import db, work
from sessions_app.live import Check, follow
from sessions_app.record.change import Change, change

ITEMS_A_READ = 1_000
HEADER = ("item", "state", "input", "output", "error_kind", "error")
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")  # a cell that begins so is one to a spreadsheet
_OVER = (RunState.COMPLETED, RunState.CANCELLED, RunState.FAILED)


def finish_run(run_id: str) -> bool:
    """Write the output and end the run if every item has ended; return whether the run is over."""
    run = load_run(run_id)
    if run.state is not RunState.RUNNING:
        return True
    if run.counts.items is None or run.counts.left:
        return False
    keep = _put_output(run)
    try:
        with change(run.session_id) as record:
            store.finish_run(record, run_id, output_file_id=keep(record))
    except OperatorRunNotInState:
        return False  # another worker was first, or the failed items are to be attempted again
    return True


def write_output(run_id: str) -> None:
    """Write the results so far of a stopped run, unless that is done or items are in flight."""
    if not is_output_due(run_id):
        return
    run = load_run(run_id)
    keep = _put_output(run)
    with change(run.session_id) as record:
        if is_output_due(run_id):
            store.keep_output(record, run_id, output_file_id=keep(record))


def _put_output(run: RunRecord) -> Callable[[Change], str]:
    """Write a run's output to the disk, and return what makes it a file of the session and returns the file's id.

    Call it before the session's lock is taken, because it takes as long as there are items.
    """
    path = f"maps/{run.id}.jsonl"
    content_id, size = put_stream(output_lines(run), largest=site_config().files.largest_bytes)
    with on_disk(content_id) as place:
        file_type = detect(Source(path=place, name=path, size=size)).name
    sample = read_content(content_id, 0, SAMPLE_BYTES)
    tokens = estimate_tokens(text_of_bytes(sample), sampled=len(sample), size=size)
    return lambda record: add_file(
        record, content_id=content_id, path=path, file_type=file_type, token_count=tokens, size=size
    )


def readable_run(run_id: str, *, owner_id: int) -> RunRecord:
    """:raises OperatorRunNotFoundError: there is no such run, or it belongs to another person.
    :raises FileContentNotFound: the input's content is not kept here any more.
    """
    run = load_run(run_id, owner_id=owner_id)
    content_size(_input_of(run))
    return run


def output_lines(run: RunRecord) -> Iterator[bytes]:
    """Yield a line for each item, in the order of the input."""
    schema = schema_of(run.spec)
    for results in _read_results(run):
        yield b"".join(_output_line(result, line, schema) for result, line in results)


def table_rows(run: RunRecord) -> Iterator[bytes]:
    """Yield CSV: inputs and results as JSON, results that are text as text."""
    schema = schema_of(run.spec)
    yield _csv([HEADER])
    for results in _read_results(run):
        rows = []
        for result, line in results:
            output = result.output or ""
            if result.output is not None:
                output = printable(output) if schema is None else one_line(result_of(output, schema))
            texts = [_cell(line.decode(errors="replace")), _cell(output)]
            kind = result.error_kind.value if result.error_kind else ""
            rows.append([result.number, result.state.value, *texts, kind, _cell(printable(result.error))])
        yield _csv(rows)


async def results_as_they_end(run_id: str, *, after: int, check: Check) -> AsyncIterator[bytes]:
    """Yield lines of results in the order in which items end, each with the ``seq`` of its event, until the run is over.

    The lines of one event come together: a reader that resumes after the event before its last one misses nothing. The
    stream waits while the run is paused. An item that is attempted again later comes again.

    :param after: the event from which on results are wanted; 0: all
    :param check: asked now and then; what it raises ends the stream
    """
    run = await db(load_run, run_id)
    begun, state, is_live = await db(seq_before, run_id), run.state, False

    def ended_lines(seq: int, numbers: list[int]) -> bytes:
        results = [result for result in load_results(run.id, numbers) if result.state.is_end]
        schema, head = schema_of(run.spec), b'{"seq":%d,' % seq
        lines = lines_of_items(_input_of(run), results)
        return b"".join(head + _output_line(result, line, schema).removeprefix(b"{") for result, line in lines)

    async with aclosing(follow(run.session_id, after=max(after, begun), check=check)) as frames:  # type: ignore[type-var]
        async for frame in frames:
            type, data = frame["type"], frame.get("data", {})
            if data.get("run_id") == run_id:
                if type == EventType.MAP_ITEM_COMPLETED and (ended := [*data["completed"], *data["failed"]]):
                    yield await work(ended_lines, frame["seq"], ended)
                elif type == EventType.MAP_COMPLETED:
                    state = RunState.COMPLETED
                elif type == EventType.MAP_STATE_CHANGED:
                    state = RunState(data["state"])
            is_live = is_live or type == "caught_up"
            if is_live and state in _OVER:  # before, it may be one that was tried again
                return


def _input_of(run: RunRecord) -> str:
    return load_file_reference(run.input_file_id, session_id=run.session_id).content_id


def _read_results(run: RunRecord) -> Iterator[Iterator[tuple[ItemResult, bytes]]]:
    """Yield batches of a run's results with their lines of the input; each is to be read before the next."""
    content_id, after = _input_of(run), 0
    while results := accepted_outputs(run.id, after=after, limit=ITEMS_A_READ):
        after = results[-1].number
        yield lines_of_items(content_id, results)


def _output_line(result: ItemResult, line: bytes, schema: OutputSchema | None) -> bytes:
    if result.output is not None:
        value = f'"output":{one_line(result_of(result.output, schema))}'
    else:
        kind = result.error_kind or ("cancelled" if result.state.is_end else "unfinished")
        message = result.error or "This item was not tried to an end."
        value = f'"error":{one_line({"kind": kind, "message": message})}'
    # The input's own bytes: no number and no key changes on the way.
    return b'{"item":%d,"input":%s,%s}\n' % (result.number, line, value.encode())


def _cell(text: str) -> str:
    if not text.startswith(_FORMULAS):
        return text
    try:
        float(text)
    except ValueError:
        return f"'{text}"
    return text


def _csv(rows: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()
