"""What people did and spent, for the staff who look after their accounts, asked for many at once."""

from __future__ import annotations

from datetime import timedelta

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.utils import timezone

from mnesis_core.spending import Spent
from sessions_app.callers import check_key
from sessions_app.llm import limits
from sessions_app.llm.limits import days_of, limits_for_person, look
from sessions_app.llm.model_store import create_key
from sessions_app.llm.spending_store import activity_of, put_account_limits
from sessions_app.models import ApiKey, Session, SpendingMark
from tests.support.people.cast import make_user
from tests.support.people.organisations import put_into
from tests.support.processes.spenders import begin_call, open_turn, spend
from tests.support.record.talks import new_session

pytestmark = [pytest.mark.django_db, pytest.mark.both_databases]


def test_sessions_are_counted_where_their_owner_is_and_without_sub_agents() -> None:
    ada, idle = make_user("ada"), make_user("idle")
    session = new_session(ada)
    new_session(ada, parent_id=session, parent_part_id="part_1", origin="sub_agent")
    found = activity_of([ada.pk, idle.pk])
    assert found.keys() == {ada.pk}
    assert found[ada.pk].sessions == 1
    assert found[ada.pk].seen_at == max(Session.objects.values_list("updated_at", flat=True))
    put_into("other", ada.pk)
    assert activity_of([ada.pk]) == {}


def test_a_use_of_a_key_is_seen() -> None:
    ada = make_user("ada")
    key = create_key(owner_id=ada.pk)
    assert activity_of([ada.pk]) == {}
    check_key(str(key))
    found = activity_of([ada.pk])[ada.pk]
    assert (found.sessions, found.seen_at) == (0, ApiKey.objects.get().last_used_at)


def test_the_day_of_each_is_what_their_limit_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(limits, "KEEP_AFTER_CALLS", 3)
    monkeypatch.setattr(limits, "SETTLES", timedelta())
    ada, bob, idle = map(make_user, ("ada", "bob", "idle"))
    put_account_limits(ada.pk, {"day": {"tokens": 10_000}})
    turn = open_turn(new_session(ada))
    spend(turn, 7, at=timezone.now() - timedelta(days=1))
    for tokens in range(1, 11):
        spend(turn, tokens)
    spend(open_turn(new_session(bob)), 500)
    assert SpendingMark.objects.filter(id__startswith=f"day:{ada.pk}:", until__isnull=False).exists()
    days = days_of([ada.pk, bob.pk, idle.pk])
    assert days[ada.pk].limits.tokens == 10_000
    assert days[ada.pk].spent.tokens == 55 == look(limits_for_person(ada.pk))[0].spent.tokens
    assert (days[bob.pk].spent.tokens, days[bob.pk].limits.is_none) == (500, True)
    assert days[idle.pk].spent == Spent()
    begin_call(turn)
    assert days_of([ada.pk])[ada.pk].spent.tokens == 55  # what runs counts when it has ended


def test_many_people_take_as_many_queries_as_one() -> None:
    users = [make_user(f"person {number}").pk for number in range(9)]

    def queries(owner_ids: list[int]) -> int:
        with CaptureQueriesContext(connection) as captured:
            activity_of(owner_ids)
            days_of(owner_ids)
        return len(captured)

    assert queries(users) == queries(users[:1])
    assert days_of([]) == {}
