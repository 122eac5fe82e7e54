"""A person in another organisation."""

from __future__ import annotations

from sessions_app.models import Organisation, Person
from sessions_app.record.organisation_store import add_organisation, ref_of


def put_into(slug: str, user_id: int) -> str:
    """Put an account into an organisation whatever runs, and return the organisation's id."""
    ref_of(user_id)
    found = Organisation.objects.filter(slug=slug).values_list("id", flat=True).first()
    organisation = str(found or add_organisation(slug).id)
    Person.objects.filter(user_id=user_id).update(organisation=organisation)
    return organisation
