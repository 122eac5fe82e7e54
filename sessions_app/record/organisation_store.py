"""The only writer of organisations, which own sessions beside the person, and of people, the accounts' pseudonyms.

A site has one organisation until more are added. Each account is in exactly one, and a session stays in the one
it was made in. Its owner has it while they are in it: ``ownership`` says so for every query.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Collection
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from django.contrib.auth import get_user_model
from django.db import IntegrityError, transaction
from django.db.models import Exists, OuterRef, Q
from django.utils import timezone

from mnesis_core.actor import Actor, ActorKind
from mnesis_core.errors import DuplicateIDError, InvalidRequest, NotFound, SessionBusy
from mnesis_core.records import TurnState, new_id, record_of
from sessions_app.models import Organisation, Person, Turn

DEFAULT = "default"
_SLUG = re.compile(r"[a-z0-9][a-z0-9-]{0,62}")


@dataclass(frozen=True, slots=True, kw_only=True)
class OrganisationRecord:
    id: str
    slug: str
    name: str
    created_at: datetime


def default_id() -> str:
    """Return the id of the organisation that an account is in unless it was moved; a new site gets it here."""
    row, _ = Organisation.objects.get_or_create(
        slug=DEFAULT, defaults={"id": new_id("org"), "created_at": timezone.now()}
    )
    return str(row.id)


def add_organisation(slug: str, *, name: str = "") -> OrganisationRecord:
    """:raises InvalidRequest: the slug has other characters than it may have.
    :raises DuplicateIDError: there is one of this slug.
    """
    if not _SLUG.fullmatch(slug):
        raise InvalidRequest("A slug has lower-case letters, digits and hyphens, and at most 63 of them.", field="slug")
    default_id()
    try:
        with transaction.atomic():
            row = Organisation.objects.create(id=new_id("org"), slug=slug, name=name, created_at=timezone.now())
    except IntegrityError as error:
        raise DuplicateIDError(f"There is an organisation {slug!r} already.", id=slug) from error
    return record_of(OrganisationRecord, row)


def list_organisations() -> list[OrganisationRecord]:
    """Return all of them, the site's own one first."""
    default_id()
    return [record_of(OrganisationRecord, row) for row in Organisation.objects.order_by("created_at", "id")]


def are_several() -> bool:
    """Say whether people need to be told of organisations at all."""
    return len(Organisation.objects.values_list("id")[:2]) > 1


def find_organisation(name: str) -> OrganisationRecord:
    """Return the organisation with this slug or id.

    :raises NotFound: there is none.
    """
    row = Organisation.objects.filter(Q(slug=name) | Q(id=name)).first()
    if row is None:
        raise NotFound(
            "No organisation has this slug or id. 'manage.py organisation list' shows all.", organisation=name
        )
    return record_of(OrganisationRecord, row)


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


def homes_of(user_ids: Collection[int]) -> dict[int, str]:
    """Return by account the name of the organisation that each of these is in, in one query."""
    people = Person.objects.filter(user_id__in=user_ids).select_related("organisation")
    return {person.user_id: str(person.organisation) for person in people}


def accounts_in(organisation_id: str) -> Q:
    """Return what limits accounts to those of an organisation; one that has no pseudonym yet is in the site's own."""
    known = Person.objects.filter(user_id=OuterRef("pk"))
    there = Q(Exists(known.filter(organisation=organisation_id)))
    return there | Q(~Exists(known)) if organisation_id == default_id() else there


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
