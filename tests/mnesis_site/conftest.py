"""A user with an account."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User


@pytest.fixture
def ada(db: None) -> User:
    return User.objects.create_user("ada", password="correct horse")
