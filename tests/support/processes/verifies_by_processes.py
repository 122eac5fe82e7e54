"""Verify sessions by two processes, all of them as long ones, and print the report."""

from __future__ import annotations

import json

from audit_app.proof import verify


def main(*session_ids: str) -> int:
    """Few entries are enough here."""
    verify.WORTH_PROCESSES, verify.ENTRIES_PER_SEGMENT = 0, 5
    print(json.dumps(verify.verify_sessions(session_ids, jobs=2).as_dict()))
    return 0
