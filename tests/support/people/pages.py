"""A user who reads pages. Tests name these fixtures as their own."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.support.people.cast import make_user

Ask = Callable[..., str]


@pytest.fixture
def reader(db: None) -> User:
    """The person who is signed in."""
    return make_user("ada")


@pytest.fixture
def browser(reader: User) -> Client:
    """The reader's."""
    client = Client()
    client.force_login(reader)
    return client


@pytest.fixture
def ask(browser: Client) -> Ask:
    """The text of a page that must be there, by its path."""

    def get(path: str, **parameters: object) -> str:
        answer = browser.get(path, parameters)
        assert answer.status_code == 200, answer.content
        return answer.content.decode()

    return get
