"""Who holds a lease: a process, under a name by which others on its host can see whether it still runs.

A lease that runs out says that its owner is dead, or that it had no processor for so long. On the same host that can be
told apart: the name has the process id, and when that process began, for ids are used again.
"""

from __future__ import annotations

import os
import secrets
import socket
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path

STARVED = timedelta(seconds=120)
"""How long a process that runs keeps what it had a lease of: then something is wrong with it."""
_AT_REST = {"T", "t", "Z", "X", "x"}
"""States of a Linux process that does nothing: stopped, traced, dead."""
_UNKNOWN = "-"
"""Where no /proc says when a process began."""


def new_owner() -> str:
    """Another name for this process, of at most a hundred characters."""
    _, began = _seen(os.getpid()) or ("", _UNKNOWN)
    return f"{_host()}:{os.getpid()}:{began}:{secrets.token_hex(4)}"


def lives(owner: str) -> bool:
    """Whether the process of this name runs on this host. Also false where nobody here can know."""
    host, pid, began, _ = ("", "", "", *owner.rsplit(":", 3))[-4:]
    if host != _host() or not pid.isdecimal():
        return False
    seen = _seen(int(pid))
    return seen is not None and seen[0] not in _AT_REST and seen[1] == began


def is_starved(owner: str, *, expired_at: datetime, now: datetime) -> bool:
    """Whether who let a lease run out is at it all the same: a process that runs here, and was too slow to renew it."""
    return now - expired_at < STARVED and lives(owner)


def _host() -> str:
    return socket.gethostname()[:60]


def _seen(pid: int) -> tuple[str, str] | None:
    """The state of a process and when it began, in ticks since the host did (proc(5)); ``None``: there is none."""
    with suppress(OSError):
        # Its name, in brackets, may hold anything, brackets too.
        fields = Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
        return fields[0], fields[19]
    if Path("/proc/self/stat").exists():
        return None
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return None
    except OSError:
        pass  # somebody else's
    return "", _UNKNOWN
