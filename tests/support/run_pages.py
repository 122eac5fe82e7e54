"""Pages of runs, read by who they belong to."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import User
from django.test import Client

from tests.support.cast import make_user
from tests.support.operators import accept, add_run, claim, refuse, settle

Ask = Callable[..., str]


@pytest.fixture
def reader(db: None) -> User:
    """Whose runs these are."""
    return make_user("ada")


@pytest.fixture
def browser(reader: User) -> Client:
    """The reader's."""
    client = Client()
    client.force_login(reader)
    return client


@pytest.fixture
def ask(browser: Client) -> Ask:
    """A page of the reader's, by its path."""

    def get(path: str, **parameters: object) -> str:
        answer = browser.get(path, parameters)
        assert answer.status_code == 200, answer.content
        return answer.content.decode()

    return get


def tried(session_id: str, **values: object) -> str:
    """A run of three items: one completed, one failed, one in flight."""
    run_id = add_run(session_id, **values)
    first, second, _ = claim(session_id, run_id)
    settle(session_id, run_id, [accept(first), refuse(second)])
    return run_id
