"""Supervise one MCP server on standard input and output: ``stdio_supervisor.py MOST_BYTES_OF_A_LINE PROGRAM ARGUMENT…``.

This is a program of its own, on the standard library alone, between us and the server. It passes everything on in both
directions, and ends the server with all its descendants of this process group when our end closes, when our process dies
(kill -9), and when an answer has no end.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from typing import IO, NoReturn, cast

CHUNK = 65_536
GRACE_SECONDS = 1.5  # for the server to end by itself when its input is closed, and again when it is told to
LOOK_EVERY_SECONDS = 1.0


def main(longest_line: int, argv: list[str]) -> None:
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
    questions = cast(IO[bytes], server.stdin)
    with suppress(OSError):
        while data := os.read(0, CHUNK):
            questions.write(data)
            questions.flush()
        questions.close()
    with suppress(subprocess.TimeoutExpired):
        server.wait(GRACE_SECONDS)
    end_group()


def pass_on(source: IO[bytes], target: int, longest_line: int) -> None:
    length = 0
    try:
        while data := os.read(source.fileno(), CHUNK):
            *whole, rest = data.split(b"\n")
            length = len(rest) if whole else length + len(rest)
            if length > longest_line:
                end_group()
            view = memoryview(data)
            while view:  # a pipe may take less than it is given
                view = view[os.write(target, view) :]
    except OSError:
        return


def end_after(server: subprocess.Popen[bytes], answers: threading.Thread) -> None:
    server.wait()
    answers.join(GRACE_SECONDS)
    end_group()


def end_with(parent: int) -> None:
    # The process that started us may die while we are stuck in writing to a server that does not read.
    while os.getppid() == parent:
        time.sleep(LOOK_EVERY_SECONDS)
    end_group()


def end_group() -> NoReturn:
    # Everything in this process group, ourselves included.
    os.killpg(0, signal.SIGTERM)
    time.sleep(0.1)
    os.killpg(0, signal.SIGKILL)
    raise SystemExit(1)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]), sys.argv[2:])
    except OSError as error:
        sys.exit(f"{sys.argv[2]}: {error.strerror}")
