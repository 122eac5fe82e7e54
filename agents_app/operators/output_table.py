"""A run's results as a table for spreadsheets: a row for each item, in the order of the input."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterator
from typing import Any

from agents_app.operators.items import lines_of_items
from agents_app.queries import accepted_outputs, load_run
from files_app.contents import content_size
from files_app.queries import load_file_reference
from mnesis_core.operators.input_lines import one_line
from mnesis_core.operators.prompts import schema_of
from mnesis_core.operators.replies import result_of
from mnesis_core.operators.schema import OutputSchema
from mnesis_core.operators.values import ItemResult, RunRecord
from mnesis_core.text import printable

ROWS_A_READ = 1_000
HEADER = ("item", "state", "input", "output", "error_kind", "error")
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")
"""What a spreadsheet would work out, begins so."""


def readable_run(run_id: str, *, owner_id: int) -> RunRecord:
    """A run whose results can be read to their end.

    :raises OperatorRunNotFoundError: there is no such run, or it is somebody else's.
    :raises FileContentNotFound: the input's content is not kept here any more.
    """
    run = load_run(run_id, owner_id=owner_id)
    content_size(load_file_reference(run.input_file_id, session_id=run.session_id).content_id)
    return run


def table_rows(run: RunRecord) -> Iterator[bytes]:
    """CSV in pieces: inputs and results as JSON, results that are text as text.

    :raises FileContentNotFound: the input's content is not kept here any more.
    """
    content_id = load_file_reference(run.input_file_id, session_id=run.session_id).content_id
    schema, after = schema_of(run.spec), 0
    yield _written([HEADER])
    while results := accepted_outputs(run.id, after=after, limit=ROWS_A_READ):
        after = results[-1].number
        yield _written(
            [
                result.number,
                result.state.value,
                _cell(line.decode(errors="replace")),
                _cell(_output(result, schema)),
                result.error_kind.value if result.error_kind else "",
                _cell(printable(result.error)),
            ]
            for result, line in lines_of_items(content_id, results)
        )


def _output(result: ItemResult, schema: OutputSchema | None) -> str:
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


def _written(rows: Any) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()
