"""What an administrator does set: the models that people may choose, and the end of an API key."""

from __future__ import annotations

import os
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.core.validators import MinValueValidator, URLValidator
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path

from mnesis_core.errors import InvalidRequest, NotFound
from mnesis_core.limits import shown_prices
from mnesis_core.llm import LimitSource
from sessions_app.admin.audience import AUDIENCE, AudienceAdmin
from sessions_app.admin.facts import record_url
from sessions_app.admin.filters import presence_filter
from sessions_app.admin.read_only import ModelAdmin, ReadOnlyAdmin
from sessions_app.audience_forms import AudienceFields, audience_initial
from sessions_app.conf import host_lists, list_models, spec_of
from sessions_app.listed_fields import offer_variables, say_addresses
from sessions_app.model_forms import VARIABLE, check_reached
from sessions_app.models import AccountLimit, ApiKey, LanguageModel
from sessions_app.store.keys import revoke_key
from sessions_app.store.models import enter_model
from sessions_app.store.spending import check_account_limits, put_account_limits

NUMBERS_OF = {
    "context_window_source": ("context_window",),
    "max_output_source": ("max_output_tokens",),
    "prices_source": (
        "input_micros_per_million",
        "output_micros_per_million",
        "cache_read_micros_per_million",
        "cache_write_micros_per_million",
    ),
}
"""Which numbers each column of a source is about."""


class LanguageModelForm(forms.ModelForm, AudienceFields):  # type: ignore[type-arg]
    """A model's row, with the mistakes caught that would otherwise show at its first call."""

    fallbacks = forms.CharField(
        required=False,
        empty_value="",
        help_text="The models that are asked, in this order, when this one gives nothing: aliases, separated by commas.",
    )

    class Meta:
        model = LanguageModel
        fields = (
            "alias", "litellm_model", "api_base", "api_key_env", "context_window", "max_output_tokens",
            "input_micros_per_million", "output_micros_per_million", "cache_read_micros_per_million",
            "cache_write_micros_per_million", "timeout_seconds", "total_timeout_seconds", "fallbacks",
        )  # fmt: skip
        help_texts: ClassVar = {
            "alias": "The name people use. It cannot be changed later: sessions refer to it.",
            "litellm_model": "What litellm calls it, such as openai/gpt-4o or ollama_chat/llama3.",
            "api_base": "The address of a server of your own; empty for the provider's.",
            "api_key_env": "The environment variable that holds the key, in the web process and in the workers.",
            "context_window": "Tokens, prompt and answer together.",
            "input_micros_per_million": "Millionths of the currency unit for a million prompt tokens.",
            "output_micros_per_million": "Millionths of the currency unit for a million answer tokens.",
            "cache_read_micros_per_million": "For prompt tokens found in the provider's cache; empty: as any other.",
            "cache_write_micros_per_million": "For prompt tokens put into the provider's cache; empty: as any other.",
            "timeout_seconds": "The longest silence inside a stream.",
            "total_timeout_seconds": "The longest whole call, with its retries.",
        }

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        limits: dict[str, Any] = {
            "api_key_env": VARIABLE,
            "api_base": URLValidator(schemes=["http", "https"]),
            "context_window": MinValueValidator(1),
            "max_output_tokens": MinValueValidator(1),
            "timeout_seconds": MinValueValidator(1),
            "total_timeout_seconds": MinValueValidator(1),
        }
        self.initial["fallbacks"] = ", ".join(self.instance.fallbacks)
        if not self.instance._state.adding:
            grants = list(self.instance.grants.select_related("group", "user"))
            groups = [grant.group.name for grant in grants if grant.group]
            users = [grant.user.get_username() for grant in grants if grant.user]
            self.initial.update(audience_initial(is_restricted=self.instance.is_restricted, groups=groups, users=users))
        if "api_base" not in self.fields:  # who may only look at it has a form without the row's own fields
            return
        offer_variables(self.fields["api_key_env"], host_lists(), current=self.instance.api_key_env)
        say_addresses(self.fields["api_base"], host_lists())
        for name, validator in limits.items():
            self.fields[name].validators.append(validator)
        for source, names in NUMBERS_OF.items():
            said = self.instance.pk and f" Source: {getattr(self.instance, source)}."
            self.fields[names[0]].help_text += said or ""

    def clean_fallbacks(self) -> list[str]:
        """Aliases of models that there are."""
        names = list(dict.fromkeys(filter(None, map(str.strip, self.cleaned_data["fallbacks"].split(",")))))
        missing = set(names) - {spec.alias for spec in list_models(user_id=None)}
        if missing:
            raise forms.ValidationError(f"No model is called {', '.join(sorted(missing))}.")
        return names

    def clean(self) -> dict[str, Any]:
        """An answer is no longer than the window, and a restricted model is for somebody."""
        values = super().clean() or {}
        window, answer = values.get("context_window"), values.get("max_output_tokens")
        if window and answer and answer > window:
            self.add_error("max_output_tokens", "The answer cannot be longer than the context window.")
        self.check_audience(values)
        if not self.errors:
            check_reached(self, values.get("alias") or self.instance.alias, values)
        return values


