"""``manage.py apikey``."""

from __future__ import annotations

import json
from functools import partial

import pytest
from django.contrib.auth.models import User
from django.core.management.base import CommandError

from sessions_app.callers import check_key
from tests.support.sites.commands import printed

apikey = partial(printed, "apikey")


def test_create_prints_the_key_alone_on_its_line(ada: User) -> None:
    printed = apikey("create", "ada")
    assert printed.count("\n") == 1
    assert check_key(printed.strip()).owner_id == ada.pk


def test_create_for_nobody_ends_with_the_status_of_not_found(db: None) -> None:
    with pytest.raises(CommandError, match="There is no user 'bob'") as caught:
        apikey("create", "bob")
    assert caught.value.returncode == 4


def test_a_scope_is_kept(ada: User) -> None:
    assert not check_key(apikey("create", "ada", "--scope", "read").strip()).may_write


@pytest.mark.parametrize("whole", [True, False])
def test_revoke_takes_the_prefix_or_the_whole_key(ada: User, whole: bool) -> None:
    key = apikey("create", "ada").strip()
    apikey("revoke", key if whole else key.split("_")[1])
    assert "revoked" in apikey("list")


def test_revoke_of_an_unknown_key_says_so(db: None) -> None:
    with pytest.raises(CommandError, match="No key has this prefix"):
        apikey("revoke", "000000000000")


def test_list_shows_no_secret(ada: User) -> None:
    key = apikey("create", "ada").strip()
    _, prefix, secret = key.split("_", 2)
    for shown in (apikey("list"), apikey("list", "--json")):
        assert prefix in shown
        assert secret not in shown
    assert json.loads(apikey("list", "--json"))[0]["owner"] == "ada"
