"""When a model goes round in circles: the same tool with the same input, again and again (seed 000 "doom loop")."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import NamedTuple


class Made(NamedTuple):
    """A tool call, as far as it can be the same as another one."""

    name: str
    arguments: str
    """In one way of writing, where they are JSON."""


def call_made(name: str, arguments: str) -> Made:
    """A call by what it means: the order of keys and the spaces of its arguments say nothing."""
    try:
        return Made(name, json.dumps(json.loads(arguments), sort_keys=True))
    except (ValueError, RecursionError):
        return Made(name, arguments)


def repeats(before: Sequence[Made], calls: Iterable[Made], threshold: int) -> list[bool]:
    """For each of the calls of a step, whether it ends a row of at least ``threshold`` that are the same.

    :param before: the calls of the steps before, in order
    """
    row, last = _row_at_end(before)
    found = []
    for call in calls:
        row = row + 1 if call == last else 1
        last = call
        found.append(row >= threshold)
    return found


def _row_at_end(calls: Sequence[Made]) -> tuple[int, Made | None]:
    if not calls:
        return 0, None
    last = calls[-1]
    row = next((place for place, call in enumerate(reversed(calls)) if call != last), len(calls))
    return row, last
