"""Who is in the tests."""

from __future__ import annotations

from django.contrib.auth import get_user_model
from django.contrib.auth.models import User


def make_user(name: str) -> User:
    """A user of this name, who cannot sign in with a password."""
    return get_user_model().objects.create_user(name)
