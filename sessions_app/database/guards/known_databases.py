"""A list of the databases that a data directory has served, so that a lost one is not mistaken for a new start.

It is ``.databases`` in the data directory, one name per line: ``migrate`` writes it and every start reads it. Settings
import this module, so it imports nothing of Django.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

FILE = ".databases"
LOST = (
    "Check DATABASE_URL and MNESIS_DATA_DIR, or restore a backup (docs/operations.md). To start anew without that "
    "record, choose another MNESIS_DATA_DIR, or remove the line '{name}' from {file}."
)


def name_of(entry: Mapping[str, Any], directory: Path) -> str:
    """Return a database's name: a file's path relative to the data directory, or a server's address."""
    if "sqlite" not in entry["ENGINE"]:
        return f"postgresql://{entry['HOST'] or 'localhost'}:{entry['PORT'] or 5432}/{entry['NAME']}"
    path = Path(entry["NAME"]).resolve()
    return str(path.relative_to(directory.resolve()) if path.is_relative_to(directory.resolve()) else path)


def missing_file(entry: Mapping[str, Any], directory: Path) -> str:
    """Return what to say if the SQLite file of a known database is missing, otherwise an empty string."""
    if "sqlite" not in entry["ENGINE"] or Path(entry["NAME"]).exists() or not is_known(entry, directory):
        return ""
    return f"{entry['NAME']} held a record, and the file is not there. {_advice(entry, directory)}"


def emptied(entry: Mapping[str, Any], directory: Path) -> str:
    """Return what to say if a database without tables is a known one, otherwise an empty string."""
    if not is_known(entry, directory):
        return ""
    return f"The database {name_of(entry, directory)} held a record, and it is empty now. {_advice(entry, directory)}"


def is_known(entry: Mapping[str, Any], directory: Path) -> bool:
    try:
        return name_of(entry, directory) in (directory / FILE).read_text().splitlines()
    except FileNotFoundError:
        return False


def remember(entry: Mapping[str, Any], directory: Path) -> None:
    """:raises OSError: the directory cannot be written to."""
    if not is_known(entry, directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (directory / FILE).open("a") as file:
            file.write(f"{name_of(entry, directory)}\n")


def _advice(entry: Mapping[str, Any], directory: Path) -> str:
    return LOST.format(name=name_of(entry, directory), file=directory / FILE)
