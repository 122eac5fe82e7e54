"""What one person may spend, as an administrator sets it: by command and in the inspector."""

from __future__ import annotations

from functools import partial

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError
from django.test import Client

from sessions_app.llm.spending_store import load_account_limits
from sessions_app.models import AccountLimit
from tests.support.people.cast import make_user
from tests.support.record.inspected import list_of, page_of, shown
from tests.support.sites.commands import printed


@pytest.fixture
def ada(db: None) -> User:
    return make_user("ada")


limit = partial(printed, "limit")


def test_limits_are_set_changed_and_taken_away_by_command(ada: User) -> None:
    assert limit("set", "ada", "day.tokens=100", "user.cost_micros=5") == "ada: day.tokens=100 user.cost_micros=5\n"
    assert limit("set", "ada", "day.tokens=0", "day.seconds=7") == "ada: day.seconds=7 user.cost_micros=5\n"
    assert load_account_limits(ada.pk) == {"day": {"tokens": 0, "seconds": 7}, "user": {"cost_micros": 5}}
    assert limit("list") == "ada: day.seconds=7 user.cost_micros=5\n"
    assert '"user": "ada"' in limit("list", "--json")
    assert limit("clear", "ada") == "ada: as the site allows\n"
    assert limit("list") == ""


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("set", "eve", "day.tokens=1"), "There is no user 'eve'"),
        (("set", "ada", "day.tokens"), "must look like day.tokens=100000"),
        (("set", "ada", "day.tokens=-1"), "must look like"),
        (("set", "ada", "week.tokens=1"), "limits.week is not a setting"),
        (("set", "ada", "day.words=1"), "limits.day.words is not a setting"),
    ],
)
def test_what_is_no_limit_is_refused_in_words(ada: User, arguments: tuple[str, ...], problem: str) -> None:
    with pytest.raises(CommandError) as refused:
        limit(*arguments)
    assert problem in str(refused.value)
    assert load_account_limits(ada.pk) == {}


def test_limits_are_set_in_the_inspector(ada: User, client: Client) -> None:
    client.force_login(User.objects.create_superuser("admin"))
    values = {"owner": ada.pk, "limits": '{"message_characters": 5}'}
    assert "is no limit of a person" in client.post(list_of(AccountLimit, "add"), values).content.decode()
    values = {"owner": ada.pk, "limits": '{"day": {"tokens": 100}}'}
    assert client.post(list_of(AccountLimit, "add"), values).status_code == 302
    assert load_account_limits(ada.pk) == {"day": {"tokens": 100}}
    row = AccountLimit.objects.get()
    refused = client.post(page_of(row), {"limits": '{"week": {"tokens": 100}}'})
    assert "limits.week is not a setting" in refused.content.decode()
    assert client.post(page_of(row), {"limits": '{"day": {"tokens": 9}}'}).status_code == 302
    assert load_account_limits(ada.pk) == {"day": {"tokens": 9}}
    assert "tokens" in shown(client, list_of(AccountLimit))
