"""Filters whose choices are known beforehand, so that no list reads a whole table to offer them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from django.contrib import admin
from django.db.models import Exists, F, OuterRef, QuerySet
from django.http import HttpRequest

from mnesis_core.record import TurnState
from sessions_app.models import Turn


def fixed_filter(column: str, title: str, values: Iterable[str]) -> type[admin.SimpleListFilter]:
    """A filter on one column with these values."""
    choices = [(value, value) for value in values]

    class FixedFilter(admin.SimpleListFilter):
        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return choices

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            return queryset if self.value() is None else queryset.filter(**{column: self.value()})

    FixedFilter.title = title
    FixedFilter.parameter_name = column
    return FixedFilter


def presence_filter(column: str, title: str) -> type[admin.SimpleListFilter]:
    """A filter on whether something is written in a column: ``yes`` or ``no``."""

    class PresenceFilter(admin.SimpleListFilter):
        def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
            return [("yes", "Yes"), ("no", "No")]

        def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
            if self.value() not in ("yes", "no"):
                return queryset
            return queryset.filter(**{f"{column}__isnull": self.value() == "no"})

    PresenceFilter.title = title
    PresenceFilter.parameter_name = title.replace(" ", "_")
    return PresenceFilter


class LastTurnFilter(admin.SimpleListFilter):
    """Sessions by how their newest turn stands."""

    title = "state of the last turn"
    parameter_name = "state"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Every state of a turn."""
        return [(state.value, state.value) for state in TurnState]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Sessions whose turn with the highest ``seq`` is in this state."""
        if self.value() is None:
            return queryset
        newest = Turn.objects.filter(session=OuterRef("pk"), seq=OuterRef("turn_seq"), state=self.value())
        return queryset.filter(Exists(newest))


def newest_turn_states(session_ids: list[str]) -> dict[str, str]:
    """How the newest turn of each of these sessions stands."""
    newest = Turn.objects.filter(session__in=session_ids, seq=F("session__turn_seq"))
    return dict(newest.values_list("session_id", "state"))
