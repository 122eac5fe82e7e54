"""Everything that a person has, as one download: whole, importable, without what is deleted or of other people."""

from __future__ import annotations

import asyncio
import io
import zipfile
from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from audit_app.transfer import export
from audit_app.transfer.export import zip_pieces
from audit_app.transfer.imports import import_sessions
from sessions_app.record.change import change
from sessions_app.record.session_store import soft_delete_session
from tests.audit_app.transfer.test_export_readable import whole
from tests.support.people.cast import make_user
from tests.support.record.talks import HOSTILE, exchange, new_session

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.both_databases]


@pytest.fixture
def sessions(reader: User) -> list[str]:
    """Two sessions and the fork of one, beside a deleted one and one of somebody else."""
    made = [new_session(reader, title=title) for title in ("Harbour", HOSTILE)]
    for session_id in made:
        exchange(session_id, f"The marigold is orange. {HOSTILE}", "Noted.")
    made.append(new_session(reader, title="Child", parent_id=made[1]))
    delete(new_session(reader, title="Deleted"))
    exchange(new_session(make_user("eve"), title="Of another person"), "secret", "secret")
    return made


def delete(session_id: str) -> None:
    with change(session_id) as record:
        soft_delete_session(record)


def download(browser: Client, format: str) -> tuple[Any, bytes]:
    answer = browser.get("/api/export", {"format": format})
    assert answer.status_code == 200, answer.content
    return answer, asyncio.run(whole(answer.streaming_content))


def test_the_lines_hold_all_that_can_be_imported(browser: Client, reader: User, sessions: list[str]) -> None:
    answer, data = download(browser, "jsonl")
    assert answer["Content-Disposition"].startswith('attachment; filename="mnesis-')
    found = [made.session_id for made in import_sessions(lambda: io.BytesIO(data), owner_id=reader.pk)]
    assert sorted(found) == sorted(sessions)  # the same rows are there already, and are compared with these


@pytest.mark.parametrize(("format", "ending"), [("markdown", ".md"), ("html", ".html")])
def test_a_zip_holds_a_transcript_of_each(browser: Client, sessions: list[str], format: str, ending: str) -> None:
    answer, data = download(browser, format)
    assert (answer["Content-Type"], answer["Content-Disposition"][-5:]) == ("application/zip", '.zip"')
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        assert archive.testzip() is None
        assert sorted(archive.namelist()) == sorted(f"{session_id}{ending}" for session_id in sessions)
        assert "marigold is orange" in archive.read(f"{sessions[0]}{ending}").decode()


def test_a_transcript_of_what_is_deleted_meanwhile_is_left_out(
    browser: Client, sessions: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(export, "session_ids", lambda owner_id: sessions)
    delete(sessions[0])
    with zipfile.ZipFile(io.BytesIO(download(browser, "markdown")[1])) as archive:
        assert sorted(archive.namelist()) == sorted(f"{session_id}.md" for session_id in sessions[1:])


def test_nothing_is_a_download_too(browser: Client) -> None:
    assert download(browser, "jsonl")[1] == b""
    with zipfile.ZipFile(io.BytesIO(download(browser, "html")[1])) as archive:
        assert archive.namelist() == []


def test_it_is_refused_as_every_call_is(browser: Client, client: Client) -> None:
    assert client.get("/api/export").status_code == 401
    assert browser.get("/api/export", {"format": "pdf"}).status_code == 422
    assert browser.get("/api/export", {"person": "eve"}).status_code == 422


def test_a_zip_is_written_as_it_grows() -> None:
    def lines() -> Iterator[bytes]:
        yield from (bytes([number % 256]) * 9_973 for number in range(300))

    pieces = list(zip_pieces([("one", lines()), ("two/three", [b"4"]), ("empty", [])]))
    assert len([piece for piece in pieces if piece]) > 2
    with zipfile.ZipFile(io.BytesIO(b"".join(pieces))) as archive:
        assert archive.read("one") == b"".join(lines())
        assert (archive.read("two/three"), archive.read("empty")) == (b"4", b"")
