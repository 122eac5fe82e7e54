"""How large a context is: by the provider's own count of its last prompt where there is one, else by our estimate."""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from mnesis_core.calibration import LARGEST_RATIO, SMALLEST_RATIO, Calibration, CountSource


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Of a whole context, system prompt and tools included."""

    tokens: int
    source: CountSource
    """``provider``: its count of the last prompt, and our estimate of what came since."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A context as a model was last asked about it. In tokens, estimated and not corrected."""

    whole: int
    """Everything that stood in the context."""
    sent: int
    """What of it went into the prompt."""
    reported: int = 0
    """What the provider counted in the prompt; 0: it has not said."""


def size_now(whole: int, calibration: Calibration, last: Asked | None) -> Size:
    """The size of a context of ``whole`` tokens, estimated and not corrected.

    The provider's count stands for what was sent, within the bounds in which it is believed; what was left out then,
    and what came since, is our estimate. Of a context that has lost something since, that count says nothing.
    """
    if last is None or last.reported <= 0 or whole < last.whole:
        return Size(tokens=ceil(whole * calibration.ratio), source=calibration.source)
    counted = min(max(last.reported, int(last.sent * SMALLEST_RATIO)), int(last.sent * LARGEST_RATIO))
    return Size(tokens=counted + ceil((whole - last.sent) * calibration.ratio), source=CountSource.PROVIDER)
