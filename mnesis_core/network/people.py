"""The accounts of a site: what each may be, and who may change whose. No one gives more than they have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum


class Role(StrEnum):
    MEMBER = "member"  # has sessions of their own
    STAFF = "staff"  # sees the pages for staff that their groups permit
    ADMINISTRATOR = "administrator"  # may do everything


class State(StrEnum):
    ACTIVE = "active"
    INVITED = "invited"  # has no password; a link lets them choose one
    CLOSED = "closed"


REFUSALS = {
    "own": "Only an administrator can change your account.",
    "other": "Only an administrator can change this account.",
    "higher": "This account has more permissions than yours, so only an administrator can change it.",
    "self": "You cannot do this to your own account.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What an account is and may do, as far as it decides who may change it."""

    id: int
    role: Role
    organisation_id: str
    permissions: frozenset[int] = frozenset()  # those of a closed account too: it may be opened again
    groups: frozenset[int] = frozenset()

    @property
    def is_administrator(self) -> bool:
        return self.role is Role.ADMINISTRATOR


def may_see(actor: Standing, other: Standing) -> bool:
    return actor.is_administrator or actor.organisation_id == other.organisation_id


def why_not_change(actor: Standing, other: Standing) -> str:
    """Return why one account may not change another, in words for its owner; empty if it may.

    Someone who can make a link for another account can be that account, so a change of any kind takes all of its rights.
    """
    if actor.is_administrator:
        return ""
    if actor.id == other.id:
        return REFUSALS["own"]
    if other.is_administrator or not may_see(actor, other):
        return REFUSALS["other"]
    if not other.permissions <= actor.permissions:
        return REFUSALS["higher"]
    return ""


def why_not_end(actor: Standing, other: Standing) -> str:
    """Return why one account may not close another or take its password or role; empty if it may.

    No administrator closes their own account, and no one else closes an administrator's, so one is always left.
    """
    if actor.id == other.id:
        return REFUSALS["self"]
    return why_not_change(actor, other)


def roles_to_give(actor: Standing) -> tuple[Role, ...]:
    return tuple(Role) if actor.is_administrator else (Role.MEMBER, Role.STAFF)


def groups_to_give(actor: Standing, groups: Iterable[int]) -> frozenset[int]:
    """Return the groups that an account may put others into, and take them out of: those that it is in itself.

    A group may open models and tool servers beside what it permits, so its permissions alone do not tell what it gives.
    """
    return frozenset(groups) if actor.is_administrator else frozenset(groups) & actor.groups
