"""Fixtures for tests of an endpoint, where one transaction is enough: two people, and a program of the first."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.support.people.cast import make_user


@pytest.fixture
def alice(db: None) -> User:
    """The owner of the sessions."""
    return make_user("alice")


@pytest.fixture
def bob(db: None) -> User:
    """Another user."""
    return make_user("bob")


@pytest.fixture
def program(alice: User) -> Client:
    """Alice's program, which gets a 500 as an answer and not as an exception."""
    client = Client(raise_request_exception=False)
    client.force_login(alice)
    return client
