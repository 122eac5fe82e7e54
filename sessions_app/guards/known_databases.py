"""Which databases a data directory has served, so that one that is lost is not taken for a new start.

``.databases`` in the data directory names them, one on a line: ``migrate`` writes it, every start reads it. Settings
import this module, so it knows nothing of Django's.
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
    """A database by its entry in ``DATABASES``: a file as seen from the data directory, or a server's address."""
    if "sqlite" not in entry["ENGINE"]:
        return f"postgresql://{entry['HOST'] or 'localhost'}:{entry['PORT'] or 5432}/{entry['NAME']}"
    path = Path(entry["NAME"]).resolve()
    return str(path.relative_to(directory.resolve()) if path.is_relative_to(directory.resolve()) else path)


def missing_file(entry: Mapping[str, Any], directory: Path) -> str:
    """What to say where the SQLite file of a known database is not there; nothing where all is well."""
    if "sqlite" not in entry["ENGINE"] or Path(entry["NAME"]).exists() or not is_known(entry, directory):
        return ""
    return f"{entry['NAME']} held a record, and the file is not there. {_way_out(entry, directory)}"


def emptied(entry: Mapping[str, Any], directory: Path) -> str:
    """What to say of a database without a table; nothing where none is known by its name."""
    if not is_known(entry, directory):
        return ""
    return f"The database {name_of(entry, directory)} held a record, and it is empty now. {_way_out(entry, directory)}"


def is_known(entry: Mapping[str, Any], directory: Path) -> bool:
    """Whether this data directory has served the database before."""
    return name_of(entry, directory) in _names(directory)


def remember(entry: Mapping[str, Any], directory: Path) -> None:
    """Note down that a database holds a record.

    :raises OSError: the directory cannot be written to.
    """
    if not is_known(entry, directory):
        directory.mkdir(mode=0o700, parents=True, exist_ok=True)
        with (directory / FILE).open("a") as file:
            file.write(f"{name_of(entry, directory)}\n")


def _names(directory: Path) -> list[str]:
    try:
        return (directory / FILE).read_text().splitlines()
    except FileNotFoundError:
        return []


def _way_out(entry: Mapping[str, Any], directory: Path) -> str:
    return LOST.format(name=name_of(entry, directory), file=directory / FILE)
