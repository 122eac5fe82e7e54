"""Who may change whose account, and what they may give."""

from __future__ import annotations

from itertools import product

import pytest

from mnesis_core.network.people import (
    Role,
    Standing,
    groups_to_give,
    may_see,
    roles_to_give,
    why_not_change,
    why_not_end,
)


def standing(
    id: int, role: Role, *permissions: int, organisation: str = "here", groups: tuple[int, ...] = ()
) -> Standing:
    held = frozenset(permissions)
    return Standing(id=id, role=role, organisation_id=organisation, permissions=held, groups=frozenset(groups))


STAFF, CHIEF = standing(1, Role.STAFF, 10, 11, groups=(5,)), standing(2, Role.ADMINISTRATOR)


@pytest.mark.parametrize(
    ("other", "is_allowed"),
    [
        (standing(3, Role.MEMBER), True),
        (standing(3, Role.STAFF, 10, 11), True),
        (standing(3, Role.MEMBER, 12), False),
        (standing(3, Role.MEMBER, organisation="elsewhere"), False),
        (standing(3, Role.ADMINISTRATOR), False),
        (STAFF, False),
    ],
)
def test_staff_change_those_who_may_do_no_more(other: Standing, is_allowed: bool) -> None:
    assert (not why_not_change(STAFF, other)) == is_allowed
    assert (not why_not_end(STAFF, other)) == is_allowed
    assert not why_not_change(CHIEF, other)


def test_nobody_ends_themselves_and_only_another_administrator_ends_one() -> None:
    everyone = [standing(id, role) for id, role in enumerate(Role, start=20)] + [STAFF, CHIEF]
    for actor, other in product(everyone, everyone):
        if actor.id == other.id or (other.is_administrator and not actor.is_administrator):
            assert why_not_end(actor, other), (actor, other)


def test_staff_see_their_organisation_and_administrators_all() -> None:
    there = standing(3, Role.MEMBER, organisation="elsewhere")
    assert may_see(CHIEF, there)
    assert not may_see(STAFF, there)


def test_nobody_gives_more_than_they_have() -> None:
    assert roles_to_give(STAFF) == (Role.MEMBER, Role.STAFF)
    assert set(roles_to_give(CHIEF)) == set(Role)
    assert groups_to_give(STAFF, [4, 5, 6]) == {5}
    assert groups_to_give(CHIEF, [4, 5, 6]) == {4, 5, 6}
