"""Changes to spending limits, kept sums and warnings, and sign-in attempts. None of them belongs to the record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta
from typing import Any

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone
from django.utils.crypto import salted_hmac

from mnesis_core.config import Config, override
from mnesis_core.errors import InvalidRequest
from mnesis_core.network.rate_limits import Bucket, decide
from mnesis_core.spending import Scope, Spent
from sessions_app.models import AccountLimit, SpendingMark, TryBucket


def put_account_limits(owner_id: int, limits: dict[str, Any]) -> None:
    """Set a person's limits, as in a configuration; empty limits leave what the site allows.

    :raises InvalidRequest: a limit is unknown or out of its bounds.
    """
    check_account_limits(limits)
    if limits:
        AccountLimit.objects.update_or_create(owner_id=owner_id, defaults={"limits": limits})
    else:
        AccountLimit.objects.filter(owner_id=owner_id).delete()


def check_account_limits(limits: Any) -> None:
    """:raises InvalidRequest: a limit is unknown, out of its bounds, or not one for a person."""
    override(Config(), {"limits": limits})
    if other := limits.keys() - set(Scope):
        raise InvalidRequest(f"{min(other)} is no limit of a person's; there are {', '.join(Scope)}", field="limits")


def lock_spending(owner_id: int) -> None:
    """Hold the lock on a person's limits until the transaction ends."""
    id = f"account:{owner_id}"
    row = SpendingMark.objects.select_for_update().filter(id=id)
    if not list(row):
        SpendingMark.objects.bulk_create([SpendingMark(id=id)], ignore_conflicts=True)
        list(row.all())


def keep_sum(mark_id: str, spent: Spent, *, until: datetime) -> None:
    values = {
        "until": until,
        "tokens": spent.tokens,
        "cost_micros": spent.cost_micros,
        "milliseconds": round(spent.seconds * 1000),
        "tool_calls": spent.tool_calls,
        "unpriced_calls": spent.unpriced_calls,
    }
    SpendingMark.objects.update_or_create(id=mark_id, defaults=values)


def keep_warnings(mark_id: str, warned: Mapping[str, float]) -> None:
    """Keep the limits that were warned of, by measure."""
    SpendingMark.objects.update_or_create(id=mark_id, defaults={"warned": dict(warned)})


# Attempts to sign in, counted for all web processes together.

# Rows deleted at a time: many more than one attempt adds.
MOST_TRIMMED = 100
# Races lost to attempts on the same buckets before the caller must wait a second.
MOST_RACES = 10


class _OvertakenError(Exception):
    """Another process counted an attempt in between."""


def seconds_to_wait(buckets: Sequence[Bucket]) -> int:
    """Return the seconds until an attempt may draw on these buckets; 0 means now. Nothing is written."""
    return decide(buckets, _kept(buckets), timezone.now()).wait_seconds


def count_try(buckets: Sequence[Bucket]) -> int:
    """Count an attempt and return 0, or return the seconds to wait if it is not allowed."""
    for _ in range(MOST_RACES):
        now, kept = timezone.now(), _kept(buckets)
        decision = decide(buckets, kept, now)
        if decision.wait_seconds:
            return decision.wait_seconds
        with suppress(_OvertakenError):
            _write(kept, decision.empty_at)
            _delete_emptied(now)
            return 0
    return 1


def take_back_try(buckets: Sequence[Bucket]) -> None:
    """Undo an attempt with the right password, and empty the owner's own buckets."""
    _rows(bucket.name for bucket in buckets if bucket.is_own).delete()
    for bucket in buckets:
        _rows([bucket.name]).update(empty_at=F("empty_at") - timedelta(seconds=bucket.seconds))


def _kept(buckets: Sequence[Bucket]) -> dict[tuple[str, ...], datetime]:
    names = {_key(bucket.name): bucket.name for bucket in buckets}
    return {names[row.key]: row.empty_at for row in TryBucket.objects.filter(key__in=names)}


def _write(kept: Mapping[tuple[str, ...], datetime], empty_at: Mapping[tuple[str, ...], datetime]) -> None:
    """Write a decision if the buckets are still those it was based on.

    :raises _OvertakenError: they are not.
    """
    with transaction.atomic():
        for name in sorted(empty_at, key=_key):  # one order for all processes, so that no two deadlock
            values = {"empty_at": empty_at[name]}
            if name in kept:
                is_written = bool(_rows([name]).filter(empty_at=kept[name]).update(**values))
            else:
                _, is_written = TryBucket.objects.get_or_create(key=_key(name), defaults=values)
            if not is_written:
                raise _OvertakenError


def _delete_emptied(now: datetime) -> None:
    past = TryBucket.objects.filter(empty_at__lt=now)
    if not past.exists():
        return
    with transaction.atomic():
        keys = list(past.select_for_update(skip_locked=True).values_list("key", flat=True)[:MOST_TRIMMED])
        past.filter(key__in=keys).delete()


def _rows(names: Iterable[tuple[str, ...]]) -> QuerySet[TryBucket]:
    return TryBucket.objects.filter(key__in=map(_key, names))


def _key(name: tuple[str, ...]) -> str:
    return salted_hmac("mnesis.tries", "\0".join(name), algorithm="sha256").hexdigest()
