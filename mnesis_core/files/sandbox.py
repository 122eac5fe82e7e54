"""Explore a file in a process of its own: bounded in time, memory and output, without a network, and killed if it hangs.

A parser of untrusted bytes may do more than raise: run for ever, take all memory, or crash. Each is reported as a result,
and the file stays as it is. The child's limits are set in ``child``.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path

from mnesis_core.files.detection import Exploration

CHILD = "mnesis_core.files.child"
_ROOT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplorationLimits:
    seconds: float = 60.0
    processor_seconds: int = 40
    # Of address space. Every kind reads its largest file in it; all but the largest Word documents in half of it.
    memory_bytes: int = 1_073_741_824
    output_bytes: int = 65_536


@dataclass(frozen=True, slots=True, kw_only=True)
class Explored:
    exploration: Exploration
    seconds: float = 0.0
    peak_bytes: int = 0


def explore_alone(path: Path, name: str, *, limits: ExplorationLimits | None = None, child: str = CHILD) -> Explored:
    """Explore a file in another process. Always returns a result, after at most twice ``limits.seconds``.

    :param child: the module to run; a test's own may hold a parser that misbehaves
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
    """Return what the child found, or why it found nothing. After a ``problem`` it only describes text or bytes."""
    asked = {"path": str(path.absolute()), "name": name, "problem": problem, **asdict(limits)}
    with tempfile.TemporaryFile() as output:
        kept = ("PATH", "LANG", "SYSTEMROOT")
        process = subprocess.Popen(
            # -B: the limit on file sizes would cut off compiled modules and break them for every process.
            [sys.executable, "-B", "-m", child],
            stdin=subprocess.PIPE,
            stdout=output,
            stderr=subprocess.DEVNULL,
            cwd=_ROOT,
            env={name: os.environ[name] for name in kept if name in os.environ} | {"OMP_NUM_THREADS": "1"},
            start_new_session=True,
        )
        try:
            process.communicate(json.dumps(asked).encode(), timeout=limits.seconds)
        except subprocess.TimeoutExpired:
            return f"it took longer than {limits.seconds:g} seconds"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        output.seek(0)
        if process.returncode == -signal.SIGXCPU:
            return f"it took more than {limits.processor_seconds} seconds of the processor"
        if process.returncode == -signal.SIGKILL:
            return "its parser was killed, perhaps for the memory that it took"
        if process.returncode < 0:
            return f"its parser crashed ({signal.strsignal(-process.returncode)})"
        if process.returncode:
            return "its parser broke off"
        try:
            found = json.loads(output.read(limits.output_bytes))
            exploration = Exploration(**found["exploration"])
            return Explored(exploration=exploration, seconds=found["seconds"], peak_bytes=found["peak_bytes"])
        except (ValueError, KeyError, TypeError):
            return "its parser broke off without an answer"
