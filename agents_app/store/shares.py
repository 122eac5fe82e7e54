"""What workers may have in flight, and which models are braked: rows that only workers read, no part of the record.

Each renewal is one short transaction under one lock, so that the sums never pass a limit, whoever renews when.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta

from django.db import connection, transaction
from django.utils import timezone

from agents_app.models import OperatorBrake, OperatorShare
from mnesis_core.config import OperatorConfig
from mnesis_core.operators.sharing import Brake, Claim, braked, ceiling_now, permits
from mnesis_core.text import encode_text

LOCK = 0x6D6170
"""Of PostgreSQL's advisory locks: ours alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """What a worker wants of one run."""

    run_id: str
    wanted: int
    in_flight: int
    """What it has: until that has ended nobody else gets it."""
    concurrency: int
    """Of the run, of all workers together."""
    model: str
    provider: str
    owner_id: int


def renew_shares(worker: str, demands: Sequence[Demand], config: OperatorConfig) -> dict[str, int]:
    """How many items of each run a worker may have in flight from now on, until its lease ends; others' runs it gives back."""
    now = timezone.now()
    with _alone():
        OperatorShare.objects.filter(lease_expires_at__lt=now).delete()
        OperatorShare.objects.filter(worker=worker).exclude(run_id__in=[one.run_id for one in demands]).delete()
        shares = list(OperatorShare.objects.all())
        brakes = _brakes({demand.model for demand in demands})
        return {
            demand.run_id: _renew(worker, demand, shares, brakes.get(demand.model), config, now) for demand in demands
        }


def drop_shares(worker: str) -> None:
    """Give back all that a worker has."""
    OperatorShare.objects.filter(worker=worker).delete()


def brake_model(model: str, *, seconds: float, began: datetime) -> datetime:
    """A model refused a call that was made at ``began``: nobody asks it for so long; returns until when."""
    now = timezone.now()
    with _alone():
        live = OperatorShare.objects.filter(model=encode_text(model), lease_expires_at__gt=now)
        in_flight = sum(live.values_list("permits", flat=True))
        brake = braked(_brakes({model}).get(model), in_flight=max(1, in_flight), seconds=seconds, began=began, now=now)
        values = {"until": brake.until, "ceiling": brake.ceiling, "since": brake.since}
        OperatorBrake.objects.update_or_create(model=encode_text(model), defaults=values)
    return brake.until


def _renew(
    worker: str,
    demand: Demand,
    shares: list[OperatorShare],
    brake: Brake | None,
    config: OperatorConfig,
    now: datetime,
) -> int:
    own = next((share for share in shares if (share.worker, share.run_id) == (worker, demand.run_id)), None)
    others = [share for share in shares if share is not own]
    granted = permits(demand.wanted, _limits(demand, others, brake, config, now))
    if own is None:
        own = OperatorShare(worker=worker, run_id=demand.run_id, model=encode_text(demand.model))
        own.provider, own.owner_id = encode_text(demand.provider), demand.owner_id
        shares.append(own)
    own.permits, own.wanted = max(granted, demand.in_flight), demand.wanted
    own.lease_expires_at = now + timedelta(seconds=config.lease_seconds)
    own.save()
    return granted


def _limits(
    demand: Demand, others: Sequence[OperatorShare], brake: Brake | None, config: OperatorConfig, now: datetime
) -> Iterator[tuple[int, list[Claim]]]:
    def claims(is_same: Callable[[OperatorShare], bool]) -> list[Claim]:
        return [Claim(held=share.permits, wanted=share.wanted) for share in others if is_same(share)]

    per_model = config.per_model if brake is None else min(config.per_model, ceiling_now(brake, now))
    model, provider = encode_text(demand.model), encode_text(demand.provider)
    yield demand.concurrency, claims(lambda share: share.run_id == demand.run_id)
    yield per_model, claims(lambda share: share.model == model)
    yield config.per_provider, claims(lambda share: share.provider == provider)
    yield config.per_owner, claims(lambda share: share.owner_id == demand.owner_id)


def _brakes(models: Collection[str]) -> dict[str, Brake]:
    rows = {row.model: row for row in OperatorBrake.objects.filter(model__in=[encode_text(model) for model in models])}
    found = {model: rows.get(encode_text(model)) for model in models}
    return {
        model: Brake(until=row.until or row.since, ceiling=row.ceiling, since=row.since)
        for model, row in found.items()
        if row is not None and row.ceiling is not None
    }


@contextmanager
def _alone() -> Iterator[None]:
    """A transaction that no other one of these runs beside."""
    with transaction.atomic():
        if connection.vendor == "postgresql":
            with connection.cursor() as cursor:
                cursor.execute("SELECT pg_advisory_xact_lock(%s)", [LOCK])
        yield
