"""The process that explores one file: ``python -m mnesis_core.exploration.child``, asked on standard input (``alone``)."""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mnesis_core.exploration.detection import detect
from mnesis_core.exploration.explore import explore, explore_plainly
from mnesis_core.exploration.source import Source

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
_REFUSED = ("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "pty.")


def main() -> None:
    """Explore the file that standard input names and print what was found as JSON."""
    asked = json.load(sys.stdin)
    # A parser that prints must not print into our answer.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    _limit(asked)
    path = Path(asked["path"])
    source = Source(path=path, name=asked["name"], size=path.stat().st_size)
    began = time.monotonic()
    problem = asked["problem"]
    found = explore_plainly(source, detect(source), problem=problem) if problem else explore(source)
    used = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    json.dump({"exploration": asdict(found), "seconds": time.monotonic() - began, "peak_bytes": used}, answer)
    answer.close()


def _limit(asked: dict[str, Any]) -> None:
    """Take from this process what no exploration needs."""
    _leave_network()
    sys.addaudithook(_refuse)
    limits = {
        resource.RLIMIT_CPU: asked["processor_seconds"],
        resource.RLIMIT_AS: asked["memory_bytes"],
        resource.RLIMIT_FSIZE: asked["output_bytes"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: 64,
    }
    for limit, most in limits.items():
        resource.setrlimit(limit, (most, most))


def _leave_network() -> None:
    """Into a namespace without a network, where the system lets us; the hook below refuses sockets anywhere."""
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).unshare(CLONE_NEWUSER | CLONE_NEWNET)


def _refuse(event: str, _arguments: tuple[Any, ...]) -> None:
    if event.startswith(_REFUSED):
        raise PermissionError(f"an exploration may not use {event}")


if __name__ == "__main__":
    main()
