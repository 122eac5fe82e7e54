"""What two of the staff do to accounts at the same moment, each on a connection of their own."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection

from mnesis_core.errors import AccountChanged, InvalidRequest, MnesisError, NotFound, PermissionDenied
from mnesis_core.network.people import Role
from mnesis_site.people import people_store
from mnesis_site.people.accounts import account_of

# Committed, because what is tried has connections of its own.
pytestmark = [pytest.mark.usefixtures("transactional_db"), pytest.mark.both_databases]


def at_once(*acts: Callable[[], object]) -> list[type[MnesisError] | None]:
    """What each of the acts failed with."""
    start = Barrier(len(acts))

    def run(act: Callable[[], object]) -> type[MnesisError] | None:
        try:
            start.wait()
            act()
        except MnesisError as error:
            return type(error)
        finally:
            connection.close()
        return None

    with ThreadPoolExecutor(len(acts)) as threads:
        return list(threads.map(run, acts))


def test_of_two_administrators_who_close_each_other_one_stays() -> None:
    ada, eve = (User.objects.create_superuser(name) for name in ("ada", "eve"))
    outcomes = at_once(lambda: people_store.close(ada.pk, eve.pk), lambda: people_store.close(eve.pk, ada.pk))
    assert sorted(map(str, outcomes)) == sorted(map(str, [None, PermissionDenied]))
    assert User.objects.filter(is_active=True).count() == 1


def test_of_two_changes_that_saw_the_same_account_one_counts() -> None:
    ada, eve = (User.objects.create_superuser(name) for name in ("ada", "eve"))
    bob = User.objects.create_user("bob")
    version = account_of(bob).version

    def changing(actor: User, role: Role) -> Callable[[], object]:
        return lambda: people_store.change_account(actor.pk, bob.pk, role=role, email="", groups=[], version=version)

    outcomes = at_once(changing(ada, Role.STAFF), changing(eve, Role.ADMINISTRATOR))
    assert sorted(map(str, outcomes)) == sorted(map(str, [None, AccountChanged]))
    bob.refresh_from_db()
    assert bob.is_superuser == (outcomes[1] is None)


def test_one_name_is_given_once() -> None:
    ada = User.objects.create_superuser("ada")

    def inviting() -> None:
        people_store.invite(ada.pk, username="nora", email="", role=Role.MEMBER, groups=[])

    assert sorted(map(str, at_once(inviting, inviting))) == sorted(map(str, [None, InvalidRequest]))


def test_one_name_is_given_to_one_group() -> None:
    ada = User.objects.create_superuser("ada")

    def creating() -> None:
        people_store.create_group(ada.pk, "Writers")

    assert sorted(map(str, at_once(creating, creating))) == sorted(map(str, [None, InvalidRequest]))


def test_no_one_is_put_into_a_group_while_it_is_deleted() -> None:
    ada, eve = (User.objects.create_superuser(name) for name in ("ada", "eve"))
    group = Group.objects.create(name="Writers")
    deleted, added = at_once(
        lambda: people_store.delete_group(ada.pk, group.pk),
        lambda: people_store.set_membership(eve.pk, eve.pk, group.pk, is_member=True),
    )
    assert deleted is None
    assert added in (None, NotFound)
    assert not User.groups.through.objects.exists()


def test_a_group_that_was_deleted_since_the_form_offered_it_is_not_given() -> None:
    ada, bob = User.objects.create_superuser("ada"), User.objects.create_user("bob")
    writers, gone = (Group.objects.create(name=name) for name in ("Writers", "Gone"))
    chosen = [writers.pk, gone.pk]
    people_store.delete_group(ada.pk, gone.pk)
    nora = people_store.invite(ada.pk, username="nora", email="", role=Role.MEMBER, groups=chosen)
    version = account_of(bob).version
    people_store.change_account(ada.pk, bob.pk, role=Role.MEMBER, email="", groups=chosen, version=version)
    assert set(nora.groups.all()) == set(bob.groups.all()) == {writers}
