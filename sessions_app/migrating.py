"""What ``migrate`` may not do to the record, decided before anything is changed."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from django.core.management.base import CommandError
from django.db.migrations import Migration

from sessions_app.guards import guarded_models

WAY_OUT = (
    "The record is never taken back. To return to an earlier version, restore a backup made with it; "
    "to get rid of the record, drop the database with the database's own tools."
)


def record_apps() -> frozenset[str]:
    """The apps that hold tables of the record, and those that hold what its rows refer to: accounts."""
    models = guarded_models()
    referred = (field.related_model for model in models for field in model._meta.concrete_fields if field.is_relation)
    return frozenset(model._meta.app_label for model in [*models, *referred] if not isinstance(model, str | None))


def unapplied(plan: Iterable[tuple[Migration, bool]], apps: Collection[str]) -> list[str]:
    """The migrations of some apps that a plan would undo; each step of a plan is (migration, backwards)."""
    steps = [migration for migration, backwards in plan if backwards]
    return [f"{migration.app_label}.{migration.name}" for migration in steps if migration.app_label in apps]


def refuse_to_unapply(*, plan: Iterable[tuple[Migration, bool]] = (), **_: Any) -> None:
    """Before migrations.

    :raises CommandError: the plan goes backwards over a table of the record, be it faked.
    """
    if names := unapplied(plan, record_apps()):
        more = f" and {len(names) - 1} more migrations" if len(names) > 1 else ""
        raise CommandError(f"This would undo {names[0]}{more}, which the record is kept by. {WAY_OUT}")
