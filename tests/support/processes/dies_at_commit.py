"""A process that is killed at the COMMIT of a turn's claim: just before it, or just after it and before a word."""

from __future__ import annotations

import os
import signal
from typing import Any

from django.db import connections

from agents_app.turns.claim import claim_turn
from tests.support.processes.writers import fork, question


def main(session_id: str, owner_id: str, moment: str) -> int:
    """Claim a turn, ``before`` or ``after`` the COMMIT of which the process dies; the moment is its key, too."""
    pid = fork(lambda: claim_and_die(session_id, int(owner_id), moment))
    return 0 if os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == -signal.SIGKILL else 1


def claim_and_die(session_id: str, owner_id: int, moment: str) -> None:
    """A claim that never returns."""
    kind: Any = type(connections["default"])
    commit = kind._commit

    def die(self: Any) -> None:
        if moment == "after":
            commit(self)
        os.kill(os.getpid(), signal.SIGKILL)

    kind._commit = die
    claim_turn(session_id, owner_id=owner_id, message=question(moment), idempotency_key=moment, lease_owner="mortal")
