"""Copies of a SQLite file with bytes changed at random places, each verified in this process: what came of it, as JSON."""

from __future__ import annotations

import json
import random
import sqlite3
import traceback
from contextlib import closing, suppress
from io import StringIO
from pathlib import Path
from typing import Any

from django.core.management import CommandError, call_command
from django.db import connection

from audit_app.tables import session_tables

UNPROVEN = {
    *("updated_at", "lease_owner", "lease_expires_at", "fence", "interrupt_requested_at", "attempts", "excused"),
    *("not_before", "started_at", "ended_at"),
}
"""Columns that say how something is worked on, not what was said (``tests.audit_app.proof.test_verify``)."""
DEALT = {"events", "context_items", "summary_edges", "operator_items"}
"""Tables whose ids the database gives, and to which nothing refers."""


def main(pristine: str, copy: str, seed: str, count: str) -> int:
    """Change some bytes of a copy, look, and again."""
    known, before = Path(pristine).read_bytes(), content_of(pristine)
    found = []
    for number in range(int(count)):
        chance = random.Random(f"{seed} {number}")
        damaged = bytearray(known)
        places = [chance.randrange(len(damaged)) for _ in range(chance.choice([1, 1, 1, 8, 64]))]
        for place in places:
            damaged[place] ^= chance.randrange(1, 256)
        with suppress(FileNotFoundError):
            Path(f"{copy}-wal").unlink()
        Path(copy).write_bytes(damaged)
        status, problems, error = verified(copy)
        changed = content_of(copy) != before
        found.append({"number": number, "status": status, "problems": problems, "error": error, "changed": changed})
    print(json.dumps(found))
    return 0


def verified(file: str) -> tuple[int, int, str]:
    """Exit status, number of problems, and the traceback where there was one."""
    connection.close()
    connection.settings_dict["NAME"] = file
    output, status = StringIO(), 0
    try:
        call_command("verify", "--all", "--json", "--jobs=1", stdout=output, stderr=StringIO())
    except CommandError as error:
        status = error.returncode
        if not output.getvalue():
            return status, 0, str(error)
    except BaseException:
        return 99, 0, traceback.format_exc()
    finally:
        connection.close()
    return status, len(json.loads(output.getvalue())["problems"]), ""


def content_of(file: str) -> Any:
    """Every proven value of the record, past our own code; ``None`` where not all of it can be read."""
    found = {}
    with closing(sqlite3.connect(file)) as plain:
        plain.text_factory = bytes
        for name, table in session_tables().items():
            left_out = UNPROVEN | ({"id"} if name in DEALT else set())
            columns = [str(field.column) for field in table.fields if field.column not in left_out]
            try:
                rows = plain.execute(f"SELECT {', '.join(columns)} FROM {name} NOT INDEXED").fetchall()
            except (sqlite3.Error, ValueError):  # the driver's words have the bytes in them
                return None
            found[name] = sorted(map(repr, rows))
    return found
