"""Somebody who reads pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test import Client

from tests.support.cast import ada, inspector

__all__ = ["ada", "inspector"]

collect_ignore = ["test_authorizer.py" if connection.vendor == "postgresql" else "test_grants.py"]
"""Each is about what one database has and the other lacks."""


@pytest.fixture
def reader(db: None) -> User:
    return User.objects.create_user("ada")


@pytest.fixture
def browser(reader: User) -> Client:
    client = Client()
    client.force_login(reader)
    return client


@pytest.fixture
def ask(browser: Client) -> Callable[..., str]:
    """The text of a page that must be there."""

    def get(path: str, **parameters: Any) -> str:
        answer = browser.get(path, parameters)
        assert answer.status_code == 200, answer.content
        return answer.content.decode()

    return get
