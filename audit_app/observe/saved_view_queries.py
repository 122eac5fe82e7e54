"""Reads of the saved views of *Observe*, each as the member of staff whose they are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from audit_app.models import SavedView
from mnesis_core.errors import SavedViewNotFoundError
from mnesis_core.records import record_of


@dataclass(frozen=True, slots=True, kw_only=True)
class SavedViewRecord:
    id: str
    name: str
    query: str
    columns: Sequence[str]  # none for the usual ones


def list_views(*, owner_id: int) -> list[SavedViewRecord]:
    """Return all saved views of a person by their names."""
    views = [record_of(SavedViewRecord, row) for row in SavedView.objects.filter(owner_id=owner_id)]
    return sorted(views, key=lambda view: (view.name.casefold(), view.name))


def load_view(view_id: str, *, owner_id: int) -> SavedViewRecord:
    """:raises SavedViewNotFoundError: this person has no such view."""
    row = SavedView.objects.filter(pk=view_id, owner_id=owner_id).first()
    if row is None:
        raise SavedViewNotFoundError(view_id=view_id)
    return record_of(SavedViewRecord, row)
