"""The pace of a run: calls in flight, pauses before retries, throughput and the time left.

The calls that a worker may have in flight are chosen so that limits hold across all workers and none of them starves. Each
limit (a run's, a model's, a provider's, a person's) is shared by max-min fairness: a worker that wants less than its share
gets it, and the others share the rest evenly. No worker takes what another one still holds: a worker that holds more than
its share gives it back when it renews, and only then does another one get it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta

from mnesis_core.errors import ModelError, ModelRateLimited, ModelTimeout
from mnesis_core.llm.retrying import LARGEST_SPREAD, Patience, seconds_asked_for
from mnesis_core.maps.values import Counts, ErrorKind

QUIET_SECONDS = 10.0  # A model's reduced limit doubles after this long without a rate-limit answer.
# Attempts lost to dying processes before an item is given up: far more than accidents explain. Such an attempt says
# nothing about the item; still, an item over which every process dies must come to an end.
MOST_EXCUSED = 100
RATE_LIMIT_SECONDS = 1.0  # The pause after the first rate-limit answer that names none.
# The model has answered and is to answer differently: waiting does not help.
_AT_ONCE = frozenset({ErrorKind.VALIDATION, ErrorKind.SCHEMA_ERROR})
FEWEST_ENDINGS = 3  # With fewer, the time left is unknown.
BAR, WINDOW_SECONDS = 24, 30.0  # The characters of a progress bar, and the window over which throughput is measured.


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    held: int
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Brake:
    """The pause and the reduced limit of a model that answered "too many requests"."""

    until: datetime  # No call is made before.
    ceiling: int  # The number of calls in flight at which the limit now stands.
    since: datetime


def permits(wanted: int, limits: Iterable[tuple[int, Sequence[Claim]]]) -> int:
    granted = [wanted]
    for limit, others in limits:
        free = limit - sum(other.held for other in others)
        share = fair_share(limit, [wanted, *(other.wanted for other in others)])
        owed = sum(max(0, min(other.wanted, share) - other.held) for other in others)
        granted.append(max(0, min(wanted, free, max(share, free - owed))))
    return min(granted)


def fair_share(limit: int, wants: Iterable[int]) -> int:
    """Return the share of those that want more than a fair share of a limit; at least 1."""
    left, largest_first = limit, sorted(wants, reverse=True)
    while largest_first and largest_first[-1] <= left // len(largest_first):
        left -= largest_first.pop()
    return max(1, left // len(largest_first)) if largest_first else limit


def braked(brake: Brake | None, *, in_flight: int, seconds: float, began: datetime, now: datetime) -> Brake:
    """Return the brake after a rate-limit answer to a call.

    Only the first refused of the calls in flight halves the limit; the others are answers to the same overload.

    :param in_flight: all calls to the model at the time
    :param began: when the refused call was made
    """
    until = now + timedelta(seconds=seconds)
    if brake is None:
        return Brake(until=until, ceiling=max(1, in_flight // 2), since=now)
    until = max(until, brake.until)
    if began <= brake.since:
        return replace(brake, until=until)
    return Brake(until=until, ceiling=max(1, min(in_flight, ceiling_now(brake, now)) // 2), since=now)


def ceiling_now(brake: Brake, now: datetime) -> int:
    """Return how many calls a braked model may have: twice as many after each quiet period."""
    quiet = max(0.0, (now - max(brake.since, brake.until)).total_seconds())
    doublings = min(int(quiet / QUIET_SECONDS), 30)
    return brake.ceiling << doublings


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    kind: ErrorKind
    message: str  # For people, and for the model if it is asked to correct its answer.
    may_pass: bool = True  # Whether the same request may succeed later.
    retry_after: str = ""  # The provider's ``Retry-After`` header.


def failure_of_call(error: ModelError) -> Failure:
    kind = ErrorKind.TIMEOUT if isinstance(error, ModelTimeout) else ErrorKind.LLM_ERROR
    after = str(error.details.get("retry_after", ""))
    return Failure(kind=kind, message=error.message, may_pass=error.retriable, retry_after=after)


def pause_before_attempt(
    failure: Failure, patience: Patience, *, failures: int, now: datetime, chance: float = 0.0
) -> float | None:
    """Return the seconds before an item's next attempt; None if the item has failed.

    :param failures: the item's failed attempts so far, including this one
    :param chance: a random number, at least 0 and below 1
    """
    if failure.kind is ErrorKind.BUDGET or not failure.may_pass or failures > patience.max_retries:
        return None
    if failure.kind in _AT_ONCE:
        return 0.0
    own = min(patience.base_seconds * (1 << min(failures - 1, 30)), patience.longest_seconds)
    asked = min(seconds_asked_for(failure.retry_after, now), patience.longest_seconds)
    return max(own, asked) + own * LARGEST_SPREAD * chance


def is_deadly(excused: int) -> bool:
    return excused > MOST_EXCUSED


def pause_of_model(error: ModelRateLimited, *, in_a_row: int, longest_seconds: float, now: datetime) -> float:
    """Return the seconds for which a model that said "too many requests" is not called.

    :param in_a_row: the number of such answers to this call, including this one
    """
    own = RATE_LIMIT_SECONDS * (1 << min(in_a_row - 1, 10))
    asked = seconds_asked_for(str(error.details.get("retry_after", "")), now)
    return min(max(own, asked), longest_seconds)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    at: datetime
    is_failed: bool = False
    tokens: int = 0
    cost_micros: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """A part of a run's time: what ended in it, and the sums spent by its end."""

    begins: float  # Seconds after the run began.
    ends: float
    completed: float
    failed: float
    tokens: float
    cost_micros: float


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSpan:
    began: datetime
    until: datetime
    ended: int
    tokens: int = 0
    cost_micros: int = 0

    @property
    def seconds(self) -> float:
        return max(0.001, (self.until - self.began).total_seconds())


