"""A user with a session, and a program of theirs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.support.people.cast import make_user
from tests.support.people.story import script, session
from tests.support.record.talks import new_session
from tests.support.servers.picture_server import picture_server, pictures

__all__ = ["alice", "picture_server", "pictures", "program", "script", "session", "session_id"]


@pytest.fixture
def alice(db: None) -> User:
    """The owner of the files."""
    return make_user("alice")


@pytest.fixture
def session_id(alice: User) -> str:
    """A session of Alice's."""
    return new_session(alice)


@pytest.fixture
def program(alice: User, settings: Any, tmp_path: Path) -> Client:
    """Alice's program, which gets a 500 as an answer and not as an exception."""
    settings.MNESIS = settings.MNESIS | {"UPLOAD_FOLDER": tmp_path / "uploads"}
    client = Client(raise_request_exception=False)
    client.force_login(alice)
    return client
