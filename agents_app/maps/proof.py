"""Checks of the rows of map runs and items against what they are made of: attempts, calls, and the input.

The ledger commits to every attempt, every call and the name of the input's content. Sums, accepted attempts, errors and
the places of lines follow from these; a row that says otherwise was changed.
"""
# ruff: noqa: S608 - the names in these statements are ours; values are passed as parameters

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

from agents_app.store import LONGEST_ERROR
from files_app.contents import content_size, reading
from mnesis_core.context.replay import Difference
from mnesis_core.errors import FileContentNotFound, InvalidInput
from mnesis_core.maps.values import NewItem, line_places
from mnesis_core.text import decode_text, encode_text, excerpt
from sessions_app.conf import site_config
from sessions_app.database.tables import fetch

ITEMS_A_QUERY = 10_000
_SHOWN_ERROR = 120  # characters of an error that a difference names
_RUN_SUMS = ("tokens_input", "tokens_output", "cost_micros")
_ITEM_SUMS = (*_RUN_SUMS, "duration_ms")
_ITEM_STATES = ("completed", "failed", "cancelled")
_RUN_COUNTS = (*(f"{state}_count" for state in _ITEM_STATES), "try_count", *_RUN_SUMS)


def _sums(names: tuple[str, ...]) -> str:
    return ", ".join(f"CAST(SUM(COALESCE({name}, 0)) AS bigint) AS {name}" for name in names)


_RUNS = f"""
    SELECT r.id, f.content_id, r.item_count, {", ".join(f"r.{name}" for name in _RUN_COUNTS)}
    FROM operator_runs r LEFT JOIN file_references f ON f.id = r.input_file_id WHERE r.session_id = %s ORDER BY r.id"""
_STATES = """
    SELECT i.run_id, i.state, COUNT(*) FROM operator_items i JOIN operator_runs r ON r.id = i.run_id
    WHERE r.session_id = %s GROUP BY i.run_id, i.state"""
_TRIES = f"SELECT run_id, COUNT(*), {_sums(_RUN_SUMS)} FROM operator_tries WHERE session_id = %s GROUP BY run_id"
# Through the runs, as everywhere here, so that an item which names another session is seen.
_ITEMS = f"""
    SELECT i.run_id, i.number, r.session_id, i.session_id, COALESCE(t.accepted_try_id, ''), i.accepted_try_id,
        {", ".join(f"COALESCE(t.{name}, 0), i.{name}" for name in _ITEM_SUMS)}
    FROM operator_runs r JOIN operator_items i ON i.run_id = r.id LEFT JOIN (
        SELECT run_id, item, MAX(CASE WHEN accepted THEN id END) AS accepted_try_id, {_sums(_ITEM_SUMS)}
        FROM operator_tries WHERE session_id = %s GROUP BY run_id, item
    ) t ON t.run_id = i.run_id AND t.item = i.number
    WHERE r.session_id = %s AND (i.session_id <> r.session_id OR i.accepted_try_id <> COALESCE(t.accepted_try_id, '')
        OR {" OR ".join(f"i.{name} <> COALESCE(t.{name}, 0)" for name in _ITEM_SUMS)})
    ORDER BY i.run_id, i.number"""
# What an item says of why it came to nothing is the last try's, or nothing: it was never tried, has its result, or was
# sent to be tried again. An item that failed without a try (its question could not be put together), or whose
# sub-agent never began, has words that no row proves.
_ERRORS = f"""
    SELECT i.run_id, i.number, i.state = 'completed', i.error_kind, i.error, t.error_kind, t.error
    FROM operator_runs r JOIN operator_items i ON i.run_id = r.id
    LEFT JOIN operator_tries t ON t.run_id = i.run_id AND t.item = i.number
        AND t.number = (SELECT MAX(l.number) FROM operator_tries l WHERE l.run_id = i.run_id AND l.item = i.number)
    WHERE r.session_id = %s
        AND NOT (i.error_kind = '' AND i.error = '' AND i.state <> 'failed')
        AND NOT (t.id IS NOT NULL AND i.state <> 'completed'
            AND i.error_kind = t.error_kind AND i.error = substr(t.error, 1, {LONGEST_ERROR}))
        AND NOT (i.attempts > COALESCE(t.number, 0) AND i.state <> 'completed'
            AND (r.kind = 'agentic' OR (i.state = 'failed' AND i.error_kind <> '')))
    ORDER BY i.run_id, i.number"""
_STRANGE = """
    SELECT i.run_id, i.number, i.lease_owner <> '', i.state
    FROM operator_items i JOIN operator_runs r ON r.id = i.run_id
    WHERE r.session_id = %s AND (i.state NOT IN ('pending', 'running', 'completed', 'failed', 'cancelled')
        OR (i.state = 'running') <> (i.lease_owner <> ''))
    ORDER BY i.run_id, i.number"""
_ASKED = """
    SELECT id, CAST(manifest AS text) FROM model_calls
    WHERE session_id = %s AND turn_id IS NULL AND purpose = 'map' AND state = 'running'"""
_HELD = """
    SELECT i.run_id, i.number, i.call_id FROM operator_items i JOIN operator_runs r ON r.id = i.run_id
    WHERE r.session_id = %s AND i.call_id <> ''"""
