"""Groups as the pages show them, in a constant number of queries."""

from __future__ import annotations

from dataclasses import dataclass

from django.apps import apps
from django.contrib.auth.models import Group
from django.db.models import Count, Q, QuerySet
from django.utils.functional import Promise
from django.utils.translation import gettext_lazy, gettext_noop

from mnesis_core.errors import NotFound
from mnesis_core.network.people import Standing
from mnesis_site.people.accounts import seen_by

GRANTS: dict[str, tuple[str | Promise, Q]] = {
    "sessions_app.ModelGrant": (gettext_lazy("Restricted models"), Q()),
    "agents_app.McpServerGrant": (gettext_lazy("Restricted MCP servers"), Q(server__removed_at=None)),
    "sessions_app.AssistantGrant": (gettext_lazy("Assistants shared with it"), Q(assistant__removed_at=None)),
}
"""What refers to a group and goes with it: in which words, and which of the rows still count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    id: int
    name: str
    members: int  # those that the reader may see


def list_summaries(actor: Standing) -> list[GroupSummary]:
    return [_summary(group) for group in _counted(actor).order_by("name")]


def find_group(actor: Standing, group_id: int) -> GroupSummary:
    """:raises NotFound: there is no such group."""
    group = _counted(actor).filter(pk=group_id).first()
    if group is None:
        raise NotFound(gettext_noop("There is no such group."))
    return _summary(group)


def count_grants(group_id: int) -> list[tuple[str | Promise, int]]:
    """Return how much of each kind a group has access to, permissions first."""
    permissions = Group.permissions.through.objects.filter(group=group_id).count()
    grants = [
        (words, apps.get_model(name)._default_manager.filter(is_kept, group=group_id).count())
        for name, (words, is_kept) in GRANTS.items()
    ]
    return [(gettext_lazy("Permissions"), permissions), *grants]


def _counted(actor: Standing) -> QuerySet[Group]:
    return Group.objects.annotate(members=Count("user", filter=Q(user__in=seen_by(actor))))


def _summary(group: Group) -> GroupSummary:
    return GroupSummary(id=group.pk, name=group.name, members=group.members)  # type: ignore[attr-defined]
