"""Who asks at a door."""

from __future__ import annotations

from django.http import HttpRequest

from mnesis_core.errors import NotSignedIn


def owner_id(request: HttpRequest) -> int:
    """The id of the person who is signed in, by cookie or key.

    :raises NotSignedIn: nobody is.
    """
    if request.user.pk is None:
        raise NotSignedIn()
    return request.user.pk
