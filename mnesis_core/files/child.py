"""The process that explores one file: ``python -m mnesis_core.files.child``, started by ``sandbox``.

The operating system limits its time, memory and files. ``_refuse`` holds Python code only: it stops a parser that would
look something up or write something, not one that was taken over.
"""

from __future__ import annotations

import ctypes
import json
import os
import re
import resource
import signal
import sys
import time
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Any

from mnesis_core.files.detection import detect
from mnesis_core.files.explore import explore, explore_plainly
from mnesis_core.files.source import Source

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
OPEN_FILES = 64
_PROCESSES = (
    "socket.",
    "subprocess.",
    "os.system",
    "os.exec",
    "os.fork",
    "os.posix_spawn",
    "os.spawn",
    "os.kill",
    "pty.",
)
_FILES = (
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "os.chown",
    "shutil.",
    "tempfile.",
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.M)


def main() -> None:
    asked = json.load(sys.stdin)
    # A parser that prints must not print into our answer.
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    # The network namespace is left if the system allows it; the audit hook refuses sockets in any case.
    # The network namespace is left if the system allows it; the audit hook refuses sockets in any case.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).unshare(CLONE_NEWUSER | CLONE_NEWNET)
    sys.addaudithook(_refuse)
    # The parent may have ended and can then not stop this process.
    signal.alarm(asked["seconds"] + 1)
    processor = asked["processor_seconds"]
    resource.setrlimit(resource.RLIMIT_CPU, (processor, processor + 1))
    limits = {
        resource.RLIMIT_AS: asked["memory_bytes"],
        resource.RLIMIT_FSIZE: asked["output_bytes"],
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: OPEN_FILES,
    }
    for limit, most in limits.items():
        resource.setrlimit(limit, (most, most))
    path = Path(asked["path"])
    source = Source(path=path, name=asked["name"], size=path.stat().st_size)
    began = time.monotonic()
    problem = asked["problem"]
    found = explore_plainly(source, detect(source), problem=problem) if problem else explore(source)
    json.dump({"exploration": asdict(found), "seconds": time.monotonic() - began, "peak_bytes": _peak()}, answer)
    answer.close()


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    if event.startswith(_PROCESSES + _FILES) or (event == "open" and _writes(*arguments)):
        raise PermissionError(f"an exploration may not use {event}")


def _writes(path: object, mode: object, flags: object) -> bool:
    # A number is a file that is open already.
    return not isinstance(path, int) and isinstance(flags, int) and bool(flags & _WRITING)


def _peak() -> int:
    # getrusage would also count the memory of the parent before exec.
    try:
        found = _PEAK.search(Path("/proc/self/status").read_text())
    except OSError:
        found = None
    return int(found[1]) * 1024 if found else resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


if __name__ == "__main__":
    main()
