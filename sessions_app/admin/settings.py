"""What administrators set: models, spending limits, and the revocation of API keys."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.auth import get_permission_codename
from django.core.exceptions import PermissionDenied
from django.db.models import Q, QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse

from mnesis_core.errors import InvalidRequest, NotFound
from mnesis_core.llm.limits import shown_prices
from mnesis_core.text import excerpt
from sessions_app.admin.read_only import ModelAdmin, ReadOnlyAdmin, column, presence_filter
from sessions_app.admin.texts import Fact, marked, record_url
from sessions_app.catalogue.model_store import revoke_key
from sessions_app.conf import spec_of
from sessions_app.models import AccountLimit, ApiKey, LanguageModel
from sessions_app.usage.spending_store import check_account_limits, put_account_limits


class PortalAdmin(ReadOnlyAdmin):
    """A read-only table whose forms are pages of the portal, addressed by ``name_column``."""

    portal: ClassVar[str]
    """The prefix of the names of the portal's addresses."""
    name_column: ClassVar[str]
    removing: ClassVar[str] = "delete"
    """The permission that removing a row needs."""
    related = ()
    link_lookups = ()

    def found(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        return rows.filter(**{f"{self.name_column}__icontains": term})

    def has_add_permission(self, request: HttpRequest) -> bool:
        return self._may(request, "add")

    def add_view(self, request: HttpRequest, form_url: str = "", extra_context: Any = None) -> HttpResponse:
        """:raises PermissionDenied: this person may not add a row."""
        if not self.has_add_permission(request):
            raise PermissionDenied
        return redirect(f"{self.portal}-add")

    def delete_view(self, request: HttpRequest, object_id: str, extra_context: Any = None) -> HttpResponse:
        """:raises PermissionDenied: there is no such row, or this person may not remove it."""
        row = self.get_object(request, object_id)
        if row is None or not self._may(request, self.removing):
            raise PermissionDenied
        return redirect(f"{self.portal}-remove", getattr(row, self.name_column))

    def facts(self, row: Any) -> list[Fact]:
        return [*super().facts(row), Fact(label="For", value=marked(_audience(row)))]

    def page_title(self, row: Any) -> str:
        return excerpt(getattr(row, self.name_column), 120)

    def page(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        name = getattr(row, self.name_column)
        forms = (("change", "change", "Change it"), (self.removing, "remove", "Remove it"))
        return {
            "links": [
                (label, reverse(f"{self.portal}-{view}", args=[name]), None)
                for verb, view, label in forms
                if self._may(request, verb)
            ]
        }

    def _may(self, request: HttpRequest, verb: str) -> bool:
        return request.user.has_perm(f"{self.opts.app_label}.{get_permission_codename(verb, self.opts)}")


def _audience(row: Any) -> str:
    if not row.is_restricted:
        return "everybody"
    # Sorted here: the databases disagree on where NULL stands.
    grants = row.grants.select_related("group", "user")
    people = sorted(grant.user.get_username() for grant in grants if grant.group is None)
    groups = sorted(f"group {grant.group.name}" for grant in grants if grant.group is not None)
    return ", ".join([*people, *groups]) or "superusers only"


@admin.register(LanguageModel)
class LanguageModelAdmin(PortalAdmin):
    portal, name_column = "model", "alias"
    list_display = ("alias", "litellm_model", "api_base", "key", "window", "answer", "prices", "is_restricted")
    search_help_text = "A name, or what litellm calls the model"
    ordering = ("alias",)
    key = column("Key", lambda row: set_or_not([row.api_key_env]))
    window = column("Window", lambda row: f"{row.context_window:,} ({row.context_window_source})", "context_window")
    answer = column(
        "Longest answer", lambda row: f"{row.max_output_tokens:,} ({row.max_output_source})", "max_output_tokens"
    )
    prices = column("Prices of a million tokens", lambda row: f"{shown_prices(spec_of(row))} ({row.prices_source})")

    def found(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        return rows.filter(Q(alias__icontains=term) | Q(litellm_model__icontains=term))


def set_or_not(variables: Iterable[str]) -> str:
    """Return each variable with whether this process has it, never its value."""
    return ", ".join(f"{name} ({'set' if os.environ.get(name) else 'not set'})" for name in variables if name) or "none"


class AccountLimitForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = AccountLimit
        fields = ("owner", "limits")
        help_texts = {
            "limits": 'By scope (turn, session, user, day) and measure: {"day": {"tokens": 100000, "cost_micros": 5000000}}. '
            "cost_micros are millionths of the currency unit. A person may have less than the site allows, never more."
        }

    def clean_limits(self) -> dict[str, Any]:
        limits: dict[str, Any] = self.cleaned_data["limits"] or {}
        try:
            check_account_limits(limits)
        except InvalidRequest as error:
            raise forms.ValidationError(error.message) from None
        return limits


@admin.register(AccountLimit)
class AccountLimitAdmin(ModelAdmin):
    form = AccountLimitForm
    list_display = ("owner", "limits", "updated_at")
    search_fields = ("owner__username",)
    list_select_related = ("owner",)
    ordering = ("owner__username",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("owner",) if obj else ()

    def save_model(self, request: HttpRequest, obj: AccountLimit, form: Any, change: bool) -> None:
        put_account_limits(obj.owner_id, obj.limits)


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    list_display = ("prefix", "owner", "scope", "created_at", "last_used_at", "revoked_at")
    list_filter = (presence_filter("revoked_at", "revoked"),)
    search_help_text = "The beginning of a key, or a user name"
    ordering = ("-created_at", "pk")
    related = ("owner",)
    link_lookups = ()
    hidden = ("secret_hash",)

    def found(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        prefix = term.removeprefix("mns_")[:16]
        return rows.filter(prefix__startswith=prefix) | rows.filter(owner__username__startswith=prefix)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("sessions_app.change_apikey")

    def page(self, request: HttpRequest, row: ApiKey) -> dict[str, Any]:
        may_revoke = row.revoked_at is None and self.has_revoke_permission(request)
        return {"revoke_url": reverse("admin:sessions_app_apikey_revoke", args=[row.pk]) if may_revoke else ""}

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.revoke_view)
        return [path("<str:prefix>/revoke/", view, name="sessions_app_apikey_revoke"), *super().get_urls()]

    def revoke_view(self, request: HttpRequest, prefix: str) -> HttpResponse:
        """:raises PermissionDenied: it was not posted, or this person may not revoke keys."""
        if request.method != "POST" or not self.has_revoke_permission(request):
            raise PermissionDenied
        try:
            revoke_key(prefix)
        except NotFound as error:
            messages.error(request, error.message)
            return redirect("admin:sessions_app_apikey_changelist")
        messages.success(request, f"The key {prefix} is revoked: it opens nothing from now on.")
        return redirect(record_url(ApiKey, prefix))
