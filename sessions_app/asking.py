"""Who asks at a door."""

from __future__ import annotations

from dataclasses import dataclass

from django.contrib.auth.models import User
from django.http import HttpRequest

from mnesis_core.errors import NotSignedIn, PermissionDenied


@dataclass(frozen=True, slots=True, kw_only=True)
class Caller:
    """Who asks, and whether they may do more than look."""

    user: User
    may_write: bool

    @property
    def owner_id(self) -> int:
        """Whose sessions they see."""
        return self.user.pk


def owner_id(request: HttpRequest) -> int:
    """The id of the person who is signed in, by cookie or key.

    :raises NotSignedIn: nobody is.
    """
    if request.user.pk is None:
        raise NotSignedIn()
    return request.user.pk


def check_may_write(may_write: bool) -> None:
    """:raises PermissionDenied: who asks holds a key that may only read."""
    if not may_write:
        raise PermissionDenied("This API key may only read. Make one with '--scope all' to write.")
