"""The tables of the record, read only; and models, limits of accounts and API keys, which have forms or buttons."""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import Any, ClassVar

from django import forms
from django.contrib import admin, messages
from django.contrib.admin.utils import quote
from django.contrib.auth import get_permission_codename
from django.core.exceptions import PermissionDenied
from django.db.models import OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Left
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect
from django.urls import URLPattern, path, reverse
from django.utils.html import format_html
from django.utils.translation import gettext, gettext_lazy, gettext_noop

from mnesis_core.actor import actor_in, describe_actor
from mnesis_core.errors import InvalidRequest, NotFound
from mnesis_core.events import GENESIS, EventType, entry_hash
from mnesis_core.llm.interface import shown_prices
from mnesis_core.messages import KNOWN_PARTS
from mnesis_core.records import TurnState, is_id
from mnesis_core.text import excerpt
from sessions_app import models
from sessions_app.admin.read_only import (
    Fact,
    ModelAdmin,
    ReadOnlyAdmin,
    TextColumn,
    column,
    fixed_filter,
    list_url,
    marked,
    page_of,
    presence_filter,
    record_url,
    require_reading,
    show_columns,
    with_beginnings,
)
from sessions_app.conf import spec_of
from sessions_app.database.fields import Head
from sessions_app.llm.model_store import revoke_key
from sessions_app.llm.spending_store import check_account_limits, put_account_limits
from sessions_app.pages.formats import error_text
from sessions_app.pages.permissions import address_of
from sessions_app.record.organisation_store import are_several, names_of
from sessions_app.record.timeline_queries import NOW, SessionHeading, load_heading, load_stay, preview_messages

PARTS_PER_PAGE = 100
PREVIEW = 100
HEAD = 500  # characters of a body in which it names its actor
OUTCOMES = ("complete", "incomplete", "broken", "failed", "cancelled")
PLAIN_TEXTS = {
    "text": gettext_noop("Text"),
    "reasoning": gettext_noop("Reasoning"),
    "refusal": gettext_noop("Refusal"),
    "patch": gettext_noop("Unified diff"),
}


class OrganisationFilter(admin.SimpleListFilter):
    """Django shows a filter without choices to nobody."""

    title = parameter_name = "organisation"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        found = [(row.pk, str(row)) for row in models.Organisation.objects.order_by("created_at", "pk")]
        return found if len(found) > 1 else []

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        return queryset if self.value() is None else queryset.filter(organisation_id=self.value())


