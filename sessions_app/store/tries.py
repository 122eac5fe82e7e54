"""Tries of passwords, counted for all web processes together: no part of the record."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import datetime, timedelta

from django.db import transaction
from django.db.models import F, QuerySet
from django.utils import timezone
from django.utils.crypto import salted_hmac

from mnesis_core.rate_limits import Bucket, decide
from sessions_app.models import TryBucket

MOST_TRIMMED = 100
"""Rows at a time: many more than one try adds."""
MOST_RACES = 10
"""Lost to others that try the same at the same moment; after that a second is waited."""


class _OvertakenError(Exception):
    """Another process counted a try of its own in between."""


def seconds_to_wait(buckets: Sequence[Bucket]) -> int:
    """Until a try may be made that draws on these; 0: now. Nothing is written."""
    return decide(buckets, _kept(buckets), timezone.now()).wait_seconds


def count_try(buckets: Sequence[Bucket]) -> int:
    """Count a try, if it is allowed; else nothing is written and the seconds are returned that are to be waited."""
    for _ in range(MOST_RACES):
        now, kept = timezone.now(), _kept(buckets)
        decision = decide(buckets, kept, now)
        if decision.wait_seconds:
            return decision.wait_seconds
        with suppress(_OvertakenError):
            _write(kept, decision.empty_at)
            _trim(now)
            return 0
    return 1


def take_back_try(buckets: Sequence[Bucket]) -> None:
    """What was counted for nothing: the password was right, so the owner's own buckets are empty again."""
    _rows(bucket.name for bucket in buckets if bucket.is_own).delete()
    for bucket in buckets:
        _rows([bucket.name]).update(empty_at=F("empty_at") - timedelta(seconds=bucket.seconds))


def _kept(buckets: Sequence[Bucket]) -> dict[tuple[str, ...], datetime]:
    names = {_key(bucket.name): bucket.name for bucket in buckets}
    return {names[row.key]: row.empty_at for row in TryBucket.objects.filter(key__in=names)}


def _write(kept: Mapping[tuple[str, ...], datetime], empty_at: Mapping[tuple[str, ...], datetime]) -> None:
    """Write what was decided, as long as it was decided by what is there still.

    :raises _OvertakenError: it was not.
    """
    with transaction.atomic():
        for name in sorted(empty_at, key=_key):  # everybody in one order, so that nobody waits in a circle
            values = {"empty_at": empty_at[name]}
            if name in kept:
                is_written = bool(_rows([name]).filter(empty_at=kept[name]).update(**values))
            else:
                _, is_written = TryBucket.objects.get_or_create(key=_key(name), defaults=values)
            if not is_written:
                raise _OvertakenError


def _trim(now: datetime) -> None:
    """Delete rows that mean nothing any more, unless somebody is about to fill them again."""
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
