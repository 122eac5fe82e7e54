"""Whether one more question to a summarising model may be asked: compaction's own limits, beside those of all spending."""

from __future__ import annotations

from collections.abc import Sequence

from mnesis_core.config import CompactionConfig
from mnesis_core.spending import Allowance, Spent, TurnLimits, passed_by, tightest

SESSION, DAY, RUN = "spend_limit_session", "spend_limit_day", "run_timeout"
"""The scopes of compaction's own limits, and the reasons that a refused try gives for them."""


def own_allowances(
    site: CompactionConfig, session: CompactionConfig, *, session_micros: int, day_micros: int, seconds: float
) -> list[Allowance]:
    """What compaction alone may take; a session's configuration may tighten the site's, never loosen it.

    :param session_micros: what the session's summaries have cost since it began
    :param day_micros: what those of all sessions of its owner have since midnight UTC
    :param seconds: what this run has taken
    """
    allowed = tightest(_limits_of_session(site), _limits_of_session(session))
    allowed_today = tightest(_limits_of_day(site), _limits_of_day(session))
    time = TurnLimits(seconds=min(site.run_timeout_seconds, session.run_timeout_seconds))
    return [
        Allowance(scope=SESSION, limits=allowed, spent=Spent(cost_micros=session_micros)),
        Allowance(scope=DAY, limits=allowed_today, spent=Spent(cost_micros=day_micros)),
        Allowance(scope=RUN, limits=time, spent=Spent(seconds=seconds)),
    ]


def _limits_of_session(config: CompactionConfig) -> TurnLimits:
    return TurnLimits(cost_micros=config.spend_limit_session_micros or None)


def _limits_of_day(config: CompactionConfig) -> TurnLimits:
    return TurnLimits(cost_micros=config.spend_limit_day_micros or None)


def refusal(allowances: Sequence[Allowance], highest: Spent) -> str | None:
    """Why a question that may take ``highest`` may not be asked, or ``None`` when it may.

    ``spend_limit_session``, ``spend_limit_day`` or ``run_timeout``. Where all spending is at a limit, and not that of
    compaction alone, a refused try says ``budget_turn``, ``budget_session``, ``budget_user`` or ``budget_day``.
    """
    line = passed_by(highest, allowances)
    return None if line is None else line.scope