@admin.register(models.Organisation)
class OrganisationAdmin(ReadOnlyAdmin):
    list_display = ("slug", "name", "shown_id", "created")
    search_help_text = gettext_lazy("An id or a slug, or words from the name")
    ordering = ("created_at", "pk")
    related = ()
    link_lookups = ()
    texts = (TextColumn(name="settings", label=gettext_noop("Settings")),)

    def found(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        return rows.filter(Q(pk=term) | Q(slug=term) | Q(name__icontains=term))

    def page_title(self, row: models.Organisation) -> str:
        return f"Organisation {row}"

    def page(self, request: HttpRequest, row: models.Organisation) -> dict[str, Any]:
        return {"links": [(gettext("Its sessions"), list_url(models.Session, organisation=row.pk), None)]}

    def get_model_perms(self, request: HttpRequest) -> dict[str, bool]:
        return super().get_model_perms(request) if are_several() else {}


@admin.register(models.Session)
class SessionAdmin(ReadOnlyAdmin):
    list_display = (
        "shown_title", "owner", "model", "last_turn", "messages", "turns", "events", "created", "origin", "marks",
    )  # fmt: skip
    list_filter = (
        fixed_filter("last_turn_state", gettext_noop("state of the last turn"), tuple(TurnState), parameter="state"),
        "origin",
        "model",
        presence_filter("archived_at", gettext_noop("archived")),
        presence_filter("deleted_at", gettext_noop("deleted")),
        OrganisationFilter,
    )
    search_help_text = gettext_lazy("An id (also of an import), or words from the title")
    related = ("owner",)
    link_lookups = ("parent",)
    texts = (
        TextColumn(name="system_prompt", label=gettext_noop("System prompt")),
        TextColumn(name="assistant_instructions", label=gettext_noop("Instructions of its assistant")),
        TextColumn(name="labels", label=gettext_noop("Labels")),
        TextColumn(name="config", label=gettext_noop("Configuration")),
    )

    shown_title = column(gettext_noop("Title"), lambda row: excerpt(row.title, 80) or row.id, "title")
    messages = column(gettext_noop("Messages"), lambda row: f"{row.message_seq:,}", "message_seq")
    turns = column(gettext_noop("Turns"), lambda row: f"{row.turn_seq:,}", "turn_seq")
    events = column(gettext_noop("Events"), lambda row: f"{row.event_seq:,}", "event_seq")
    last_turn = column(gettext_noop("Last turn"), lambda row: row.last_turn_state or "")

    @admin.display(description=gettext_lazy("Marks"))
    def marks(self, row: models.Session) -> str:
        is_temporary = row.began_temporary and row.kept_at is None
        marks = {
            "archived": row.archived_at,
            "deleted": row.deleted_at,
            "child": row.parent_id,
            "temporary": is_temporary,
        }
        return ", ".join(name for name, value in marks.items() if value)

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        newest = models.Turn.objects.filter(session=OuterRef("pk"), seq=OuterRef("turn_seq"))
        state = Subquery(newest.values("state")[:1])
        rows: QuerySet[Any] = super().get_queryset(request).annotate(last_turn_state=state)
        return rows

    def found(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        if is_id(term):
            return rows.filter(pk=term)
        return rows.filter(Q(title__icontains=term) | Q(external_id=term))

    def page_title(self, row: models.Session) -> str:
        return excerpt(row.title, 120) or row.id

    def heading_of(self, row: models.Session) -> SessionHeading | None:
        return load_heading(row.id)

    def facts(self, row: models.Session) -> list[Fact]:
        return [fact for fact in super().facts(row) if fact.name != "title"]

    def page(self, request: HttpRequest, row: models.Session) -> dict[str, Any]:
        children = models.Session.objects.filter(parent_id=row.id).count()
        link = (gettext("Sub-agent sessions"), list_url(models.Session, parent=row.id), children)
        return {"links": [link] if children else []}

    def get_urls(self) -> list[URLPattern]:
        view = self.admin_site.admin_view(self.tombstones_view)
        return [path("<path:session_id>/tombstones/", view, name="inspect_tombstones"), *super().get_urls()]

    def tombstones_view(self, request: HttpRequest, session_id: str) -> HttpResponse:
        """:raises PermissionDenied: something was sent, or this person may not see parts.
        :raises Http404: there is no such session.
        """
        require_reading(request, may_look=request.user.has_perm("sessions_app.view_messagepart"))
        about = load_heading(session_id)
        if about is None:
            raise Http404("there is no session of this id")
        self.look(request, about)
        return redirect(list_url(models.MessagePart, session=about.id, tombstoned="yes"))


@admin.register(models.Turn)
class TurnAdmin(ReadOnlyAdmin):
    list_display = (
        "seq", "in_session", "state", "origin", "model", "tokens_input", "tokens_output", "usage_source", "error_code",
        "created",
    )  # fmt: skip
    list_filter = ("state", "origin", "model")
    session_ordering = ("seq",)
    is_numbered = True
    texts = (
        TextColumn(name="error_message", label=gettext_noop("Error")),
        TextColumn(name="options", label=gettext_noop("Options of this turn"), pretty=True),
    )

    title = gettext_noop("Turn {row.seq} · {row.state}")

    def page(self, request: HttpRequest, row: models.Turn) -> dict[str, Any]:
        links = [
            (gettext("Its messages"), list_url(models.Message, session=row.session_id, turn=row.id), None),
            (gettext("Its model calls"), list_url(models.ModelCall, session=row.session_id, turn=row.id), None),
        ]
        steps = address_of("inspect-turn", row.session_id, row.id)
        return {"links": [*links, *([(gettext("Step by step"), steps, None)] if steps else [])]}


@admin.register(models.Message)
class MessageAdmin(ReadOnlyAdmin):
    list_display = ("seq", "in_session", "role", "preview", "model", "tokens", "outcome", "created")
    list_filter = (
        fixed_filter("role", gettext_noop("role"), ("system", "user", "assistant")),
        fixed_filter("outcome", gettext_noop("outcome"), OUTCOMES),
        presence_filter("error_code", gettext_noop("failed")),
    )
    link_lookups = ("session", "turn", "seq__gte", "seq__lte")
    session_ordering = ("seq",)
    is_numbered = True
    texts = (TextColumn(name="error_message", label=gettext_noop("Error")),)

    preview = column(gettext_noop("Begins"), lambda row: excerpt(row.preview.text, PREVIEW) if row.preview else "")
    tokens = column(gettext_noop("≈ Tokens"), lambda row: f"{row.preview.tokens:,}" if row.preview else "")

    def dress_rows(self, rows: list[Any]) -> None:
        previews = preview_messages([row.id for row in rows], at=NOW)
        for row in rows:
            row.preview = previews.get(row.id)

    title = gettext_noop("Message {row.seq} · {row.role}")

    def facts(self, row: models.Message) -> list[Fact]:
        return [*super().facts(row), *context_facts(row.session_id, row.id)]

    def page(self, request: HttpRequest, row: models.Message) -> dict[str, Any]:
        seen_by = address_of("inspect-sightings", row.session_id, row.id)
        links = [(gettext("Which calls saw it"), seen_by, None)] if seen_by else []
        if not request.user.has_perm("sessions_app.view_messagepart"):
            return {"links": links, "parts_hidden": True}
        rows = models.MessagePart.objects.filter(message_id=row.id).order_by("part_index")
        page = page_of(request, with_beginnings(rows, PART_TEXTS), PARTS_PER_PAGE)
        return {"links": links, "page": page, "parts": [shown_part(part) for part in page]}


PART_TEXTS = (
    TextColumn(name="content", label=gettext_noop("Content")),
    TextColumn(name="tool_input", label=gettext_noop("Input"), pretty=True),
    TextColumn(name="output", label=gettext_noop("Output")),
    TextColumn(name="error_message", label=gettext_noop("Error")),
    TextColumn(name="decision_note", label=gettext_noop("Comment on the decision")),
    TextColumn(name="late_output", label=gettext_noop("Late output")),
)


def shown_part(row: Any) -> dict[str, Any]:
    label = PLAIN_TEXTS.get(row.part_type, "Content")
    content = TextColumn(name="content", label=label, pretty=row.part_type not in PLAIN_TEXTS)
    by_event = list_url(models.Event, session=row.session_id, seq=row.compacted_seq) if row.compacted_at else ""
    return {
        "row": row,
        "url": record_url(row, row.pk),
        "name": marked(row.tool_name or row.label),
        "texts": show_columns(row, (content, *PART_TEXTS[1:])),
        "tombstoned_by_url": by_event,
    }


@admin.register(models.MessagePart)
class MessagePartAdmin(ReadOnlyAdmin):
    list_display = (
        "in_message", "part_type", "tool", "tombstoned", "begins", "output_begins", "tool_state", "token_estimate",
        "shown_id",
    )  # fmt: skip
    list_filter = (
        fixed_filter("part_type", gettext_noop("type"), tuple(KNOWN_PARTS)),
        fixed_filter(
            "tool_state", gettext_noop("tool state"), ("pending", "approved", "running", "completed", "error")
        ),
        presence_filter("compacted_at", gettext_noop("tombstoned")),
    )
    related = ("session", "message")
    link_lookups = ("session", "message")
    texts = PART_TEXTS

    in_message = column(gettext_noop("Message"), lambda row: f"{row.message.seq} [{row.part_index}]")
    tool = column(gettext_noop("Tool"), lambda row: excerpt(row.tool_name or row.label, 40))
    tombstoned = column(gettext_noop("Tombstoned"), lambda row: "yes" if row.compacted_at else "")
    begins = column(
        gettext_noop("Begins"), lambda row: excerpt(row.starts["content"] or row.starts["tool_input"], PREVIEW)
    )
    output_begins = column(gettext_noop("Output begins"), lambda row: excerpt(row.starts["output"] or "", PREVIEW))

    def dress_rows(self, rows: list[Any]) -> None:
        names = ("content", "tool_input", "output")
        starts = {f"{name}_start": Head(name, PREVIEW * 4) for name in names}
        parts = models.MessagePart.objects.filter(pk__in=[row.pk for row in rows]).annotate(**starts)
        found = {key: dict(zip(names, texts, strict=True)) for key, *texts in parts.values_list("pk", *starts)}
        for row in rows:
            row.starts = found[row.pk]

    def page(self, request: HttpRequest, row: Any) -> dict[str, Any]:
        return {"texts": [], "parts": [shown_part(row)]}


@admin.register(models.ModelCall)
class ModelCallAdmin(ReadOnlyAdmin):
    list_display = (
        "shown_id", "in_session", "purpose", "state", "outcome", "model", "estimated_tokens", "tokens_input",
        "tokens_output", "usage_source", "created",
    )  # fmt: skip
    list_filter = (
        fixed_filter("state", gettext_noop("state"), ("running", "completed", "failed")),
        fixed_filter("outcome", gettext_noop("outcome"), OUTCOMES),
        "purpose",
        "model",
    )
    link_lookups = ("session", "turn")
    session_ordering = ("pk",)
    texts = (
        TextColumn(name="error_message", label=gettext_noop("Error")),
        TextColumn(name="parameters", label=gettext_noop("Parameters")),
        TextColumn(name="manifest", label=gettext_noop("Manifest")),
    )

    def page(self, request: HttpRequest, row: models.ModelCall) -> dict[str, Any]:
        return {"links": [(gettext("What it was sent"), reverse("admin:inspect_payload", args=[row.pk]), None)]}


@admin.register(models.PromptText)
class PromptTextAdmin(ReadOnlyAdmin):
    list_display = ("shown_id", "in_session", "digest", "created")
    session_ordering = ("pk",)
    texts = (TextColumn(name="content", label=gettext_noop("Text"), pretty=True),)


@admin.register(models.Share)
class ShareAdmin(ReadOnlyAdmin):
    list_display = ("shown_id", "in_session", "audience", "created", "expires_at", "revoked_at")
    list_filter = ("audience", presence_filter("revoked_at", gettext_noop("revoked")))
    texts = (TextColumn(name="title", label=gettext_noop("Title")),)


@admin.register(models.Rating)
class RatingAdmin(ReadOnlyAdmin):
    list_display = ("shown_id", "in_session", "thumb", "created")
    list_filter = (fixed_filter("thumb", gettext_noop("thumb"), ["up", "down"]),)
    texts = (TextColumn(name="comment", label=gettext_noop("Comment")),)


@admin.register(models.Event)
class EventAdmin(ReadOnlyAdmin):
    list_display = ("seq", "in_session", "type", "by", "short_hash", "created")
    list_filter = (fixed_filter("type", gettext_noop("type"), [type.value for type in EventType]),)
    link_lookups = ("session", "seq", "seq__gte", "seq__lte")
    session_ordering = ("seq",)
    is_numbered = True
    texts = (TextColumn(name="body", label=gettext_noop("Body"), pretty=True),)

    by = column(gettext_noop("By"), lambda row: row.by)
    short_hash = column(gettext_noop("Hash"), lambda row: row.hash[:12])

    title = gettext_noop("Event {row.seq} · {row.type}")

    def dress_rows(self, rows: list[Any]) -> None:
        heads = models.Event.objects.filter(pk__in=[row.pk for row in rows]).values_list("pk", Left("body", HEAD))
        actors = {pk: actor_in(head) for pk, head in heads}
        names = names_of({actor.person for actor in actors.values()})
        for row in rows:
            row.by = describe_actor(actors[row.pk], names)

    def facts(self, row: models.Event) -> list[Fact]:
        events = models.Event.objects.filter(session_id=row.session_id)
        body = events.values_list("body", flat=True).get(pk=row.pk)
        is_right = entry_hash(prev_hash=row.prev_hash, seq=row.seq, type=row.type, body=body) == row.hash
        before = events.filter(seq=row.seq - 1).values_list("hash", flat=True).first()
        follows = row.prev_hash == (GENESIS if row.seq == 1 else before)
        chip = '<span class="state state-{}">{}</span>'
        proof = format_html(
            f"{chip} {chip}",
            "completed" if is_right else "failed",
            "hash is right" if is_right else "HASH DOES NOT MATCH",
            "completed" if follows else "failed",
            "follows the entry before" if follows else "DOES NOT FOLLOW THE ENTRY BEFORE",
        )
        actor = actor_in(body)
        by = describe_actor(actor, names_of({actor.person}))
        told = {gettext("By"): by, gettext("Via"): actor.via, gettext("Request"): actor.request}
        named = [Fact(label=label, value=marked(text)) for label, text in told.items() if text]
        return [Fact(label=gettext("Proof"), value=proof, name="proof"), *named, *super().facts(row)]

    def page(self, request: HttpRequest, row: models.Event) -> dict[str, Any]:
        url = reverse("admin:inspect_context", args=[row.session_id], query={"at": row.seq})
        return {"links": [(gettext("Context as of this event"), url, None)]}


@admin.register(models.ContextItem)
class ContextItemAdmin(ReadOnlyAdmin):
    list_display = ("position", "in_session", "item_type", "item_id", "added_seq", "removed_seq")
    list_filter = ("item_type", presence_filter("removed_seq", gettext_noop("removed")))
    session_ordering = ("position", "pk")

    def page(self, request: HttpRequest, row: models.ContextItem) -> dict[str, Any]:
        name = "sessions_app_message" if row.item_type == "message" else "compaction_app_summarynode"
        url = reverse(f"admin:{name}_change", args=[quote(row.item_id)])
        return {"links": [(f"The {row.item_type}", url, None)]}


@admin.register(models.StreamJournal)
class StreamJournalAdmin(ReadOnlyAdmin):
    list_display = ("id", "in_session", "in_message", "part_index", "part_type", "offset")
    related = ("session", "message")
    link_lookups = ("session", "message")
    session_ordering = ("pk",)
    texts = (TextColumn(name="text", label=gettext_noop("Text")),)

    in_message = column(gettext_noop("Message"), lambda row: row.message.seq)


def context_facts(session_id: str, item_id: str) -> list[Fact]:
    stay = load_stay(session_id, item_id)
    if stay is None:
        return [Fact(label=gettext("Active context"), value=marked("never in the context"))]
    steps = ((gettext("Added to the context"), stay.added_seq), (gettext("Removed from the context"), stay.removed_seq))
    return [
        Fact(
            label=label,
            value=marked(f"event {seq}"),
            url=reverse("admin:inspect_context", args=[session_id], query={"at": seq}),
        )
        for label, seq in steps
        if seq is not None
    ]


class PortalAdmin(ReadOnlyAdmin):
    """A read-only table whose forms are pages of the portal, addressed by ``name_column``."""

    portal: ClassVar[str]  # the prefix of the names of the portal's addresses
    name_column: ClassVar[str]
    removing: ClassVar[str] = "delete"  # the permission that removing a row needs
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
        audience = "everyone"
        if row.is_restricted:
            # Sorted here: the databases disagree on where NULL stands.
            grants = row.grants.select_related("group", "user")
            people = sorted(grant.user.get_username() for grant in grants if grant.group is None)
            groups = sorted(f"group {grant.group.name}" for grant in grants if grant.group is not None)
            audience = ", ".join([*people, *groups]) or "superusers only"
        return [*super().facts(row), Fact(label=gettext("Available to"), value=marked(audience))]

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


@admin.register(models.LanguageModel)
class LanguageModelAdmin(PortalAdmin):
    portal, name_column = "model", "alias"
    list_display = ("alias", "litellm_model", "api_base", "key", "window", "answer", "prices", "is_restricted")
    search_help_text = gettext_lazy("A name, or the name that litellm uses")
    ordering = ("alias",)
    key = column(
        gettext_noop("Key"), lambda row: "stored, encrypted" if row.sealed_key else set_or_not([row.api_key_env])
    )
    window = column(
        gettext_noop("Window"), lambda row: f"{row.context_window:,} ({row.context_window_source})", "context_window"
    )
    answer = column(
        gettext_noop("Longest answer"),
        lambda row: f"{row.max_output_tokens:,} ({row.max_output_source})",
        "max_output_tokens",
    )
    prices = column(
        gettext_noop("Prices per million tokens"), lambda row: f"{shown_prices(spec_of(row))} ({row.prices_source})"
    )

    def found(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        return rows.filter(Q(alias__icontains=term) | Q(litellm_model__icontains=term))


def set_or_not(variables: Iterable[str]) -> str:
    """Return each variable with whether this process has it, never its value."""
    return ", ".join(f"{name} ({'set' if os.environ.get(name) else 'not set'})" for name in variables if name) or "none"


class AccountLimitForm(forms.ModelForm):  # type: ignore[type-arg]
    class Meta:
        model = models.AccountLimit
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
            raise forms.ValidationError(error_text(error)) from None
        return limits


@admin.register(models.AccountLimit)
class AccountLimitAdmin(ModelAdmin):
    form = AccountLimitForm
    list_display = ("owner", "limits", "updated_at")
    search_fields = ("owner__username",)
    list_select_related = ("owner",)
    ordering = ("owner__username",)

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> tuple[str, ...]:
        return ("owner",) if obj else ()

    # Staff set limits on the page of a person, where no one can raise their own.
    def has_add_permission(self, request: HttpRequest) -> bool:
        return super().has_add_permission(request) and request.user.is_superuser

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_change_permission(request, obj) and request.user.is_superuser

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        return super().has_delete_permission(request, obj) and request.user.is_superuser

    def save_model(self, request: HttpRequest, obj: models.AccountLimit, form: Any, change: bool) -> None:
        put_account_limits(obj.owner_id, obj.limits)


@admin.register(models.ApiKey)
class ApiKeyAdmin(ReadOnlyAdmin):
    list_display = ("prefix", "owner", "name", "scope", "mode", "created_at", "last_used_at", "revoked_at")
    list_filter = (presence_filter("revoked_at", gettext_noop("revoked")),)
    search_help_text = gettext_lazy("The beginning of a key, or a user name")
    ordering = ("-created_at", "pk")
    related = ("owner",)
    link_lookups = ()
    hidden = ("secret_hash",)

    def found(self, rows: QuerySet[Any], term: str) -> QuerySet[Any]:
        prefix = term.removeprefix("mns_")[:16]
        return rows.filter(prefix__startswith=prefix) | rows.filter(owner__username__startswith=prefix)

    def has_revoke_permission(self, request: HttpRequest) -> bool:
        return request.user.has_perm("sessions_app.change_apikey")

    def page(self, request: HttpRequest, row: models.ApiKey) -> dict[str, Any]:
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
            messages.error(request, error_text(error))
            return redirect("admin:sessions_app_apikey_changelist")
        messages.success(request, f"The key {prefix} was revoked and no longer works.")
        return redirect(record_url(models.ApiKey, prefix))
