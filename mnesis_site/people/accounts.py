"""Accounts and groups as the pages show them: many in a constant number of queries, or one."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime

from django.apps import apps
from django.contrib.admin.models import LogEntry
from django.contrib.auth.hashers import UNUSABLE_PASSWORD_PREFIX
from django.contrib.auth.models import Group, Permission, User
from django.contrib.contenttypes.models import ContentType
from django.db.models import Count, Q, QuerySet
from django.utils.functional import Promise
from django.utils.translation import gettext, gettext_lazy, gettext_noop

from mnesis_core.errors import NotFound
from mnesis_core.network.people import Role, Standing, State
from mnesis_core.spending import Allowance
from mnesis_core.text import encode_text
from sessions_app.llm.limits import days_of
from sessions_app.llm.spending_store import Activity, activity_of
from sessions_app.record.organisation_store import accounts_in, home_of, homes_of

HISTORY = 20  # what staff did last to an account
_HAS_NO_PASSWORD = Q(password__startswith=UNUSABLE_PASSWORD_PREFIX)  # as has_usable_password has it
IN_STATE = {
    State.ACTIVE: Q(is_active=True) & ~_HAS_NO_PASSWORD,
    State.INVITED: Q(is_active=True) & _HAS_NO_PASSWORD,
    State.CLOSED: Q(is_active=False),
}
GRANTS: dict[str, tuple[str | Promise, Q]] = {
    "sessions_app.ModelGrant": (gettext_lazy("Restricted models"), Q()),
    "agents_app.McpServerGrant": (gettext_lazy("Restricted MCP servers"), Q(server__removed_at=None)),
    "sessions_app.AssistantGrant": (gettext_lazy("Assistants shared with it"), Q(assistant__removed_at=None)),
}
"""What refers to a group and goes with it: in which words, and which of the rows still count."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Account:
    id: int
    name: str
    email: str
    role: Role
    state: State
    has_signed_in: bool
    groups: tuple[str, ...]
    group_ids: frozenset[int]
    organisation: str
    sessions: int
    seen_at: datetime | None  # the last sign-in, change of a session or use of a key
    day: Allowance

    @property
    def version(self) -> str:
        """Return a digest of what a form changes, to know again whether something else has changed it since."""
        values = (self.role, self.email, sorted(self.group_ids), self.state is State.CLOSED)
        return hashlib.sha256(repr(values).encode("utf-8", "surrogatepass")).hexdigest()[:16]


@dataclass(frozen=True, slots=True, kw_only=True)
class Act:
    """Something that staff did to an account."""

    at: datetime
    by: str
    what: str


def role_of(user: User) -> Role:
    if user.is_superuser:
        return Role.ADMINISTRATOR
    return Role.STAFF if user.is_staff else Role.MEMBER


def standing_of(user: User) -> Standing:
    of_user = Permission.objects.filter(Q(user=user) | Q(group__user=user)).values_list("pk", flat=True)
    return Standing(
        id=user.pk,
        role=role_of(user),
        organisation_id=home_of(user.pk),
        permissions=frozenset(of_user),
        groups=frozenset(user.groups.values_list("pk", flat=True)),
    )


def list_accounts(
    actor: Standing,
    *,
    query: str = "",
    state: State | None = None,
    group_id: int | None = None,
    after: str = "",
    limit: int,
) -> list[Account]:
    """Return the accounts that an account may see, by name: those whose name or mail contains the query."""
    users = seen_by(actor)
    if state is not None:
        users = users.filter(IN_STATE[state])
    if group_id is not None:
        users = users.filter(groups=group_id)
    if query:
        words = encode_text(query)
        users = users.filter(Q(username__icontains=words) | Q(email__icontains=words))
    if after:
        users = users.filter(username__gt=encode_text(after))
    return _accounts(users.order_by("username").prefetch_related("groups")[:limit])


def list_candidates(actor: Standing, *, group_id: int, query: str, limit: int) -> list[str]:
    """Return usernames that contain the query, of open accounts that are not in the group."""
    users = seen_by(actor).filter(is_active=True, username__icontains=encode_text(query)).exclude(groups=group_id)
    return list(users.order_by("username").values_list("username", flat=True)[:limit])


def find_user(actor: Standing, account_id: int) -> User:
    """:raises NotFound: there is no such account, or it is of another organisation."""
    user = seen_by(actor).filter(pk=account_id).first()
    if user is None:
        raise NotFound(gettext_noop("There is no such account."))
    return user


def account_of(user: User) -> Account:
    [account] = _accounts([user])
    return account


def list_acts(user: User) -> list[Act]:
    """Return what staff did to an account last, the newest first."""
    of_account = LogEntry.objects.filter(
        content_type=ContentType.objects.get_for_model(User), object_id=str(user.pk)
    ).select_related("user")
    return [
        Act(at=entry.action_time, by=entry.user.get_username(), what=entry.get_change_message() or gettext("Changed."))
        for entry in of_account.order_by("-action_time", "-pk")[:HISTORY]
    ]


def list_groups() -> dict[int, str]:
    return dict(Group.objects.order_by("name").values_list("pk", "name"))


def seen_by(actor: Standing) -> QuerySet[User]:
    return User.objects.filter(Q() if actor.is_administrator else accounts_in(actor.organisation_id))


def _accounts(users: Iterable[User]) -> list[Account]:
    found = list(users)
    ids = [user.pk for user in found]
    activities, days, homes = activity_of(ids), days_of(ids), homes_of(ids)
    accounts = []
    for user in found:
        activity, groups = activities.get(user.pk, Activity()), user.groups.all()
        invited = State.ACTIVE if user.has_usable_password() else State.INVITED
        accounts.append(
            Account(
                id=user.pk,
                name=user.get_username(),
                email=user.email,
                role=role_of(user),
                state=invited if user.is_active else State.CLOSED,
                has_signed_in=user.last_login is not None,
                groups=tuple(sorted(group.name for group in groups)),
                group_ids=frozenset(group.pk for group in groups),
                sessions=activity.sessions,
                seen_at=max(filter(None, (user.last_login, activity.seen_at)), default=None),
                day=days[user.pk],
                organisation=homes.get(user.pk, ""),
            )
        )
    return accounts


# Groups as the pages show them, in a constant number of queries.


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
