"""Story: the output file of a run: JSON Lines in the order of the input, kept as a file of the session.

It is written when the last item has ended, and when a budget or somebody stopped the run: what is done is kept.
"""

from __future__ import annotations

from collections.abc import Iterator

from agents_app import store
from agents_app.operators.items import lines_of_items
from agents_app.queries import accepted_outputs, is_output_due, load_run
from files_app.contents import on_disk, put_stream, read_content
from files_app.ingest import add_file
from files_app.queries import load_file_reference
from mnesis_core.attachments import SAMPLE_BYTES, estimate_tokens
from mnesis_core.errors import OperatorRunNotInState
from mnesis_core.exploration.detection import detect
from mnesis_core.exploration.source import Source
from mnesis_core.operators.input_lines import one_line
from mnesis_core.operators.prompts import schema_of
from mnesis_core.operators.replies import result_of
from mnesis_core.operators.schema import OutputSchema
from mnesis_core.operators.values import ItemResult, RunRecord, RunState
from mnesis_core.text import text_of_bytes
from sessions_app.conf import site_config
from sessions_app.ledger import Change, change

ITEMS_A_READ = 1_000


def finish_run(run_id: str) -> bool:
    """Write the output and end the run, if every item has ended; whether it is over."""
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
        return False  # another worker was first, or somebody wants the failed items tried again
    return True


def write_output(run_id: str) -> None:
    """Write the output of a run that was stopped, as far as it came, if nobody has and nothing is in flight."""
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
        """Write the bytes. Call it before the session's lock is taken: it takes as long as there are items."""
        self.path = f"maps/{run.id}.jsonl"
        self.content_id, self.size = put_stream(output_lines(run), largest=site_config().files.largest_bytes)
        with on_disk(self.content_id) as place:
            self.file_type = detect(Source(path=place, name=self.path, size=self.size)).name
        sample = read_content(self.content_id, 0, SAMPLE_BYTES)
        self.tokens = estimate_tokens(text_of_bytes(sample), sampled=len(sample), size=self.size)

    def keep(self, record: Change) -> str:
        """Make it a file of the session; returns the file's id."""
        return add_file(
            record,
            content_id=self.content_id,
            path=self.path,
            file_type=self.file_type,
            token_count=self.tokens,
            size=self.size,
        )


def output_lines(run: RunRecord) -> Iterator[bytes]:
    """A line for each item, in the order of the input.

    :raises FileContentNotFound: the input's content is not kept here any more.
    """
    content_id = load_file_reference(run.input_file_id, session_id=run.session_id).content_id
    schema, after = schema_of(run.spec), 0
    while results := accepted_outputs(run.id, after=after, limit=ITEMS_A_READ):
        after = results[-1].number
        yield b"".join(output_line(result, line, schema) for result, line in lines_of_items(content_id, results))


def output_line(result: ItemResult, line: bytes, schema: OutputSchema | None) -> bytes:
    """The line of one item, whose input is ``line``."""
    # The input's own bytes: no number and no key changes on the way.
    return b'{"item":%d,"input":%s,%s}\n' % (result.number, line, _said(result, schema).encode())


def _said(result: ItemResult, schema: OutputSchema | None) -> str:
    if result.output is not None:
        return f'"output":{one_line(result_of(result.output, schema))}'
    kind = result.error_kind or ("cancelled" if result.state.is_end else "unfinished")
    message = result.error or "This item was not tried to an end."
    return f'"error":{one_line({"kind": kind, "message": message})}'
