"""Lines of a log read by number and searched, against ``wc -l``, ``sed`` and ``grep -n`` on the same file."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path
from statistics import median
from time import perf_counter

from django.contrib.auth.models import User
from django.core.cache import cache

from files_app.contents import put_stream
from files_app.queries import read_lines, search_file
from files_app.store import store_file_reference
from sessions_app.record import session_store
from sessions_app.record.change import change

LINES = 1_500_000
"""About 115 MB."""
ROUNDS = 7


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder) / "large.log"
        place.write_bytes(b"".join(map(_line, range(1, LINES + 1))))
        file_id = _keep(place)
        megabytes = place.stat().st_size / 1_000_000
        pairs: dict[str, tuple[list[str], Callable[[], object]]] = {
            "count all lines": (["wc", "-l"], lambda: _counted(file_id)),
            "100 lines from number 1,400,000, counted": (
                ["sed", "-n", "1400000,1400099p;1400100q"],
                lambda: read_lines(file_id, first_line=1_400_000, lines=100, session_id=_session(file_id)),
            ),
            "a word that is nowhere, in any case": (
                ["grep", "-n", "-i", "zeppelin"],
                lambda: _all(file_id, "zeppelin"),
            ),
            "a word on the last line": (
                ["grep", "-n", "-i", f"request {LINES} "],
                lambda: _all(file_id, f'"request {LINES} "'),
            ),
            "a pattern on 150 lines": (
                ["grep", "-n", "-E", "request [0-9]+0000 took [0-9]+ ms"],
                lambda: _all(file_id, "request [0-9]+0000 took [0-9]+ ms", "regex"),
            ),
        }
        return [_row(name, [*command, str(place)], ours, megabytes) for name, (command, ours) in pairs.items()]


_SESSIONS: dict[str, str] = {}


def _session(file_id: str) -> str:
    return _SESSIONS[file_id]


def _line(number: int) -> bytes:
    return (
        f"2026-01-01 12:00:{number % 60:02} INFO worker-{number % 17} request {number} took {number % 997} ms "
        f"from 10.0.0.{number % 255}\n"
    ).encode()


def _keep(place: Path) -> str:
    session_id = session_store.create_session(owner=User.objects.create_user("benchmark"), model="demo")
    with place.open("rb") as file:
        content_id, size = put_stream(iter(lambda: file.read(1_048_576), b""), largest=10**10)
    with change(session_id) as record:
        file_id = store_file_reference(record, content_id=content_id, path="large.log", size=size)
    _SESSIONS[file_id] = session_id
    return file_id


def _counted(file_id: str) -> None:
    cache.clear()
    total = None
    while total is None:
        total = read_lines(file_id, lines=1, session_id=_session(file_id)).total
    if total != LINES:
        raise ValueError(f"{total} lines counted")


def _all(file_id: str, pattern: str, mode: str = "text") -> None:
    cursor, more = None, True
    while more:
        page = search_file(
            file_id,
            pattern=pattern,
            mode="regex" if mode == "regex" else "text",
            limit=500,
            cursor=cursor,
            session_id=_session(file_id),
        )
        cursor, more = page.next_cursor, page.next_cursor is not None


def _row(name: str, command: list[str], ours: Callable[[], object], megabytes: float) -> tuple[str, ...]:
    theirs_seconds, our_seconds = [], []
    for _ in range(ROUNDS):
        theirs_seconds.append(_seconds(lambda: subprocess.run(command, capture_output=True, check=False)))
        our_seconds.append(_seconds(ours))
    theirs, mine = median(theirs_seconds), median(our_seconds)
    return name, f"{1_000 * theirs:,.1f}", f"{1_000 * mine:,.1f}", f"{mine / theirs:.2f}", f"{megabytes / mine:,.0f}"


def _seconds(run: Callable[[], object]) -> float:
    begin = perf_counter()
    run()
    return perf_counter() - begin
