"""The list of slow tests, which ``make test`` leaves out: ``python -m tests.support.slow_tests LOG`` writes it anew.

LOG is the output of ``make test-all ARGS="--durations=0"``.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from pathlib import Path

FILE = Path(__file__).resolve().parents[1] / "data" / "slow_tests.txt"
SECONDS = 2.5
"""A test function with more than this, all its parameters together, is slow. Four processes share two cores meanwhile."""
_LINE = re.compile(r"^(\d+\.\d+)s (?:call|setup|teardown) +(\S+?::[^\s\[]+)", re.MULTILINE)


def listed() -> frozenset[str]:
    """Return the slow test functions, as pytest names them without their parameters."""
    return frozenset(FILE.read_text().split()) if FILE.exists() else frozenset()


def slow_tests(log: str) -> list[str]:
    """Return the test functions that took longer than ``SECONDS`` in any of the runs that a log is of."""
    slowest: Counter[str] = Counter()
    for run in log.split("slowest durations")[1:]:
        seconds: Counter[str] = Counter()
        for duration, name in _LINE.findall(run):
            seconds[name] += float(duration)  # type: ignore[assignment]
        slowest |= seconds
    return sorted(name for name, duration in slowest.items() if duration > SECONDS)


if __name__ == "__main__":
    FILE.write_text("".join(f"{name}\n" for name in slow_tests(Path(sys.argv[1]).read_text())))
