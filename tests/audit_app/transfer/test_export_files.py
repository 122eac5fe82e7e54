"""Files go out with their session and come in again, byte for byte; what is not a file of it does not."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.storage import storages
from django.db import transaction

from audit_app.transfer import export
from audit_app.transfer.export import export_session
from audit_app.transfer.imports import import_sessions
from files_app.contents import find_size, put_content
from files_app.queries import read_range
from files_app.store import store_file_reference
from mnesis_core.errors import InvalidRequest
from mnesis_core.transcripts.session_file import Header, read_sessions, session_lines
from sessions_app.record.change import change
from tests.support.people.cast import make_user
from tests.support.record.talks import new_session

WHOLE, OTHER = b"0123456789" * 700, b""


class Undone(Exception):
    """Takes back what was written."""


@pytest.fixture
def exported(db: None, monkeypatch: pytest.MonkeyPatch) -> tuple[str, list[bytes]]:
    """The lines of a session with three files that is not here any more, nor are its contents; and one of its files."""
    monkeypatch.setattr(export, "PIECE_BYTES", 3_000)
    try:
        with transaction.atomic():
            session_id = new_session(make_user("alice"))
            with change(session_id) as record:
                file_id = store_file_reference(record, content_id=put_content(WHOLE), path="a.txt")
                store_file_reference(record, content_id=put_content(OTHER), path="empty.txt")
                store_file_reference(record, content_id="a1" * 32, path="known-only.txt")
            lines = list(export_session(session_id))
            raise Undone
    except Undone:
        pass
    forget()
    return file_id, lines


def forget() -> None:
    """Delete every content."""
    for path in Path(storages["files"].location).rglob("*"):  # type: ignore[attr-defined]
        if path.is_file():
            path.unlink()


@pytest.fixture
def eve(exported: object) -> User:
    return make_user("eve")


def rewritten(lines: list[bytes], values: dict[str, Any], *, nth: int = 0) -> list[bytes]:
    """The same file with another piece in the place of the nth, as it would be made by a person who knows the format."""
    header, *items = read_sessions(lines)
    rows = [(item.table, dict(item.values)) for item in items[:-1]]
    index = [index for index, (table, _) in enumerate(rows) if table == "file_contents"][nth]
    rows[index] = ("file_contents", rows[index][1] | values)
    assert isinstance(header, Header)
    return list(session_lines(header, rows))


def pieces(lines: list[bytes]) -> Iterator[dict[str, Any]]:
    values = map(json.loads, lines)
    return (value["row"] for value in values if value.get("table") == "file_contents")


def test_files_come_in_as_they_went_out(exported, eve):
    file_id, lines = exported
    assert sorted(len(piece["data"]) for piece in pieces(lines)) == [0, 1_336, 4_000, 4_000]
    import_sessions(lambda: lines, owner_id=eve.pk)
    assert read_range(file_id, limit=10_000, owner_id=eve.pk).data == WHOLE
    assert find_size("a1" * 32) is None
    [again] = import_sessions(lambda: lines, owner_id=eve.pk)
    assert not again.imported


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"data": b64encode(b"x" * 3_000).decode()}, "is not whole, or is another"),
        ({"data": b64encode(b"x").decode()}, "the piece before is missing"),
        ({"offset": 3}, "the piece before is missing"),
        ({"data": "no base64!"}, "this is no base64"),
        ({"data": 7}, "no piece of a file"),
        ({"more": 7}, "no piece of a file"),
        ({"content_id": "b2" * 32}, "no file of this session has this content"),
        ({"content_id": "../../etc/passwd"}, "no file of this session has this content"),
    ],
)
def test_what_is_not_the_content_is_refused_and_nothing_is_written(exported, eve, values, words):
    _, lines = exported
    first = next(nth for nth, piece in enumerate(pieces(lines)) if len(piece["data"]) == 4_000)
    with pytest.raises(InvalidRequest, match=words):
        import_sessions(lambda: rewritten(lines, values, nth=first), owner_id=eve.pk)
    with pytest.raises(Exception, match="file"):
        read_range(exported[0], limit=10, owner_id=eve.pk)
