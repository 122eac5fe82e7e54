"""Section 10: runs over the lines of a file."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tests.support.proof.second_verifier.values import Row, Session, decode_text, encode_text

STATES = ("pending", "running", "completed", "failed", "cancelled")
RUN_SUMS = ("tokens_input", "tokens_output", "cost_micros")
ITEM_SUMS = (*RUN_SUMS, "duration_ms")
LONGEST_ERROR = 4_000
MARK = b"\xef\xbb\xbf"
OTHER_MARKS = (b"\xff\xfe", b"\xfe\xff", b"\0\0\xfe\xff")


def run_problems(session: Session) -> Iterator[str]:
    """Yield the subject of each difference between runs and items and what they follow from."""
    for run in session.rows("operator_runs"):
        items = [item for item in session.rows("operator_items") if item["run_id"] == run["id"]]
        tries = [one for one in session.rows("operator_tries") if one["run_id"] == run["id"]]
        yield from _sums_of_run(run, items, tries)
        for item in items:
            of_item = [one for one in tries if one["item"] == item["number"]]
            where = f"{item['run_id']} {item['number']}"
            yield from (f"operator_items.{column} {where}" for column in _differing(run, item, of_item))
            if item.get("session_id") not in (None, session.id):
                yield f"operator_items.session_id {where}"
        yield from _lines(session, run, items)
    yield from _calls(session)


def _sum(rows: list[Row], column: str) -> int:
    return sum(row[column] or 0 for row in rows)


def _sums_of_run(run: Row, items: list[Row], tries: list[Row]) -> Iterator[str]:
    wanted = {f"{state}_count": sum(item["state"] == state for item in items) for state in STATES[2:]}
    wanted |= {"try_count": len(tries)} | {column: _sum(tries, column) for column in RUN_SUMS}
    yield from (f"operator_runs.{column} {run['id']}" for column, value in wanted.items() if run[column] != value)
    if run["item_count"] not in (None, len(items)):
        yield f"operator_items {run['id']}"


def _differing(run: Row, item: Row, tries: list[Row]) -> Iterator[str]:
    if item["state"] not in STATES or (item["state"] == "running") != (item["lease_owner"] != ""):
        yield "state"
    if item["accepted_try_id"] != next((one["id"] for one in tries if one["accepted"]), ""):
        yield "accepted_try_id"
    yield from (column for column in ITEM_SUMS if item[column] != _sum(tries, column))
    found = {"error_kind": item["error_kind"], "error": item["error"]}
    last = max(tries, key=lambda one: one["number"], default=None)
    wanted = {"error_kind": "", "error": ""}
    if last is not None and item["state"] != "completed":
        error = encode_text(decode_text(last["error"])[:LONGEST_ERROR])
        wanted = {"error_kind": last["error_kind"], "error": error}
    if not _is_unproven(run, item, last) and not (not any(found.values()) and item["state"] != "failed"):
        yield from (column for column in found if found[column] != wanted[column])


def _is_unproven(run: Row, item: Row, last: Row | None) -> bool:
    if item["state"] == "completed" or item["attempts"] <= (last["number"] if last else 0):
        return False
    return bool(run["kind"] == "agentic" or (item["state"] == "failed" and item["error_kind"] != ""))


def _calls(session: Session) -> Iterator[str]:
    if not session.rows("operator_runs"):
        return
    asked = {}
    for call in session.rows("model_calls"):
        if call["turn_id"] is None and (call["purpose"], call["state"]) == ("map", "running"):
            asked[_about(call["manifest"])] = call["id"]
    items = session.rows("operator_items")
    held = {(item["run_id"], item["number"]): item["call_id"] for item in items if item["call_id"] != ""}
    for key in asked.keys() | held.keys():
        if asked.get(key) != held.get(key):
            yield f"operator_items.call_id {key[0]} {key[1]}"


def _about(manifest: Any) -> tuple[str, int]:
    rows = manifest if isinstance(manifest, list) else []
    named = [row for row in rows if isinstance(row, dict) and row.get("kind") == "map"]
    if len(named) != 1 or type(named[0].get("run_id")) is not str or type(named[0].get("item")) is not int:
        return "", 0
    return named[0]["run_id"], named[0]["item"]


def _lines(session: Session, run: Row, items: list[Row]) -> Iterator[str]:
    if not items:
        return
    files = [file for file in session.rows("file_references") if file["id"] == run["input_file_id"]]
    data = session.contents.get(files[0]["content_id"]) if files else None
    if data is None or data.startswith(OTHER_MARKS):
        yield f"operator_items.line_offset {run['id']}"
        return
    places = dict(enumerate(_places(data), 1))
    for item in items:
        wanted = places.get(item["number"], (None, None))
        for column, value in zip(("line_offset", "line_length"), wanted, strict=True):
            if item[column] != value:
                yield f"operator_items.{column} {item['run_id']} {item['number']}"


def _places(data: bytes) -> Iterator[tuple[int, int]]:
    offset = len(MARK) if data.startswith(MARK) else 0
    for line in data[offset:].split(b"\n"):
        kept = line.strip(b" \t\r")
        if kept:
            yield offset + len(line) - len(line.lstrip(b" \t\r")), len(kept)
        offset += len(line) + 1