def spread(count: int, *, most: int) -> list[int]:
    """Return at most ``most`` numbers from 1 to ``count``, evenly spread."""
    if count <= most:
        return list(range(1, count + 1))
    return [(2 * index + 1) * count // (2 * most) + 1 for index in range(most)]


def intervals_of(endings: Sequence[Ending], span: RunSpan, *, most: int) -> list[Interval]:
    """Return the run's time in equal parts, with the endings of a sample, evenly spread, scaled up to all items.

    Sums are scaled so that the last part ends at the total spent.
    """
    if not endings:
        return []
    count = max(6, min(most, len(endings) // 3))
    groups: list[list[Ending]] = [[] for _ in range(count)]
    for ending in endings:
        share = (ending.at - span.began).total_seconds() / span.seconds
        groups[max(0, min(count - 1, int(share * count)))].append(ending)
    weight = span.ended / len(endings)
    sampled_tokens = sum(ending.tokens for ending in endings)
    sampled_cost = sum(ending.cost_micros for ending in endings)
    intervals, tokens, cost = [], 0, 0
    for index, group in enumerate(groups):
        failed = sum(ending.is_failed for ending in group)
        tokens += sum(ending.tokens for ending in group)
        cost += sum(ending.cost_micros for ending in group)
        interval = Interval(
            begins=span.seconds * index / count,
            ends=span.seconds * (index + 1) / count,
            completed=weight * (len(group) - failed),
            failed=weight * failed,
            tokens=span.tokens * tokens / sampled_tokens if sampled_tokens else 0.0,
            cost_micros=span.cost_micros * cost / sampled_cost if sampled_cost else 0.0,
        )
        intervals.append(interval)
    return intervals


def seconds_left(endings: Sequence[Ending], span: RunSpan, *, open_items: int) -> float | None:
    """Return the seconds that the open items will take at the rate of the newest tenth; None if it is too early to say."""
    if len(endings) < FEWEST_ENDINGS:
        return None
    times = sorted(ending.at for ending in endings)
    newest = max(FEWEST_ENDINGS, len(times) // 10)
    since = times[-newest - 1] if len(times) > newest else span.began
    seconds = max(0.001, (span.until - since).total_seconds())
    return open_items * seconds / (newest * max(1.0, span.ended / len(times)))


@dataclass(slots=True)
class Throughput:
    _seen: deque[tuple[float, int]] = field(default_factory=deque)

    def see(self, ended: int, *, now: float) -> None:
        """Note how many items have ended at a time, in seconds of a monotonic clock."""
        self._seen.append((now, ended))
        while len(self._seen) > 2 and now - self._seen[0][0] > WINDOW_SECONDS:
            self._seen.popleft()

    @property
    def per_second(self) -> float:
        if len(self._seen) < 2:
            return 0.0  # It is not known yet.
        (began, before), (now, ended) = self._seen[0], self._seen[-1]
        return max(0.0, (ended - before) / (now - began)) if now > began else 0.0


def progress_line(counts: Counts, *, state: str, per_second: float) -> str:
    if counts.items is None:
        return f"{state}: the input is being read"
    share = counts.ended / counts.items if counts.items else 1.0
    bar = "#" * int(BAR * share)
    said = [f"[{bar:-<{BAR}}] {share:4.0%}", f"{counts.ended:,}/{counts.items:,}", state]
    if counts.failed:
        said.append(f"{counts.failed:,} failed")
    if per_second and counts.left:
        seconds = counts.left / per_second
        left = f"{seconds / 60:.0f} min" if seconds < 3_600 else f"{seconds / 3_600:.1f} h"
        said += [f"{per_second:,.1f}/s", f"{f'{seconds:.0f} s' if seconds < 60 else left} left"]
    return "  ".join(said)
