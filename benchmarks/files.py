"""What files cost in a context, and the cost of exploring them against reading and hashing the same bytes.

Uses the largest real file of each kind on this machine, up to 20 MB, and generated tables, logs and records of two
sizes, to see whether time grows faster than size.
"""

from __future__ import annotations

import hashlib
import json
import os
import sqlite3
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from random import Random
from time import perf_counter
from typing import Any

from mnesis_core.context.wording import fields_of
from mnesis_core.files.references import SAMPLE_BYTES, estimate_tokens
from mnesis_core.files.sandbox import Explored, explore_alone
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import FileRefPart

MEGABYTE = 1_000_000
LARGEST = 20 * MEGABYTE
LOOKED_AT = 20_000
"""Files of each folder."""
SIZES = (10, 100)
"""MB of what is generated."""
_LIBRARY = Path(sysconfig.get_paths()["stdlib"])
_FOLDERS = (_LIBRARY, Path("/usr/share"), Path("/usr/lib"), Path("/var/log"), Path("/usr/bin"))
_SUFFIXES = (
    *(
        ".py",
        ".js",
        ".ts",
        ".go",
        ".java",
        ".c",
        ".h",
        ".rb",
        ".php",
        ".sh",
        ".json",
        ".yaml",
        ".toml",
        ".xml",
        ".html",
    ),
    *(
        ".md",
        ".txt",
        ".log",
        ".sql",
        ".csv",
        ".pdf",
        ".png",
        ".zip",
        ".gz",
        ".whl",
        ".jar",
        ".so",
        ".ipynb",
        ".docx",
        ".xlsx",
    ),
)


def measure() -> list[tuple[str, ...]]:
    """Return the rows of the table."""
    rows = [_row(path, str(path)) for path in _real_files()]
    with tempfile.TemporaryDirectory() as folder:
        for name, write in _GENERATED.items():
            rows += _grown(Path(folder), name, write)
    return rows


def _grown(folder: Path, name: str, write: Callable[[Path, int], None]) -> list[tuple[str, ...]]:
    """Measure a file at each size. Later rows say how much longer a megabyte takes than in the first."""
    rows: list[tuple[str, ...]] = []
    first = 0.0
    for size in SIZES:
        path = folder / name
        write(path, size * MEGABYTE)
        explored, per_byte = _explored(path, name)
        first = first or per_byte
        rows.append((*_numbers(path, f"{name}, generated", explored), f"{per_byte / first:.2f}"))
        path.unlink()
    return rows


def _row(path: Path, name: str) -> tuple[str, ...]:
    explored, _ = _explored(path, name)
    return (*_numbers(path, path.suffix, explored), "")


def _explored(path: Path, name: str) -> tuple[Explored, float]:
    explored = explore_alone(path, name)
    return explored, explored.seconds / path.stat().st_size


def _numbers(path: Path, name: str, explored: Explored) -> tuple[str, ...]:
    size = path.stat().st_size
    began = perf_counter()
    with path.open("rb") as file:
        hashlib.file_digest(file, "sha256")
        file.seek(0)
        sample = file.read(SAMPLE_BYTES)
    hashing = perf_counter() - began
    found = explored.exploration
    whole = estimate_tokens(sample.decode("utf-8", "replace"), sampled=len(sample), size=size)
    part = FileRefPart(file_id="file_" + "0" * 26, path=name, file_type=found.kind, exploration_summary=found.summary)
    shown = estimate_text(fields_of(part, tombstoned=False)["text"])
    return (
        *(found.kind, name, f"{size / MEGABYTE:.2f}", f"{whole:,}", f"{shown:,}", f"{shown / size * MEGABYTE:,.0f}"),
        *(f"{explored.seconds:.2f}", f"{explored.seconds / hashing:,.0f}", f"{explored.peak_bytes / MEGABYTE:,.0f}"),
        found.problem or found.covered,
    )


def _real_files() -> list[Path]:
    """Return the largest file of each suffix within the size limit."""
    largest: dict[str, tuple[int, Path]] = {}
    for folder in _FOLDERS:
        for path in islice(folder.rglob("*"), LOOKED_AT):
            if (
                path.suffix in _SUFFIXES
                and path.is_file()
                and not path.is_symlink()
                and path.stat().st_uid == os.getuid()
            ):
                size = path.stat().st_size
                if largest.get(path.suffix, (0, path))[0] < size <= LARGEST:
                    largest[path.suffix] = size, path
    return [largest[suffix][1] for suffix in _SUFFIXES if suffix in largest]


def _lines(path: Path, size: int, make: Callable[[int, Random], str]) -> None:
    random = Random(7)
    with path.open("w") as file:
        number = 0
        while file.tell() < size:
            file.write("".join(make(number + place, random) for place in range(1_000)))
            number += 1_000


def _csv_row(number: int, random: Random) -> str:
    day = datetime(2026, 1, 1) + timedelta(minutes=number)
    return f"{number},{day:%Y-%m-%d %H:%M},Portwell {number % 40},{random.random() * 5:.3f},{number % 3 == 0}\n"


def _log_line(number: int, random: Random) -> str:
    day = datetime(2026, 1, 1) + timedelta(seconds=number)
    level = random.choice(("INFO", "INFO", "INFO", "WARNING", "ERROR"))
    return f"{day:%Y-%m-%dT%H:%M:%S}Z {level} gauge[{number % 97}]: read {random.random() * 5:.3f} m in {number % 900} ms\n"


def _record(number: int, random: Random) -> str:
    return (
        json.dumps({"id": number, "place": f"Portwell {number % 40}", "metres": random.random(), "tags": ["a"]}) + "\n"
    )


def _sqlite(path: Path, size: int) -> None:
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TABLE gauges (id INTEGER PRIMARY KEY, place TEXT NOT NULL, metres REAL)")
        rows: Iterator[tuple[Any, ...]] = ((n, f"Portwell {n % 40}", n / 7) for n in range(size // 32))
        database.executemany("INSERT INTO gauges VALUES (?, ?, ?)", rows)


_GENERATED: dict[str, Callable[[Path, int], None]] = {
    "tides.csv": partial(_lines, make=_csv_row),
    "gauges.log": partial(_lines, make=_log_line),
    "records.jsonl": partial(_lines, make=_record),
    "tides.sqlite3": _sqlite,
}