@admin.register(LanguageModel)
class LanguageModelAdmin(AudienceAdmin):
    """The models: the one table here that people edit."""

    form = LanguageModelForm
    fields = (*LanguageModelForm.Meta.fields, *AUDIENCE)
    list_display = ("alias", "litellm_model", "api_base", "key", "window", "answer", "prices", "is_restricted")
    search_fields = ("alias", "litellm_model")
    ordering = ("alias",)
    show_full_result_count = False

    @admin.display(description="Key")
    def key(self, row: LanguageModel) -> str:
        """The variable that holds the key, and whether it is set in this process. Never the key."""
        if not row.api_key_env:
            return "none"
        return f"{row.api_key_env} ({'set' if os.environ.get(row.api_key_env) else 'not set'})"

    @admin.display(description="Window", ordering="context_window")
    def window(self, row: LanguageModel) -> str:
        """``128,000 (litellm)``."""
        return f"{row.context_window:,} ({row.context_window_source})"

    @admin.display(description="Longest answer", ordering="max_output_tokens")
    def answer(self, row: LanguageModel) -> str:
        """``16,384 (litellm)``."""
        return f"{row.max_output_tokens:,} ({row.max_output_source})"

    @admin.display(description="Prices of a million tokens")
    def prices(self, row: LanguageModel) -> str:
        """``2.5 / 10 (litellm)``."""
        return f"{shown_prices(spec_of(row))} ({row.prices_source})"

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """The alias of a model that exists: another alias would be another model."""
        return ("alias",) if obj else ()

    def save_model(self, request: HttpRequest, obj: LanguageModel, form: Any, change: bool) -> None:
        """Write it through the store, as the commands do. A number that was changed is a configured one."""
        for source, names in NUMBERS_OF.items():
            if not change or set(names) & set(form.changed_data):
                setattr(obj, source, LimitSource.CONFIGURED)
        if "litellm_model" in form.changed_data:
            obj.shared_ratio = None
        enter_model(spec_of(obj), api_key_env=obj.api_key_env, audience=form.chosen_audience)


class AccountLimitForm(forms.ModelForm):  # type: ignore[type-arg]
    """What a person may spend, with the mistakes caught."""

    class Meta:
        model = AccountLimit
        fields = ("owner", "limits")
        help_texts = {
            "limits": 'By scope (turn, session, user, day) and measure: {"day": {"tokens": 100000, "cost_micros": 5000000}}. '
            "cost_micros are millionths of the currency unit. A person may have less than the site allows, never more."
        }

    def clean_limits(self) -> dict[str, Any]:
        """Only what a configuration knows."""
        limits: dict[str, Any] = self.cleaned_data["limits"] or {}
        try:
            check_account_limits(limits)
        except InvalidRequest as error:
            raise forms.ValidationError(error.message) from None
        return limits


@admin.register(AccountLimit)
class AccountLimitAdmin(ModelAdmin):
    """What people may spend."""

    form = AccountLimitForm
    list_display = ("owner", "limits", "updated_at")
    search_fields = ("owner__username",)
    list_select_related = ("owner",)
    ordering = ("owner__username",)
    show_full_result_count = False

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        """Whose limits they are stays."""
        return ("owner",) if obj else ()

    def save_model(self, request: HttpRequest, obj: AccountLimit, form: Any, change: bool) -> None:
        """Write it through the store, as the commands do."""
        put_account_limits(obj.owner_id, obj.limits)


@admin.register(ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    """API keys: whose, since when, used when. They can be ended, nothing else."""

    list_display = ("prefix", "owner", "scope", "created_at", "last_used_at", "revoked_at")
    list_filter = (presence_filter("revoked_at", "revoked"),)
    search_help_text = "The beginning of a key, or a user name"
    ordering = ("-created_at", "pk")
    related = ("owner",)
    link_lookups = ()
    hidden = ("secret_hash",)
    page_template = "admin/inspector/api_key.html"

    def get_search_results(
        self, request: HttpRequest, queryset: QuerySet[Any], search_term: str
    ) -> tuple[QuerySet[Any], bool]:
        """Keys with this prefix, or of this person."""
        term = search_term.strip().removeprefix("mns_")[:16]
        found = queryset.filter(prefix__startswith=term) | queryset.filter(owner__username__startswith=term)
        return found if term else queryset, False

    def heading_of(self, row: ApiKey) -> None:
        """A key belongs to a person, not to a session."""

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        """Who may change keys may end them."""
        return request.user.has_perm("sessions_app.change_apikey")

    def page(self, request: HttpRequest, row: ApiKey) -> dict[str, Any]:
        """Whether there is something to end."""
        return {"may_revoke": row.revoked_at is None and self.has_revoke_permission(request)}

    def get_urls(self) -> list[URLPattern]:
        """The admin's own, and the one that ends a key."""
        view = self.admin_site.admin_view(self.revoke_view)
        return [path("<str:prefix>/revoke/", view, name="sessions_app_apikey_revoke"), *super().get_urls()]

    def revoke_view(self, request: HttpRequest, prefix: str) -> HttpResponse:
        """End a key.

        :raises PermissionDenied: it was not asked for by a form, or by nobody who may.
        """
        if request.method != "POST" or not self.has_revoke_permission(request):
            raise PermissionDenied
        try:
            revoke_key(prefix)
        except NotFound as error:
            messages.error(request, error.message)
            return redirect("admin:sessions_app_apikey_changelist")
        messages.success(request, f"The key {prefix} is revoked: it opens nothing from now on.")
        return redirect(record_url(ApiKey, prefix))
