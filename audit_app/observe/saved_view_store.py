"""The saved views of *Observe*, each read as the member of staff whose they are, and their only writer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.contrib.auth.models import User
from django.db import transaction
from django.db.models import QuerySet
from django.utils import timezone
from django.utils.translation import gettext_noop

from audit_app.models import SavedView
from mnesis_core.errors import InvalidRequest, SavedViewNameTaken, SavedViewNotFoundError
from mnesis_core.records import new_id, record_of
from mnesis_core.search.observation import parse_observation
from mnesis_core.text import checked_name

MOST_VIEWS = 100  # of one person
NAMELESS = gettext_noop("Give the view a name.")


def save_view(
    *, owner_id: int, name: str, query: str, columns: Sequence[str], may_replace: bool = False
) -> SavedViewRecord:
    """Save a query and columns under a name.

    :param may_replace: the view of this person that has the name, if there is one, gets the query and the columns
    :raises InvalidRequest: the name is empty or too long, the query cannot be understood, or there are too many views.
    :raises SavedViewNameTaken: another view of this person has the name, and may not be replaced.
    """
    name, now = checked_name(name, missing=NAMELESS), timezone.now()
    parse_observation(query, now=now)
    values = {"query": query, "columns": list(columns), "updated_at": now}
    with _views_of(owner_id) as views:
        if replaced := views.filter(name=name).first():
            if not may_replace:
                raise SavedViewNameTaken(name=name)
            views.filter(pk=replaced.pk).update(**values)
            return load_view(replaced.pk, owner_id=owner_id)
        if views.count() >= MOST_VIEWS:
            raise InvalidRequest(
                gettext_noop("A person may save %(most)s views. Delete one first."), {"most": MOST_VIEWS}
            )
        view = SavedView(id=new_id("view"), owner_id=owner_id, name=name, created_at=now, **values)
        view.save(force_insert=True)
    return load_view(view.pk, owner_id=owner_id)


def rename_view(view_id: str, *, owner_id: int, name: str) -> SavedViewRecord:
    """:raises SavedViewNotFoundError: this person has no such view.
    :raises InvalidRequest: the name is empty or too long.
    :raises SavedViewNameTaken: another view of this person has the name.
    """
    load_view(view_id, owner_id=owner_id)
    name = checked_name(name, missing=NAMELESS)
    with _views_of(owner_id) as views:
        if views.filter(name=name).exclude(pk=view_id).exists():
            raise SavedViewNameTaken(name=name)
        views.filter(pk=view_id).update(name=name, updated_at=timezone.now())
    return load_view(view_id, owner_id=owner_id)


def delete_view(view_id: str, *, owner_id: int) -> None:
    """:raises SavedViewNotFoundError: this person has no such view."""
    load_view(view_id, owner_id=owner_id)
    SavedView.objects.filter(pk=view_id, owner_id=owner_id).delete()


@contextmanager
def _views_of(owner_id: int) -> Iterator[QuerySet[SavedView, Any]]:
    """Yield the views of a person in a transaction, which others that change them wait for."""
    with transaction.atomic():
        User.objects.select_for_update(no_key=True).get(pk=owner_id)
        yield SavedView.objects.filter(owner_id=owner_id)


# Reads of the saved views of *Observe*, each as the member of staff whose they are.


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
