"""Contents of files: kept once, read by ranges, never half written."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.contrib.auth.models import User
from django.core.files.storage import storages

from audit_app.proof.verify import verify_session
from files_app.contents import content_size, find_size, is_whole, put_content, read_content
from files_app.queries import read_range
from files_app.store import store_file_reference
from mnesis_core.errors import FileContentNotFound, FileReferenceNotFoundError, InvalidRequest
from mnesis_core.text import bytes_of_text, text_of_bytes
from sessions_app.record.change import change
from tests.support.people.cast import make_user
from tests.support.record.talks import new_session

pytestmark = pytest.mark.both_databases

WORDS = "Ä — 漢字 🦋 plain "


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, settings) -> Iterator[Path]:
    """A folder of its own for the contents."""
    options = {**settings.STORAGES["files"], "OPTIONS": {"location": tmp_path}}
    settings.STORAGES = {**settings.STORAGES, "files": options}
    storages.__dict__.pop("backends", None)
    storages._storages.clear()
    yield tmp_path
    storages._storages.clear()
    storages.__dict__.pop("backends", None)


def keep(owner: User, data: bytes) -> str:
    with change(new_session(owner)) as record:
        return store_file_reference(record, content_id=put_content(data), path="a.txt")


def files_of(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


def test_a_content_is_kept_once_under_its_digest(folder):
    first = put_content(b"many words")
    assert first == hashlib.sha256(b"many words").hexdigest()
    assert put_content(b"many words") == first
    [path] = files_of(folder)
    assert (path.name, path.read_bytes()) == (first, b"many words")
    assert path.stat().st_mode & 0o077 == 0
    assert (content_size(first), read_content(first, 5, 3), read_content(first, 50, 3)) == (10, b"wor", b"")


def test_a_content_that_was_changed_or_taken_away_is_named(alice, folder):
    session_id = new_session(alice)
    with change(session_id) as record:
        store_file_reference(record, content_id=put_content(b"words"), path="tool-outputs/part_1.txt")
        store_file_reference(record, content_id="a1" * 32, path="told of by somebody.txt")
    assert verify_session(session_id).problems == []
    [path] = files_of(folder)
    path.write_bytes(b"other")
    [changed] = verify_session(session_id).problems
    assert (changed.kind, changed.detail.endswith("is another than was kept")) == ("content", True)
    path.unlink()
    [gone] = verify_session(session_id).problems
    assert (gone.kind, gone.detail.endswith("is gone")) == ("content", True)


@pytest.mark.parametrize("id", ["", "ab", "../" * 21 + "x", "/etc/passwd", "AB" * 32, "nul \x00", "\ud800"])
def test_under_what_is_no_digest_nothing_is_kept(folder, id):
    assert find_size(id) is None
    for read in (content_size, is_whole, lambda id: read_content(id, 0, 9)):
        with pytest.raises(FileContentNotFound):
            read(id)


def test_a_write_that_breaks_off_leaves_nothing(folder, monkeypatch):
    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space"):
        put_content(b"words")
    assert files_of(folder) == []
    monkeypatch.undo()
    assert content_size(put_content(b"words")) == 5


@pytest.mark.parametrize("limit", [4, 5, 7, 64])
def test_ranges_put_together_are_the_whole_and_cut_no_character(alice, limit):
    file_id, whole, offset, texts = keep(alice, bytes_of_text(WORDS * 9)), WORDS * 9, 0, []
    while offset is not None:
        found = read_range(file_id, offset=offset, limit=limit, owner_id=alice.pk)
        assert "�" not in found.text
        assert len(found.data) <= limit + 3
        texts.append(found.text)
        offset = found.next_offset
    assert "".join(texts) == whole


def test_bytes_that_are_no_text_come_all_the_same(alice):
    data = b"\x80" * 30 + b"\xff\x00"
    file_id, offset, pieces = keep(alice, data), 0, []
    while offset is not None:
        found = read_range(file_id, offset=offset, limit=8, owner_id=alice.pk)
        pieces.append(found.data)
        offset = found.next_offset
    assert b"".join(pieces) == data
    assert read_range(file_id, offset=99, limit=8, owner_id=alice.pk).data == b""


@pytest.mark.parametrize("text", ["", "\x00", "a\ud800b", WORDS])
def test_any_text_is_the_same_as_bytes(text):
    assert text_of_bytes(bytes_of_text(text)) == text


def test_a_file_is_read_by_its_owner_only_and_within_bounds(alice):
    file_id = keep(alice, b"words")
    with pytest.raises(FileReferenceNotFoundError):
        read_range(file_id, limit=10, owner_id=make_user("bob").pk)
    for wrong in ({"offset": -1, "limit": 10}, {"offset": 0, "limit": 3}):
        with pytest.raises(InvalidRequest):
            read_range(file_id, owner_id=alice.pk, **wrong)


def test_a_reference_without_its_content_says_so(alice):
    with change(new_session(alice)) as record:
        file_id = store_file_reference(record, content_id="a1" * 32, path="gone.txt")
    with pytest.raises(FileContentNotFound):
        read_range(file_id, limit=10, owner_id=alice.pk)
