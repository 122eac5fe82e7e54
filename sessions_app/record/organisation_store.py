"""The only writer of organisations, which own sessions beside the person. A site has one until more are added.

Each account is in exactly one organisation (``people_store``), and a session stays in that in which it was made. Its
owner has it while they are in it: ``ownership`` says so for every query.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import datetime

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.utils import timezone

from mnesis_core.errors import DuplicateIDError, InvalidRequest, NotFound
from mnesis_core.records import new_id, record_of
from sessions_app.models import Organisation

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
