"""Story: the lines of a run's input become its items, a batch a change; whoever goes on begins where the last one ended."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from itertools import islice

from agents_app import store
from agents_app.queries import last_item, load_items, load_run
from files_app.contents import content_size, reading
from files_app.queries import load_file_reference
from mnesis_core.errors import FileContentNotFound, FileReferenceNotFoundError, InvalidInput, OperatorRunNotInState
from mnesis_core.operators.input_lines import input_lines
from mnesis_core.operators.values import NewItem, RunRecord
from sessions_app.conf import site_config
from sessions_app.ledger import change

ITEMS_A_CHANGE = 2_000


def read_input(run_id: str, *, may_go_on: Callable[[], bool]) -> None:
    """Read a run's input until its end, or until it may not go on; a file that cannot be read fails the run."""
    run = load_run(run_id)
    try:
        file = load_file_reference(run.input_file_id, session_id=run.session_id)
        _read(run, file.content_id, may_go_on)
    except (InvalidInput, FileContentNotFound, FileReferenceNotFoundError) as error:
        with suppress(OperatorRunNotInState), change(run.session_id) as record:
            store.fail_run(record, run_id, error)
    except OperatorRunNotInState:
        pass  # somebody paused or cancelled it, or another worker has read it meanwhile


def _read(run: RunRecord, content_id: str, may_go_on: Callable[[], bool]) -> None:
    config = site_config().operators
    last = load_items(run.id, [last_item(run.id)[0]])
    number = last[0].number if last else 0
    after = NewItem(number=number, offset=last[0].offset, length=last[0].length) if last else None
    with reading(content_id) as read:
        size = content_size(content_id)
        found = input_lines(read, size, after=after, line_bytes=config.line_bytes, most_items=config.most_items)
        while may_go_on():
            some = list(islice(found, ITEMS_A_CHANGE))
            with change(run.session_id) as record:
                if last_item(run.id)[0] != number:
                    return  # another worker reads it
                if some:
                    store.add_items(record, run.id, some)
                    number = some[-1].number
                if len(some) < ITEMS_A_CHANGE:
                    store.begin_run(record, run.id, items=number)
                    return
