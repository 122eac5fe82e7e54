"""How far a run is, as one line of a terminal."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from mnesis_core.operators.values import Counts

BAR = 24
"""Characters."""
WINDOW_SECONDS = 30.0
"""The pace is that of so long."""
_MINUTE, _HOUR = 60, 3_600


@dataclass(slots=True)
class Pace:
    """How fast items end, as far as it was seen."""

    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def see(self, ended: int, *, now: float) -> None:
        """Note how many items have ended at a moment, in seconds of any clock that never goes back."""
        self._seen.append((now, ended))
        while len(self._seen) > 2 and now - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()

    @property
    def per_second(self) -> float:
        """Items; 0 while nobody can say."""
        if len(self._seen) < 2:
            return 0.0
        (began, before), (now, ended) = self._seen[0], self._seen[-1]
        return max(0.0, (ended - before) / (now - began)) if now > began else 0.0


def progress_line(counts: Counts, *, state: str, per_second: float) -> str:
    """Bar, share, counts, pace and what is left to wait."""
    if counts.items is None:
        return f"{state}: the input is being read"
    share = counts.ended / counts.items if counts.items else 1.0
    bar = "#" * int(BAR * share)
    said = [f"[{bar:-<{BAR}}] {share:4.0%}", f"{counts.ended:,}/{counts.items:,}", state]
    if counts.failed:
        said.append(f"{counts.failed:,} failed")
    if per_second and counts.left:
        said += [f"{per_second:,.1f}/s", f"{_duration(counts.left / per_second)} left"]
    return "  ".join(said)


def _duration(seconds: float) -> str:
    if seconds < _MINUTE:
        return f"{seconds:.0f} s"
    return f"{seconds / _MINUTE:.0f} min" if seconds < _HOUR else f"{seconds / _HOUR:.1f} h"
