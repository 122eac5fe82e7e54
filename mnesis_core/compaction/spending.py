"""Whether one more question to a summarising model may be asked: what it may cost, and how long a run may take."""

from __future__ import annotations

from dataclasses import dataclass

from mnesis_core.config import CompactionConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Spent:
    """What compaction has taken so far. Money in millionths of the currency unit."""

    session_micros: int
    """Of the session, since it began."""
    day_micros: int
    """Of all sessions of its owner, since midnight UTC."""
    seconds: float
    """Of this run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """The most that compaction may take; 0 is no limit, of money."""

    session_micros: int
    day_micros: int
    seconds: float


def limits_of(site: CompactionConfig, session: CompactionConfig) -> Limits:
    """The limits of a session: its own configuration may tighten the site's, never loosen them."""
    return Limits(
        session_micros=_tighter(site.spend_limit_session_micros, session.spend_limit_session_micros),
        day_micros=_tighter(site.spend_limit_day_micros, session.spend_limit_day_micros),
        seconds=min(site.run_timeout_seconds, session.run_timeout_seconds),
    )


def _tighter(*limits: int) -> int:
    return min((limit for limit in limits if limit > 0), default=0)


def refusal(spent: Spent, limits: Limits, most_micros: int) -> str | None:
    """Why a question that may cost ``most_micros`` may not be asked, or ``None`` when it may.

    ``spend_limit_session``, ``spend_limit_day`` or ``run_timeout``. What a question may cost counts before it is
    asked, so that no limit is passed by the last one.
    """
    if 0 < limits.session_micros < spent.session_micros + most_micros:
        return "spend_limit_session"
    if 0 < limits.day_micros < spent.day_micros + most_micros:
        return "spend_limit_day"
    return "run_timeout" if spent.seconds >= limits.seconds else None
