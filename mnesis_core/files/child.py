"""The process that explores one file, or makes the rendition of a picture: ``python -m mnesis_core.files.child``, started by ``sandbox``.

The operating system limits its time, memory and files. ``_refuse`` holds Python code only: it stops a parser that would
look something up or write something, not one that was taken over.
"""

from __future__ import annotations

import base64
import ctypes
import json
import math
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

from mnesis_core.files.detection import detect, explore, explore_plainly
from mnesis_core.files.pictures import RULES, render
from mnesis_core.files.source import Source

CLONE_NEWUSER, CLONE_NEWNET = 0x10000000, 0x40000000
OPEN_FILES = 64
# Audit events that begin with these: of sockets, processes and files.
_REFUSED = (
    *("socket.", "subprocess.", "os.system", "os.exec", "os.fork", "os.posix_spawn", "os.spawn", "os.kill", "pty."),
    *("os.remove", "os.rename", "os.rmdir", "os.mkdir", "os.link", "os.symlink", "os.truncate", "os.chmod", "os.chown"),
    *("shutil.", "tempfile."),
)
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB$", re.M)


def main() -> None:
    asked = json.load(sys.stdin)
    answer = os.fdopen(os.dup(1), "w")  # A parser that prints must not print into our answer.
    os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    # The network namespace is left if the system allows it; the audit hook refuses sockets in any case.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).unshare(CLONE_NEWUSER | CLONE_NEWNET)
    sys.addaudithook(_refuse)
    # The parent may have ended and can then not stop this process.
    signal.alarm(math.ceil(asked["seconds"]) + 1)
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
    json.dump(_rendition(path, asked["rule"]) if "rule" in asked else _exploration(path, asked), answer)
    answer.close()


def _rendition(path: Path, rule: str) -> dict[str, Any]:
    try:
        rendition = render(path, RULES[rule])
    except ValueError as error:
        return {"problem": str(error)}
    except MemoryError:
        return {"problem": "it needs more memory than it may have"}
    return {"rendition": asdict(rendition) | {"data": base64.b64encode(rendition.data).decode()}}


def _exploration(path: Path, asked: dict[str, Any]) -> dict[str, Any]:
    source = Source(path=path, name=asked["name"], size=path.stat().st_size)
    began = time.monotonic()
    problem = asked["problem"]
    found = explore_plainly(source, detect(source), problem=problem) if problem else explore(source)
    seconds = time.monotonic() - began
    # getrusage would also count the memory of the parent before exec.
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with suppress(OSError):
        if status := _PEAK.search(Path("/proc/self/status").read_text()):
            peak = int(status[1])
    return {"exploration": asdict(found), "seconds": seconds, "peak_bytes": peak * 1024}


def _refuse(event: str, arguments: tuple[Any, ...]) -> None:
    is_writing = False
    if event == "open":
        path, _, flags = arguments
        # A path that is a number is a file that is open already.
        is_writing = not isinstance(path, int) and isinstance(flags, int) and bool(flags & _WRITING)
    if is_writing or event.startswith(_REFUSED):
        raise PermissionError(f"an exploration may not use {event}")


if __name__ == "__main__":
    main()
