"""Accounts and groups in Django's administration: read by staff who may, and changed by administrators alone.

A form there sets every flag and permission, so anyone who has it could give more than they have, even to themselves. Staff have
the pages of people instead.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from django.contrib import admin
from django.contrib.auth.admin import GroupAdmin, UserAdmin
from django.contrib.auth.models import Group, User
from django.db.models import QuerySet
from django.http import HttpRequest

from sessions_app.record.organisation_store import accounts_in, home_of

if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = object


class ChangedByAdministrators(_ModelAdmin):
    def has_add_permission(self, request: HttpRequest) -> bool:
        return super().has_add_permission(request) and _is_administrator(request)

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and _is_administrator(request)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and _is_administrator(request)


class AccountAdmin(ChangedByAdministrators, UserAdmin):  # type: ignore[type-arg]
    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        rows: QuerySet[Any] = super().get_queryset(request)
        if _is_administrator(request) or request.user.pk is None:
            return rows
        return rows.filter(accounts_in(home_of(request.user.pk)))


class AccountGroupAdmin(ChangedByAdministrators, GroupAdmin):
    pass


def _is_administrator(request: HttpRequest) -> bool:
    return bool(getattr(request.user, "is_superuser", False))


admin.site.unregister([User, Group])
admin.site.register(User, AccountAdmin)
admin.site.register(Group, AccountGroupAdmin)
