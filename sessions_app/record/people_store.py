"""The only writer of people: which account a pseudonym of the ledgers stands for, and in which organisation it is."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import Any

from django.contrib.auth import get_user_model
from django.db import transaction

from mnesis_core.actor import Actor, ActorKind
from mnesis_core.errors import SessionBusy
from mnesis_core.records import TurnState
from sessions_app.models import Person, Turn
from sessions_app.record.organisation_store import default_id

REF_BYTES = 16
_refs: dict[int, str] = {}  # by account; a pseudonym never changes


def ref_of(user_id: int) -> str:
    """Return the pseudonym of an account, which gets one if it was made without."""
    if user_id not in _refs:
        person, is_new = _person(user_id)
        if is_new:  # not remembered, since the transaction may be rolled back
            return str(person.ref)
        _refs[user_id] = person.ref
    return _refs[user_id]


def _person(user_id: int) -> tuple[Person, bool]:
    made: dict[str, Any] = {"ref": new_ref, "organisation_id": default_id}
    return Person.objects.get_or_create(user_id=user_id, defaults=made)


def new_ref() -> str:
    return secrets.token_urlsafe(REF_BYTES)


def greet_new_account(sender: Any, instance: Any, created: bool, **_: Any) -> None:
    """Give a new account its pseudonym and its organisation in the transaction that makes it."""
    if created:
        _person(instance.pk)


def home_of(user_id: int) -> str:
    """Return the organisation that an account is in."""
    person, _ = _person(user_id)
    return str(person.organisation_id)


def move_person(user_id: int, organisation_id: str) -> None:
    """Put an account into an organisation. Its sessions stay where they are, out of its reach (``ownership``).

    :raises SessionBusy: one of its turns is running, which would go on in the organisation that it leaves.
    """
    with transaction.atomic():
        person, _ = _person(user_id)
        running = Turn.objects.filter(session__owner_id=user_id, state=TurnState.RUNNING.value)
        if session_id := running.values_list("session_id", flat=True).first():
            raise SessionBusy("A turn of this account is running. Wait for it, or interrupt it.", session_id=session_id)
        Person.objects.filter(pk=person.pk).update(organisation=organisation_id)


def user_actor(user_id: int) -> Actor:
    return Actor(kind=ActorKind.USER, ref=ref_of(user_id))


def key_actor(prefix: str, owner_id: int) -> Actor:
    return Actor(kind=ActorKind.KEY, ref=prefix, for_ref=ref_of(owner_id))


def names_of(refs: Collection[str]) -> dict[str, str]:
    """Return the names of the accounts behind these pseudonyms, of those that are known here."""
    people = dict(Person.objects.filter(ref__in=refs).values_list("ref", "user_id"))
    names = dict(get_user_model().objects.filter(pk__in=people.values()).values_list("pk", "username"))
    return {ref: names[user_id] for ref, user_id in people.items() if user_id in names}
