"""The only writer of people: the one place where a pseudonym of the ledgers meets an account."""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import Any

from django.contrib.auth import get_user_model

from mnesis_core.actor import Actor, ActorKind
from sessions_app.models import Person

REF_BYTES = 16
_refs: dict[int, str] = {}  # by account; a pseudonym never changes


def ref_of(user_id: int) -> str:
    """Return the pseudonym of an account, which gets one if it was made without."""
    if user_id not in _refs:
        person, is_new = Person.objects.get_or_create(user_id=user_id, defaults={"ref": new_ref()})
        if is_new:  # not remembered, since the transaction may be rolled back
            return str(person.ref)
        _refs[user_id] = person.ref
    return _refs[user_id]


def new_ref() -> str:
    return secrets.token_urlsafe(REF_BYTES)


def greet_new_account(sender: Any, instance: Any, created: bool, **_: Any) -> None:
    """Give a new account its pseudonym in the transaction that makes it."""
    if created:
        ref_of(instance.pk)


def user_actor(user_id: int) -> Actor:
    return Actor(kind=ActorKind.USER, ref=ref_of(user_id))


def key_actor(prefix: str, owner_id: int) -> Actor:
    return Actor(kind=ActorKind.KEY, ref=prefix, for_ref=ref_of(owner_id))


def names_of(refs: Collection[str]) -> dict[str, str]:
    """Return the names of the accounts behind these pseudonyms, of those that are known here."""
    people = dict(Person.objects.filter(ref__in=refs).values_list("ref", "user_id"))
    names = dict(get_user_model().objects.filter(pk__in=people.values()).values_list("pk", "username"))
    return {ref: names[user_id] for ref, user_id in people.items() if user_id in names}
