"""Explore a file in a process of its own: bounded in time, memory and output, without a network, and killed if it hangs.

A parser of other people's bytes may do more than raise: run for ever, take all memory, or crash. That is a result like
any other, which says so; the file itself stays as it is. What holds the child is in ``child``.
"""

from __future__ import annotations

import json
import math
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from mnesis_core.files.explore import Exploration

CHILD = "mnesis_core.files.child"
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorationLimits:
    """What one exploration may take."""

    seconds: float = 60.0
    processor_seconds: int = 40
    memory_bytes: int = 1_073_741_824
    """Of address space. Every kind reads its largest file in it; all but the largest Word documents in half of it."""
    output_bytes: int = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    """An exploration, and what it took."""

    exploration: Exploration
    seconds: float = 0.0
    peak_bytes: int = 0


def explore_alone(path: Path, name: str, *, limits: ExplorationLimits | None = None, child: str = CHILD) -> Explored:
    """Explore a file in another process. Always comes to a result, after at most twice ``limits.seconds``.

    :param name: what the file's owner calls it
    :param child: the module that runs; a test's own may hold a parser that misbehaves
    """
    limits = limits or ExplorationLimits()
    found = _run(child, path, name, limits)
    if isinstance(found, str):
        problem = found
        found = _run(child, path, name, limits, problem=problem)
    if isinstance(found, str):
        nothing = Exploration(kind="unknown", explorer="none-1", summary="", covered="nothing", problem=problem)
        return Explored(exploration=nothing)
    return found


def _run(child: str, path: Path, name: str, limits: ExplorationLimits, *, problem: str = "") -> Explored | str:
    """What the child found, or why it found nothing.

    :param problem: why it failed before; then the file is only described as text or bytes
    """
    asked = {
        "path": str(path.absolute()),
        "name": name,
        "problem": problem,
        "seconds": math.ceil(limits.seconds),
        "processor_seconds": limits.processor_seconds,
        "memory_bytes": limits.memory_bytes,
        "output_bytes": limits.output_bytes,
    }
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            # It writes no compiled modules: the limit of its files would cut them off, and break them for everybody.
            [sys.executable, "-B", "-m", child],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.DEVNULL,
            cwd=_ROOT,
            env=_environment(),
            start_new_session=True,
        )
        try:
            process.communicate(json.dumps(asked).encode(), timeout=limits.seconds)
        except subprocess.TimeoutExpired:
            return f"it took longer than {limits.seconds:g} seconds"
        finally:
            _end(process)
        output.seek(0)
        return _read(output.read(limits.output_bytes), process.returncode, limits)


def _environment() -> dict[str, str]:
    """Nothing of ours: no keys of models, no addresses of databases."""
    kept = ("PATH", "LANG", "SYSTEMROOT")
    return {name: os.environ[name] for name in kept if name in os.environ} | {"OMP_NUM_THREADS": "1"}


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill the child with everything that it started, and wait for its end."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _read(output: bytes, status: int, limits: ExplorationLimits) -> Explored | str:
    if status == -signal.SIGXCPU:
        return f"it took more than {limits.processor_seconds} seconds of the processor"
    if status == -signal.SIGKILL:
        return "its parser was killed, perhaps for the memory that it took"
    if status < 0:
        return f"its parser crashed ({signal.strsignal(-status)})"
    if status:
        return "its parser broke off"
    try:
        found = json.loads(output)
        exploration = Exploration(**found["exploration"])
        return Explored(exploration=exploration, seconds=found["seconds"], peak_bytes=found["peak_bytes"])
    except (ValueError, KeyError, TypeError):
        return "its parser broke off without an answer"
