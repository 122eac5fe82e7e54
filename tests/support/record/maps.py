"""Runs of operators as people start them: a file of lines, a template, and workers that do the work."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any

from agents_app import store
from agents_app.maps.worker import work_for_a_slice
from agents_app.queries import load_run
from files_app.contents import read_content
from files_app.intake import keep_file
from files_app.queries import load_file_reference
from mnesis_core.maps.values import OperatorKind, OperatorSpec, RunRecord
from mnesis_core.records import SessionRecord
from sessions_app.record.change import change

TEMPLATE = "Say {{ item }}"


def start(
    session: SessionRecord,
    items: Sequence[Any] | int | str,
    *,
    kind: OperatorKind = OperatorKind.LLM,
    turn_id: str = "",
    **spec: Any,
) -> str:
    """A run over values, over so many numbers, or over a text; returns its id."""
    text = items if isinstance(items, str) else lines_of(range(1, items + 1) if isinstance(items, int) else items)
    file = keep_file(session.id, owner_id=session.owner_id, path="lines.jsonl", chunks=[text.encode()])
    chosen = OperatorSpec(**{"template": TEMPLATE} | spec)
    with change(session.id) as record:
        return store.start_run(record, kind=OperatorKind(kind), spec=chosen, input_file_id=file.id, turn_id=turn_id)


def lines_of(values: Iterable[Any]) -> str:
    """Values as JSON Lines."""
    return "".join(f"{json.dumps(value)}\n" for value in values)


def worked(run_id: str) -> RunRecord:
    """A run after this process has worked on it as a worker does, until nothing was left."""
    work_for_a_slice()
    return load_run(run_id)


def output_of(run: RunRecord) -> list[dict[str, Any]]:
    """The lines of a run's output file."""
    file = load_file_reference(run.output_file_id, session_id=run.session_id)
    text = read_content(file.content_id, 0, file.size or 0).decode()
    return [json.loads(line) for line in text.splitlines()]
