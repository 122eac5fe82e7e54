"""Whose a session is: its owner's, while that account is in the session's organisation. Every query asks here.

A person who is moved to another organisation leaves her sessions behind; moved back, she has them again.
"""

from __future__ import annotations

from typing import Any

from django.db.models import OuterRef, Q, QuerySet, Subquery

from sessions_app.models import Person

HOME = "(SELECT h.organisation_id FROM people h WHERE h.user_id = %s)"
"""The organisation of an account, in statements that are written out."""

_OF_OWNER = Person.objects.filter(user_id=OuterRef("owner_id"))
HOME_OF_OWNER = Subquery(_OF_OWNER.values("organisation_id")[:1])
"""The organisation that the owner of a row is in."""


def owned_by(user_id: int, path: str = "") -> Q:
    """Return what limits sessions to those of a person; ``path`` leads to them from other rows: ``session__``."""
    return Q(**{f"{path}owner_id": user_id, f"{path}organisation_id": home_of_user(user_id)})


def home_of_user(user_id: int) -> QuerySet[Person, Any]:
    """Return the id of the organisation that an account is in, as part of another query."""
    return Person.objects.filter(user_id=user_id).values("organisation_id")[:1]
