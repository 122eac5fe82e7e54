"""Runs one MCP server on standard input and output, between us and it: ``stdio_supervisor.py MOST_BYTES_OF_A_LINE PROGRAM ARGUMENT…``.

A program of its own, on the standard library alone. It passes everything on in both directions, and ends the server with all its
descendants of this process group when our end closes, when we die without a word (kill -9), and when an answer has no end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from typing import IO, NoReturn, cast

CHUNK = 65_536
GRACE_SECONDS = 1.5
"""For the server to end by itself when its input is closed, and again when it is told to."""
LOOK_EVERY_SECONDS = 1.0


def main(longest_line: int, argv: list[str]) -> None:
    """Start the server and pass on what is said until one side ends."""
    parent = os.getppid()
    if os.getpgrp() != os.getpid():
        os.setpgid(0, 0)
    # Not SIG_IGN, which the server would inherit. We end last, in end_group.
    signal.signal(signal.SIGTERM, lambda *_: None)
    server = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    answers = threading.Thread(target=pass_on, args=(server.stdout, 1, longest_line), daemon=True)
    answers.start()
    threading.Thread(target=end_with, args=(parent,), daemon=True).start()
    threading.Thread(target=end_after, args=(server, answers), daemon=True).start()
    pass_questions(cast(IO[bytes], server.stdin))
    wait(server)
    end_group()


def pass_questions(server_input: IO[bytes]) -> None:
    """Until our end is closed, or the server reads no more."""
    try:
        while data := os.read(0, CHUNK):
            server_input.write(data)
            server_input.flush()
        server_input.close()
    except OSError:
        return


def pass_on(source: IO[bytes], target: int, longest_line: int) -> None:
    """Until the server has said all, or a line of it is too long to be an answer."""
    length = 0
    try:
        while data := os.read(source.fileno(), CHUNK):
            *whole, rest = data.split(b"\n")
            length = len(rest) if whole else length + len(rest)
            if length > longest_line:
                end_group()
            write_all(target, data)
    except OSError:
        return


def write_all(target: int, data: bytes) -> None:
    """A pipe may take less than it is given."""
    view = memoryview(data)
    while view:
        view = view[os.write(target, view) :]


def end_after(server: subprocess.Popen[bytes], answers: threading.Thread) -> None:
    """When the server has ended by itself, so do we, after its last words."""
    server.wait()
    answers.join(GRACE_SECONDS)
    end_group()


def end_with(parent: int) -> None:
    """Whoever started us may die while we are stuck in writing to a server that does not read."""
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_SECONDS)
    end_group()


def wait(server: subprocess.Popen[bytes]) -> None:
    """Give the server its time to end by itself."""
    try:
        server.wait(GRACE_SECONDS)
    except subprocess.TimeoutExpired:
        return


def end_group() -> NoReturn:
    """Ask everything in this process group to end, then end it, ourselves included."""
    os.killpg(0, signal.SIGTERM)
    time.sleep(0.1)
    os.killpg(0, signal.SIGKILL)
    raise SystemExit(1)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), sys.argv[2:])
    except OSError as error:
        sys.exit(f"{sys.argv[2]}: {error.strerror}")
