"""Explore a file in a process of its own: bounded in time, memory and output, without a network, and killed if it hangs.

A parser of untrusted bytes may do more than raise: run for ever, take all memory, or crash. Each is reported as a result,
and the file stays as it is. The child's limits are set in ``child``.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from mnesis_core.files.detection import Exploration
from mnesis_core.files.pictures import PictureRule, Rendition

CHILD = "mnesis_core.files.child"
RENDITION_BYTES = 16_777_216  # the most of a rendition's answer, which is JSON with Base64
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


def render_alone(path: Path, rule: PictureRule, *, limits: ExplorationLimits) -> Rendition | str:
    """Return a picture as it is sent under a rule, made in another process, or why there is none."""
    limits = replace(limits, output_bytes=RENDITION_BYTES)
    answer = _ask(CHILD, {"path": str(path.absolute()), "rule": rule.name, **asdict(limits)}, limits)
    if isinstance(answer, str):
        return answer
    try:
        return Rendition(**answer["rendition"] | {"data": base64.b64decode(answer["rendition"]["data"])})
    except (KeyError, TypeError, ValueError):
        return str(answer.get("problem", "its parser broke off without an answer"))


def _run(child: str, path: Path, name: str, limits: ExplorationLimits, *, problem: str = "") -> Explored | str:
    """Return what the child found, or why it found nothing. After a ``problem`` it only describes text or bytes."""
    asked = {"path": str(path.absolute()), "name": name, "problem": problem, **asdict(limits)}
    found = _ask(child, asked, limits)
    if isinstance(found, str):
        return found
    try:
        exploration = Exploration(**found["exploration"])
        return Explored(exploration=exploration, seconds=found["seconds"], peak_bytes=found["peak_bytes"])
    except (KeyError, TypeError):
        return "its parser broke off without an answer"


def _ask(child: str, asked: dict[str, Any], limits: ExplorationLimits) -> dict[str, Any] | str:
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
            answer = json.loads(output.read(limits.output_bytes))
        except ValueError:
            answer = None
        return answer if isinstance(answer, dict) else "its parser broke off without an answer"