_PLACES = """
    SELECT number, line_offset, line_length FROM operator_items
    WHERE run_id = %s AND number > %s ORDER BY number LIMIT %s"""
_LONGEST = "SELECT MAX(line_length) FROM operator_items WHERE run_id = %s"


def operator_differences(session_id: str, *, using: str = "default") -> Iterator[Difference]:
    """Yield where a session's runs and items differ from their attempts, calls and inputs; one query if it has none."""
    runs = fetch(_RUNS, [session_id], using=using)
    if not runs:
        return
    states: dict[tuple[str, str], int] = {
        (run_id, state): items for run_id, state, items in fetch(_STATES, [session_id], using=using)
    }
    tries = {run_id: sums for run_id, *sums in fetch(_TRIES, [session_id], using=using)}
    for id, _, item_count, *counters in runs:
        counted = [states.get((id, state), 0) for state in _ITEM_STATES]
        sums = tries.get(id, [0] * (1 + len(_RUN_SUMS)))
        for name, found, wanted in zip(_RUN_COUNTS, counters, [*counted, *sums], strict=True):
            if found != wanted:
                yield Difference(what=f"operator_runs.{name}", id=id, ledger=wanted, rows=_plain(found))
        items = sum(count for (run_id, _), count in states.items() if run_id == id)
        if item_count not in (None, items):
            yield Difference(what="operator_items", id=id, ledger=item_count, rows=items)
    # Only of items that have not ended: how the others ended is in the events.
    for run_id, number, is_held, state in fetch(_STRANGE, [session_id], using=using):
        yield from _compare(run_id, number, ["state"], ["running" if is_held else "pending"], [state])
    for run_id, number, *values in fetch(_ITEMS, [session_id, session_id], using=using):
        yield from _compare(run_id, number, ["session_id", "accepted_try_id", *_ITEM_SUMS], values[::2], values[1::2])
    for run_id, number, is_completed, *found, kind, error in fetch(_ERRORS, [session_id], using=using):
        is_told = kind is not None and not is_completed
        # Cut as it was said, and then encoded: what is escaped is longer.
        told = [kind, encode_text(decode_text(error)[:LONGEST_ERROR])] if is_told else ["", ""]
        yield from _compare(run_id, number, ["error_kind", "error"], told, found, show=_shortened)
    yield from _calls(session_id, using)
    for run_id, content_id, *_ in runs:
        yield from _lines(run_id, content_id or "", using)


def _calls(session_id: str, using: str) -> Iterator[Difference]:
    asked: dict[tuple[str, int], str] = {}
    for id, manifest in fetch(_ASKED, [session_id], using=using):
        about = ("", 0)  # of a forged manifest
        with suppress(ValueError, TypeError, KeyError, OverflowError, RecursionError):
            [named] = [row for row in json.loads(manifest) if row["kind"] == "map"]
            about = str(named["run_id"]), int(named["item"])
        asked[about] = id
    held = {(run_id, number): id for run_id, number, id in fetch(_HELD, [session_id], using=using)}
    for run_id, number in sorted(asked.keys() | held.keys()):
        key = run_id, number
        yield from _compare(run_id, number, ["call_id"], [asked.get(key, "")], [held.get(key, "")])


def _lines(run_id: str, content_id: str, using: str) -> Iterator[Difference]:
    [(longest,)] = fetch(_LONGEST, [run_id], using=using)
    if longest is None:
        return
    line_bytes = max(longest if isinstance(longest, int) else 0, site_config().operators.line_bytes)
    try:
        with reading(content_id) as read:
            places = line_places(read, content_size(content_id), line_bytes=line_bytes)
            yield from _compare_places(run_id, places, using)
    except FileContentNotFound:
        yield Difference(what="operator_items.line_offset", id=run_id, ledger=f"content {content_id}", rows="gone")
    except InvalidInput as error:
        yield Difference(what="operator_items.line_offset", id=run_id, ledger=error.message, rows="there are items")


def _compare_places(run_id: str, places: Iterator[NewItem], using: str) -> Iterator[Difference]:
    place, after = next(places, None), -(2**63)
    while rows := fetch(_PLACES, [run_id, after, ITEMS_A_QUERY], using=using):
        for number, *found in rows:
            # A forged row may hold a text in any column of SQLite; texts come after all numbers.
            while place is not None and type(number) is int and place.number < number:
                place = next(places, None)
            wanted = [None, None] if place is None or place.number != number else [place.offset, place.length]
            yield from _compare(run_id, number, ["line_offset", "line_length"], wanted, found)
        after = rows[-1][0]


def _plain(value: Any) -> Any:
    return value if isinstance(value, int | str | None) else repr(value)


def _shortened(error: Any) -> str:
    return excerpt(decode_text(str(error)), _SHOWN_ERROR)


def _compare(
    run_id: str,
    number: int,
    names: Sequence[str],
    wanted: Sequence[Any],
    found: Sequence[Any],
    *,
    show: Callable[[Any], Any] = _plain,
) -> Iterator[Difference]:
    for name, one, other in zip(names, wanted, found, strict=True):
        if one != other:
            what, id = f"operator_items.{name}", f"{run_id} {number}"
            yield Difference(what=what, id=id, ledger=show(one), rows=show(other))
