"""Changes to limits of people, and to what is kept of sums and warnings: no part of the record."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from mnesis_core.config import Config
from mnesis_core.errors import InvalidRequest
from mnesis_core.overrides import override
from mnesis_core.spending import Scope, Spent
from sessions_app.models import AccountLimit, SpendingMark


def put_account_limits(owner_id: int, limits: dict[str, Any]) -> None:
    """Let one person spend so much, as in a configuration; with nothing, what the site allows.

    :raises InvalidRequest: a limit is unknown or out of its bounds.
    """
    check_account_limits(limits)
    if limits:
        AccountLimit.objects.update_or_create(owner_id=owner_id, defaults={"limits": limits})
    else:
        AccountLimit.objects.filter(owner_id=owner_id).delete()


def check_account_limits(limits: Any) -> None:
    """:raises InvalidRequest: a limit is unknown, out of its bounds, or none of a person's spending."""
    override(Config(), {"limits": limits})
    if other := limits.keys() - set(Scope):
        raise InvalidRequest(f"{min(other)} is no limit of a person's; there are {', '.join(Scope)}", field="limits")


def lock_spending(owner_id: int) -> None:
    """Let nobody else spend of this person's limits before the transaction ends."""
    id = f"account:{owner_id}"
    row = SpendingMark.objects.select_for_update().filter(id=id)
    if not list(row):
        SpendingMark.objects.bulk_create([SpendingMark(id=id)], ignore_conflicts=True)
        list(row.all())


def keep_sum(mark_id: str, spent: Spent, *, until: datetime) -> None:
    """Keep what was spent up to a moment."""
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
    """Keep which limits were warned of, by measure."""
    SpendingMark.objects.update_or_create(id=mark_id, defaults={"warned": dict(warned)})
