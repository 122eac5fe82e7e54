"""Who is in the tests."""

from __future__ import annotations

import pytest
from django.contrib.auth import get_user_model
from django.contrib.auth.models import User
from django.test import Client

from mnesis_core.actor import Actor, ActorKind
from sessions_app.callers import Caller


def make_user(name: str) -> User:
    """A user of this name, who cannot sign in with a password."""
    return get_user_model().objects.create_user(name)


def caller_of(user: User, *, may_write: bool = True) -> Caller:
    """This user as an endpoint knows them, without asking the database for their pseudonym."""
    return Caller(user=user, may_write=may_write, actor=Actor(kind=ActorKind.USER, ref=f"of-{user.get_username()}"))


@pytest.fixture
def owner(db: None) -> User:
    """The owner of the sessions, in a test that commits nothing."""
    return make_user("ada")


@pytest.fixture
def owner_client(owner: User) -> Client:
    """A client that the owner has signed in to."""
    client = Client()
    client.force_login(owner)
    return client


@pytest.fixture
def ada(db: None) -> User:
    """An administrator."""
    return get_user_model().objects.create_superuser("ada")


@pytest.fixture
def inspector(ada: User, client: Client) -> Client:
    """The administrator at the inspector."""
    client.force_login(ada)
    return client
