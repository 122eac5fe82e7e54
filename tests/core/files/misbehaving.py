"""``child`` with a parser of TOML that does what the file says: hangs, crashes, or reaches for what it may not have."""

from __future__ import annotations

import ctypes
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from mnesis_core.files import child
from mnesis_core.files.source import Findings, Source


def _hang() -> None:
    time.sleep(3600)


def _work() -> None:
    while True:
        pass


def _grow() -> None:
    bytearray(3 << 30)


def _crash() -> None:
    ctypes.string_at(0)


def _leave() -> None:
    os._exit(0)


def _print() -> None:
    print("printed")
    os.write(1, b"written")


def _connect() -> None:
    socket.create_connection(("127.0.0.1", 9))


def _start() -> None:
    subprocess.run(["true"], check=True)


def _fork() -> None:
    os.fork()


def _write() -> None:
    (Path(__file__).parent / "written-by-a-parser").write_text("written")


def _remove() -> None:
    Path(__file__).with_name("no-such-file").unlink(missing_ok=True)


def _say_environment() -> str:
    return " ".join(sorted(os.environ))


def _say_networks() -> str:
    return Path("/proc/self/net/dev").read_text()


DEEDS: dict[str, Callable[[], str | None]] = {
    name.removeprefix("_"): deed for name, deed in list(globals().items()) if name[0] == "_" and callable(deed)
}


def explore(source: Source) -> Findings:
    """Do what the file names."""
    said = DEEDS[source.text().strip()]()
    return Findings(lines=(f"done {said or ''}",))


def main() -> None:
    parser: Any = ModuleType("mnesis_core.files.kinds.yaml")
    parser.explore_toml = explore
    sys.modules[parser.__name__] = parser
    child.main()


if __name__ == "__main__":
    main()
