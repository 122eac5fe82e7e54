"""Changes of one process that wait for SQLite's one writer share its commits; each is durable when it has returned."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
from collections.abc import Callable
from typing import Any

import pytest
from django.db import DatabaseError, connection, transaction
from django.db.backends.base.base import BaseDatabaseWrapper
from django.db.transaction import TransactionManagementError

from sessions_app.database.group_commit import MOST_CHANGES, durable_transaction
from sessions_app.models import Event, Session
from sessions_app.record import session_store
from sessions_app.record.change import change
from tests.support.people.cast import make_user

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db(transaction=True)]


@pytest.fixture
def session_ids() -> list[str]:
    owner = make_user("alice")
    return [session_store.create_session(owner=owner, model="demo", title="old") for _ in range(8)]


def rename(session_id: str, title: str) -> None:
    with change(session_id) as record:
        session_store.update_session(record, title=title)


def at_once(calls: list[Callable[[], None]]) -> list[BaseException]:
    """Run calls in threads of their own, all held up until the last one waits; returns what they raised."""
    raised: list[BaseException] = []
    everybody = threading.Barrier(len(calls))

    def run(call: Callable[[], None]) -> None:
        everybody.wait()
        try:
            call()
        except Exception as error:
            raised.append(error)
        finally:
            connection.close()

    threads = [threading.Thread(target=run, args=[call]) for call in calls]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return raised


def stored_title(session_id: str) -> str:
    """What another connection finds."""
    return Session.objects.values_list("title", flat=True).get(id=session_id)


def test_many_at_once_are_all_stored_when_they_return(session_ids: list[str]) -> None:
    def write(session_id: str) -> None:
        for number in range(5):
            rename(session_id, str(number))
            assert stored_title(session_id) == str(number)

    assert at_once([lambda id=id: write(id) for id in session_ids]) == []  # type: ignore[misc]
    assert Event.objects.filter(type="session.updated").count() == 40


def test_one_that_fails_takes_back_its_own_and_nothing_else(session_ids: list[str]) -> None:
    def fail() -> None:
        with change(session_ids[0]) as record:
            session_store.update_session(record, title="never")
            raise ZeroDivisionError

    others = [lambda id=id: rename(id, "new") for id in session_ids[1:]]  # type: ignore[misc]
    [error] = at_once([fail, *others])
    assert isinstance(error, ZeroDivisionError)
    assert [stored_title(id) for id in session_ids] == ["old", *["new"] * 7]


def test_what_a_failed_one_wanted_to_tell_is_not_told(session_ids: list[str]) -> None:
    told: list[str] = []

    def write(session_id: str, *, fails: bool) -> None:
        with change(session_id) as record:
            session_store.update_session(record, title="new")
            transaction.on_commit(lambda: told.append(session_id))
            if fails:
                raise ZeroDivisionError

    calls = [lambda id=id, n=n: write(id, fails=n % 2 == 0) for n, id in enumerate(session_ids)]  # type: ignore[misc]
    assert len(at_once(calls)) == 4
    assert sorted(told) == sorted(session_ids[1::2])


def test_one_that_catches_a_database_error_takes_back_its_own(session_ids: list[str]) -> None:
    def write(session_id: str) -> None:
        with pytest.raises(TransactionManagementError), change(session_id) as record:  # noqa: PT012 - the block is what is tested
            session_store.update_session(record, title="never")
            with contextlib.suppress(DatabaseError):
                Session.objects.raw("SELECT nothing FROM nowhere")[0]
            transaction.set_rollback(True)

    others = [lambda id=id: rename(id, "new") for id in session_ids[2:]]  # type: ignore[misc]
    assert at_once([lambda: write(session_ids[0]), lambda: write(session_ids[1]), *others]) == []
    assert [stored_title(id) for id in session_ids] == ["old", "old", *["new"] * 6]


def test_inside_another_transaction_a_change_is_a_part_of_it(session_ids: list[str]) -> None:
    with transaction.atomic():
        rename(session_ids[0], "new")
        transaction.set_rollback(True)
    assert stored_title(session_ids[0]) == "old"


def test_what_is_to_be_told_is_told_after_the_commit(session_ids: list[str]) -> None:
    told = []
    with durable_transaction():
        transaction.on_commit(lambda: told.append("told"))
        assert told == []
    assert told == ["told"]


if connection.vendor == "sqlite":

    def commits_of(calls: list[Callable[[], None]], monkeypatch: pytest.MonkeyPatch) -> int:
        count = 0

        class Counting(sqlite3.Connection):
            def commit(self) -> None:
                nonlocal count
                count += 1
                super().commit()

        monkeypatch.setitem(connection.settings_dict["OPTIONS"], "factory", Counting)
        monkeypatch.setattr("sessions_app.database.group_commit._writer", None)
        assert at_once(calls) == []
        return count

    def test_those_that_wait_share_commits(session_ids: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
        begun = threading.Event()

        def hold_up() -> None:
            with change(session_ids[0]) as record:
                begun.set()
                session_store.update_session(record, title="new")
                threading.Event().wait(0.3)

        def after(session_id: str) -> None:
            begun.wait()
            rename(session_id, "new")

        calls = [hold_up, *(lambda id=id: after(id) for id in session_ids[1:])]  # type: ignore[misc]
        assert commits_of(calls, monkeypatch) < len(calls)
        assert {stored_title(id) for id in session_ids} == {"new"}
        assert len(session_ids) < MOST_CHANGES

    def test_a_commit_that_fails_is_told_to_everybody_who_waits_for_it(
        session_ids: list[str], monkeypatch: pytest.MonkeyPatch
    ) -> None:
        class Failing(sqlite3.Connection):
            def commit(self) -> None:
                raise sqlite3.OperationalError("disk I/O error")

        monkeypatch.setitem(connection.settings_dict["OPTIONS"], "factory", Failing)
        monkeypatch.setattr("sessions_app.database.group_commit._writer", None)
        raised = at_once([lambda id=id: rename(id, "new") for id in session_ids])  # type: ignore[misc]
        assert len(raised) == len(session_ids)
        assert all(isinstance(error, DatabaseError) for error in raised)
        assert {stored_title(id) for id in session_ids} == {"old"}
        monkeypatch.setattr("sessions_app.database.group_commit._writer", None)

    def test_an_end_that_breaks_off_does_not_spoil_what_follows(session_ids: list[str], monkeypatch: Any) -> None:
        """Whatever is raised there, a later change is a transaction of its own, and tells of itself after its commit."""

        def break_off(*_: object, **__: object) -> None:
            raise MemoryError

        def lose() -> None:
            with change(session_ids[0]) as record:
                session_store.update_session(record, title="lost")
                broken.setattr(BaseDatabaseWrapper, "commit", break_off)
                broken.setattr(BaseDatabaseWrapper, "ensure_connection", break_off)

        with monkeypatch.context() as broken, pytest.raises(MemoryError):
            lose()
        told: list[str] = []
        with change(session_ids[1]) as record:
            session_store.update_session(record, title="new")
            transaction.on_commit(lambda: told.append(stored_title(session_ids[1])))
        assert told == ["new"]
        assert stored_title(session_ids[0]) == "old"
