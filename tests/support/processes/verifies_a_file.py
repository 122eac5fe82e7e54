"""Verify a SQLite file in this process, by the command."""

from __future__ import annotations

import json

from tests.support.processes.flips import verified


def main(file: str) -> int:
    """Exit status, number of problems, and the traceback where there was one."""
    print(json.dumps([verified(file)]))
    return 0
