"""Rows that only some people may use: whom they are for, in their form and where they can only be looked at."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.http import HttpRequest

from sessions_app.admin.read_only import ModelAdmin

AUDIENCE = ("audience", "groups", "users")


class AudienceAdmin(ModelAdmin):
    """Of a model with ``is_restricted`` and ``grants``, whose form has ``AudienceFields``."""

    def get_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Where a row can only be looked at, whom it is for is one line."""
        names = [*super().get_fields(request, obj)]
        if self.has_change_permission(request, obj) if obj else self.has_add_permission(request):
            return names
        return [*(name for name in names if name not in AUDIENCE), "for_whom"]

    @admin.display(description="For")
    def for_whom(self, row: Any) -> str:
        """Names, or everybody."""
        if not row.is_restricted:
            return "everybody"
        grants = row.grants.select_related("group", "user").order_by("group__name", "user__username")
        names = [grant.user.get_username() if grant.group is None else f"group {grant.group.name}" for grant in grants]
        return ", ".join(names) or "nobody but administrators"
