"""A database that an earlier version wrote migrates, is proven, and gives back what it was asked to keep."""

from __future__ import annotations

import json
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from django.db import connection

from tests.support.proof.old_databases import TITLE, old_databases, restore
from tests.support.proof.second_opinion import problems_of_old
from tests.support.proof.second_verifier import problems_of_session, read_export
from tests.support.sites.databases import site_database
from tests.support.sites.site import DATABASE, environment_for, manage

READ = f"""
import json
from django.contrib.auth.models import User
from django.test import Client
from sessions_app.models import Organisation, Person, Session
client = Client(headers={{"Host": "localhost"}})
client.force_login(User.objects.get(username="ada"))
listed = client.get("/api/sessions", {{"q": {TITLE!r}}}).json()["items"]
session = next(item["id"] for item in listed if item["title"] == {TITLE!r})
calls = client.get(f"/api/sessions/{{session}}/calls").json()["items"]
rebuilt = [client.get(f"/api/calls/{{call['id']}}/payload").json() for call in calls]
events = client.get(f"/api/sessions/{{session}}/events").json()["items"]
actors = [event["data"].get("actor") for event in events]
organisations = [one.slug for one in Organisation.objects.filter(pk__in=Session.objects.values("organisation_id"))]
nameless = User.objects.exclude(pk__in=Person.objects.values("user_id")).count()
print(json.dumps([session, [[payload["digest_matches"], payload["problems"]] for payload in rebuilt], actors, nameless, organisations]))
"""
Old = tuple[dict[str, str], str]


def done(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    """A command that must succeed."""
    ended = manage(*arguments, environment=environment)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return ended


@pytest.fixture(params=old_databases(connection.vendor), ids=lambda path: path.name)
def old(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Old]:
    """The environment of a site with a copy of an old database, migrated; and the address of a server."""
    with site_database("old") as database:
        restore(request.param, tmp_path, database)
        environment = environment_for(tmp_path, **database)
        done(environment, "migrate", "-v0")
        yield environment, database.get("DATABASE_URL", "")


def test_there_is_an_old_database_of_this_kind() -> None:
    assert old_databases(connection.vendor)


@pytest.mark.slow
def test_the_second_verifier_proves_an_old_database_as_it_is(tmp_path: Path) -> None:
    for stored in old_databases(connection.vendor):
        with site_database("old") as database:
            restore(stored, tmp_path, database)
            assert problems_of_old(tmp_path, tmp_path / DATABASE, database.get("DATABASE_URL", "")) == set()


@pytest.mark.slow
def test_an_old_database_is_proven_and_its_prompts_and_exports_are_there(old: Old, tmp_path: Path) -> None:
    environment, _ = old
    assert "Everything is as it was written." in done(environment, "verify", "--all").stdout
    session, rebuilt, actors, nameless, organisations = json.loads(done(environment, "shell", "-v0", "-c", READ).stdout)
    # Its entries name nobody and stay as they are; its accounts have pseudonyms for what comes.
    assert actors == [None] * len(actors)
    assert nameless == 0
    assert organisations == ["default"]
    assert len(rebuilt) >= 5
    assert rebuilt == [[True, []]] * len(rebuilt)
    done(environment, "export", "--all", "--out", str(tmp_path / "all.jsonl"))
    assert session in (tmp_path / "all.jsonl").read_text()
    with (tmp_path / "all.jsonl").open("rb") as lines:
        assert not [problem for one in read_export(lines) for problem in problems_of_session(one)]


@pytest.mark.slow
def test_an_old_session_goes_on_in_the_present_form_and_is_proven_with_both(old: Old) -> None:
    environment, _ = old
    before = json.loads(done(environment, "verify", "--all", "--json").stdout)["checked"]
    assert before["first_form_entries"] == before["entries"] > 0
    session, *_ = json.loads(done(environment, "shell", "-v0", "-c", READ).stdout)
    done(environment, "resume", session, "And now?")
    done(environment, "sessions", "archive", session)
    report = json.loads(done(environment, "verify", "--all", "--json").stdout)
    assert report["problems"] == []
    assert report["checked"]["first_form_entries"] == before["entries"] < report["checked"]["entries"]


@pytest.mark.slow
def test_one_other_letter_in_an_old_database_is_found(old: Old, tmp_path: Path) -> None:
    environment, url = old
    change(url, tmp_path / DATABASE)
    found = manage("verify", "--all", environment=environment)
    assert found.returncode == 1
    assert "the record is not as it was written" in found.stderr
    assert " row: message_parts part_" in found.stdout
    assert {problem.kind for problem in problems_of_old(tmp_path, tmp_path / DATABASE, url)} == {"row"}


def change(url: str, file: Path) -> None:
    """Change a letter of what was said, past the guards."""
    sql = (
        "UPDATE message_parts SET content = replace(content, 'last bell', 'last ball') WHERE content LIKE '%last bell%'"
    )
    if url:
        with psycopg.connect(url) as server:
            server.execute("ALTER TABLE message_parts DISABLE TRIGGER USER")
            assert server.execute(sql).rowcount
        return
    with closing(sqlite3.connect(file)) as database, database:
        guards = database.execute(
            "SELECT name, sql FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'message_parts'"
        ).fetchall()
        for name, _ in guards:
            database.execute(f"DROP TRIGGER {name}")
        assert database.execute(sql).rowcount
        for _, guard in guards:
            database.execute(guard)
