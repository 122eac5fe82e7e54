"""Whether a model is asked again, after how long, and whether another one may be asked in its place (decision 11).

The same holds for every call. None is repeated after its first token: a second answer would contradict what was read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

from mnesis_core.config import TurnConfig
from mnesis_core.errors import ContextWindowExceeded, ModelError
from mnesis_core.llm.interface import Outcome, Reply

# The largest part of our own pause that chance adds, so that calls that failed together do not come back together.
LARGEST_SPREAD = 0.5
_DIGITS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{1,9})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Patience:
    max_retries: int
    base_seconds: float  # The first pause; each later one is twice as long.
    longest_seconds: float  # A provider that asks for a longer pause is not asked again.


def patience_of(config: TurnConfig) -> Patience:
    return Patience(
        max_retries=config.max_retries,
        base_seconds=config.retry_base_seconds,
        longest_seconds=config.retry_longest_seconds,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Retry:
    attempt: int  # the number of the attempt that failed, from 1
    error: ModelError
    pause_seconds: float


def seconds_asked_for(retry_after: str, now: datetime) -> float:
    """Return what a ``Retry-After`` header asks for: seconds or an HTTP date (RFC 9110 10.2.3); 0 if neither, or past."""
    text = retry_after.strip()
    if _DIGITS.fullmatch(text):
        return float(text)
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError, OverflowError):
        return 0.0
    aware = date if date.tzinfo else date.replace(tzinfo=UTC)
    return max(0.0, (aware - now).total_seconds())


def pause_before_retry(
    reply: Reply, patience: Patience, *, attempts: int, seconds_left: float, now: datetime, chance: float = 0.0
) -> float | None:
    """Return how many seconds to wait before a model is asked again, or ``None`` when it is not asked again.

    :param attempts: how often the model was asked so far
    :param seconds_left: until the deadline of the whole call: a pause that leaves no time to ask is not begun
    :param chance: a random number, at least 0 and below 1
    """
    error = reply.error
    if error is None or not error.retriable or not gave_nothing(reply) or attempts > patience.max_retries:
        return None
    own = patience.base_seconds * 2 ** (attempts - 1)
    asked = seconds_asked_for(str(error.details.get("retry_after", "")), now)
    if max(own, asked) > patience.longest_seconds:
        return None
    pause = max(own, asked) + own * LARGEST_SPREAD * chance
    return pause if pause < seconds_left else None


def gave_nothing(reply: Reply) -> bool:
    """Return whether a call failed before its first token, so that nothing of it was read."""
    return reply.outcome is Outcome.FAILED and not (reply.text or reply.reasoning or reply.refusal)


def is_too_long(reply: Reply) -> bool:
    """Return whether the provider refused the prompt as too long, so that a shorter one may help."""
    return isinstance(reply.error, ContextWindowExceeded) and gave_nothing(reply)


def may_ask_another(reply: Reply) -> bool:
    """Return whether another model may be asked in place of one that gave nothing, for whatever reason.

    A model whose server accepts the request and then sends nothing, or a web page, is not asked again, but gave nothing
    either.
    """
    is_empty = reply.error is not None and reply.error.details.get("reason") == "no_answer"
    return gave_nothing(reply) or (is_empty and not reply.text and not reply.reasoning)


def fallbacks_of(alias: str, *, of_session: Sequence[str], of_entry: Sequence[str]) -> tuple[str, ...]:
    """Return the models that are asked in place of one, in order: the session's choice, else what its entry names.

    Each is asked once, and a fallback's own fallbacks are not followed.
    """
    return tuple(dict.fromkeys(name for name in of_session or of_entry if name != alias))
