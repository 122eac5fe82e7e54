"""The only writer of accounts and groups on pages. Accounts are invited, changed, signed out, closed and opened again, never deleted.

Each act locks the two accounts that it is about and looks at their rights again, so what was true on the page still is.
Django's administration has what was done (``LogEntry``).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from django.contrib.admin.models import ADDITION, CHANGE, DELETION, LogEntry
from django.contrib.auth.hashers import make_password
from django.contrib.auth.models import Group, User
from django.contrib.contenttypes.models import ContentType
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils.translation import gettext_noop

from mnesis_core.errors import AccountChanged, InvalidRequest, NotFound, PermissionDenied
from mnesis_core.network.people import Role, Standing, groups_to_give, roles_to_give, why_not_change, why_not_end
from mnesis_site.people.accounts import account_of, find_user, list_groups, role_of, standing_of
from mnesis_site.sign_in import marked_anew
from sessions_app.llm.model_store import create_key, revoke_key, revoke_keys
from sessions_app.llm.spending_store import load_account_limits, put_account_limits
from sessions_app.record.organisation_store import move_person


@dataclass(frozen=True, slots=True, kw_only=True)
class Changing:
    actor: Standing
    user: User
    other: Standing

    def note(self, what: str) -> None:
        _note(self.actor.id, self.user, CHANGE, what)


def invite(
    actor_id: int, *, username: str, email: str, role: Role, groups: Collection[int], organisation_id: str = ""
) -> User:
    """Make an account that has no password yet.

    :raises InvalidRequest: another account has this name.
    :raises PermissionDenied: the actor may not give this role or one of these groups.
    """
    with transaction.atomic():
        actor = standing_of(_lock(actor_id)[actor_id])
        _check_gifts(actor, role, groups)
        home = organisation_id if actor.is_administrator and organisation_id else actor.organisation_id
        user = User(username=username, email=email, **_flags(role))
        user.set_unusable_password()
        try:
            with transaction.atomic():
                user.save(force_insert=True)
        except IntegrityError as error:
            raise InvalidRequest(gettext_noop("Another account has this name."), field="username") from error
        move_person(user.pk, home)
        user.groups.set(_lock_groups(groups))
        _note(actor_id, user, ADDITION, f"Invited as {role}.")
    return user


def change_account(
    actor_id: int, account_id: int, *, role: Role, email: str, groups: Collection[int], version: str
) -> None:
    """Change what an account is. Groups that the actor cannot give stay as they are.

    :param version: of the account as the actor saw it
    :raises AccountChanged: it is another one by now.
    :raises PermissionDenied: the actor may not change it, or not to this.
    """
    with _changing(actor_id, account_id) as change:
        user, before = change.user, account_of(change.user)
        if version != before.version:
            raise AccountChanged()
        if role is not before.role:
            _refuse(why_not_end(change.actor, change.other))
        givable = groups_to_give(change.actor, list_groups())
        wanted = frozenset(groups) | (before.group_ids - givable)
        _check_gifts(change.actor, role, wanted - before.group_ids)
        User.objects.filter(pk=user.pk).update(email=email, **_flags(role))
        user.groups.set(_lock_groups(wanted))
        after = account_of(User.objects.get(pk=user.pk))
        told = [f"role {before.role} → {after.role}"] * (before.role is not after.role)
        told += [f"email “{before.email}” → “{after.email}”"] * (before.email != after.email)
        told += [f"groups {_listed(before.groups)} → {_listed(after.groups)}"] * (before.group_ids != after.group_ids)
        if told:
            change.note(f"Changed: {'; '.join(told)}.")


def limit_day(actor_id: int, account_id: int, day: dict[str, Any], *, before: dict[str, Any]) -> None:
    """Set what an account may spend each day; its other limits stay.

    :param before: what it could spend as the actor saw it
    :raises AccountChanged: that is something else by now.
    :raises InvalidRequest: a limit is out of its bounds.
    :raises PermissionDenied: the actor may not change it.
    """
    with _changing(actor_id, account_id) as change:
        limits = load_account_limits(account_id)
        if limits.get("day", {}) != before:
            raise AccountChanged()
        others = {scope: values for scope, values in limits.items() if scope != "day"}
        put_account_limits(account_id, others | ({"day": day} if day else {}))
        if day != before:
            change.note(f"Limits a day: {_listed([f'{name} {value}' for name, value in day.items()])}.")


def forget_password(actor_id: int, account_id: int) -> User:
    """Take an account's password and sign it out, so that only the link that is made next gives it another one.

    :raises PermissionDenied: the actor may not do this, or the account is closed.
    """
    with _changing(actor_id, account_id) as change:
        _refuse(why_not_end(change.actor, change.other))
        _refuse_closed(change.user)
        change.user.set_unusable_password()
        change.user.save(update_fields=["password"])
        change.note("Created a link to choose a new password. Earlier links and the old password no longer work.")
        return change.user


def choose_password(user: User, password: str) -> bool:
    """Set the password of an account as it was read; return whether nothing came in between, such as the same link."""
    unchanged = User.objects.filter(pk=user.pk, password=user.password, is_active=True)
    return bool(unchanged.update(password=make_password(password)))


def sign_out_everywhere(actor_id: int, account_id: int) -> None:
    """End every sign-in of an account, in browsers and in what they keep open. Its API keys stay.

    :raises PermissionDenied: the actor may not do this.
    """
    with _changing(actor_id, account_id, of_self=True) as change:
        _end_sign_ins(change.user)
        change.note("Signed out everywhere.")


def close(actor_id: int, account_id: int) -> None:
    """Close an account: signed out, its keys and links ended. What it did stays as it is.

    :raises PermissionDenied: the actor may not do this.
    """
    with _changing(actor_id, account_id) as change:
        _refuse(why_not_end(change.actor, change.other))
        if not change.user.is_active:
            return
        User.objects.filter(pk=account_id).update(is_active=False)
        _end_sign_ins(change.user)
        keys = revoke_keys(owner_id=account_id)
        change.note(f"Closed, with {keys} API key{'s' * (keys != 1)}.")


def reopen(actor_id: int, account_id: int) -> None:
    """Open a closed account again. Its password counts again; its keys stay revoked.

    :raises PermissionDenied: the actor may not do this.
    """
    with _changing(actor_id, account_id) as change:
        if User.objects.filter(pk=account_id, is_active=False).update(is_active=True):
            change.note("Reopened.")


def make_key(actor_id: int, account_id: int, *, name: str, scope: str, mode: str) -> str:
    """Make an API key with which a program acts for an account. Its text is returned only here and is not kept.

    :raises InvalidRequest: the account has too many keys.
    :raises PermissionDenied: the actor may not do this, or the account is closed.
    """
    with _changing(actor_id, account_id, of_self=True) as change:
        _refuse_closed(change.user)
        key = create_key(owner_id=account_id, name=name, scope=scope, mode=mode)
        change.note(f"Created the API key {key.prefix}.")
        return str(key)


def revoke(actor_id: int, account_id: int, prefix: str) -> None:
    """:raises NotFound: the account has no such key.
    :raises PermissionDenied: the actor may not do this.
    """
    with _changing(actor_id, account_id, of_self=True) as change:
        revoke_key(prefix, owner_id=account_id)
        change.note(f"Revoked the API key {prefix}.")


def set_membership(actor_id: int, account_id: int, group_id: int, *, is_member: bool) -> None:
    """Put an account into a group, or take it out; it may be so already.

    :raises NotFound: the actor sees no such account, or there is no such group.
    :raises PermissionDenied: the actor may not change the account, or not give the group.
    """
    with _changing(actor_id, account_id) as change:
        group = _lock_group(group_id)
        _check_groups(change.actor, [group_id])
        groups = change.user.groups
        if groups.filter(pk=group_id).exists() == is_member:
            return
        (groups.add if is_member else groups.remove)(group)
        change.note(f"{'Added to' if is_member else 'Removed from'} the group “{group.name}”.")


def create_group(actor_id: int, name: str) -> int:
    """Make a group that has no members and permits nothing yet.

    :raises InvalidRequest: another group has this name.
    :raises PermissionDenied: the actor is no administrator.
    """
    with _changing_groups(actor_id):
        group = _save_group(Group(name=name))
        _note(actor_id, group, ADDITION, "Created.")
    return group.pk


def rename_group(actor_id: int, group_id: int, name: str) -> None:
    """:raises InvalidRequest: another group has this name.
    :raises NotFound: there is no such group.
    :raises PermissionDenied: the actor is no administrator.
    """
    with _changing_groups(actor_id):
        group = _lock_group(group_id)
        before, group.name = group.name, name
        if before != name:
            _save_group(group)
            _note(actor_id, group, CHANGE, f"Renamed from “{before}”.")


def delete_group(actor_id: int, group_id: int) -> None:
    """Delete a group with everything that was granted to it. Its members stay.

    :raises NotFound: there is no such group.
    :raises PermissionDenied: the actor is no administrator.
    """
    with _changing_groups(actor_id):
        group = _lock_group(group_id)
        _note(actor_id, group, DELETION, f"Deleted. Members: {group.user_set.count()}.")
        group.delete()


@contextmanager
def _changing_groups(actor_id: int) -> Iterator[None]:
    """:raises PermissionDenied: the actor is no administrator."""
    with transaction.atomic():
        is_administrator = role_of(_lock(actor_id)[actor_id]) is Role.ADMINISTRATOR
        _refuse("" if is_administrator else gettext_noop("Only an administrator can change groups."))
        yield


def _lock_group(group_id: int) -> Group:
    """:raises NotFound: there is no such group."""
    group = Group.objects.select_for_update().filter(pk=group_id).first()
    if group is None:
        raise NotFound(gettext_noop("There is no such group."))
    return group


def _lock_groups(groups: Collection[int]) -> list[Group]:
    """Return those that have not been deleted since a form offered them."""
    return list(Group.objects.select_for_update().filter(pk__in=groups).order_by("pk"))


def _save_group(group: Group) -> Group:
    """:raises InvalidRequest: another group has its name."""
    try:
        with transaction.atomic():
            group.save()
    except IntegrityError as error:
        raise InvalidRequest(gettext_noop("Another group has this name."), field="name") from error
    return group


@contextmanager
def _changing(actor_id: int, account_id: int, *, of_self: bool = False) -> Iterator[Changing]:
    """Lock both accounts for a change of the one by the other.

    :raises NotFound: the actor does not see such an account.
    :raises PermissionDenied: the actor may not change it.
    """
    with transaction.atomic():
        users = _lock(actor_id, account_id)
        actor = standing_of(users[actor_id])
        user = users.get(find_user(actor, account_id).pk)
        if user is None:
            raise AccountChanged()  # it was made between the two statements
        other = standing_of(user)
        if not (of_self and actor.id == other.id):
            _refuse(why_not_change(actor, other))
        yield Changing(actor=actor, user=user, other=other)


def _lock(actor_id: int, account_id: int | None = None) -> dict[int, User]:
    """:raises PermissionDenied: the account that acts was closed or is of no staff any more."""
    # In one order, so that two who change each other do not wait for each other.
    rows = User.objects.select_for_update().filter(Q(pk=actor_id) | Q(pk=account_id)).order_by("pk")
    users = {user.pk: user for user in rows}
    actor = users.get(actor_id)
    if actor is None or not actor.is_active or role_of(actor) is Role.MEMBER:
        raise PermissionDenied()
    return users


def _check_gifts(actor: Standing, role: Role, groups: Collection[int]) -> None:
    if role not in roles_to_give(actor):
        raise PermissionDenied(gettext_noop("Only an administrator makes administrators."))
    _check_groups(actor, groups)


def _check_groups(actor: Standing, groups: Collection[int]) -> None:
    if frozenset(groups) - groups_to_give(actor, groups):
        raise PermissionDenied(gettext_noop("You can give only the groups that you are in."))


def _refuse(reason: str) -> None:
    if reason:
        raise PermissionDenied(reason)


def _refuse_closed(user: User) -> None:
    _refuse("" if user.is_active else gettext_noop("This account is closed. Reopen it first."))


def _flags(role: Role) -> dict[str, bool]:
    return {"is_staff": role is not Role.MEMBER, "is_superuser": role is Role.ADMINISTRATOR}


def _end_sign_ins(user: User) -> None:
    password = marked_anew(user.password) if user.has_usable_password() else make_password(None)
    User.objects.filter(pk=user.pk).update(password=password)


def _listed(names: Collection[str]) -> str:
    return ", ".join(names) or "none"


def _note(actor_id: int, about: User | Group, flag: int, what: str) -> None:
    LogEntry.objects.create(
        user_id=actor_id,
        content_type=ContentType.objects.get_for_model(about),
        object_id=str(about.pk),
        object_repr=str(about)[:200],
        action_flag=flag,
        change_message=what,
    )
