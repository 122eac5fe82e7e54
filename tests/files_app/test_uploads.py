"""Uploads that are broken off and gone on with, as the tus protocol has it."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from django.test import Client

from files_app.contents import read_content
from files_app.queries import load_file_reference
from tests.support.people.cast import make_user
from tests.support.record.talks import new_session

pytestmark = [pytest.mark.both_databases, pytest.mark.django_db]
PIECE = "application/offset+octet-stream"


def begin(program: Client, session_id: str, size: int, name: str = "log.txt") -> str:
    facts = {"filename": name, "session_id": session_id}
    metadata = ",".join(f"{key} {base64.b64encode(value.encode()).decode()}" for key, value in facts.items())
    answer = program.post("/api/uploads", headers={"Upload-Length": str(size), "Upload-Metadata": metadata})
    assert answer.status_code == 201, answer.content
    return str(answer.headers["Location"])


def send(program: Client, place: str, offset: int, data: bytes) -> Any:
    return program.patch(place, data, content_type=PIECE, headers={"Upload-Offset": str(offset)})


def test_an_upload_goes_on_where_it_was_broken_off_and_becomes_a_file(program: Client, alice: Any):
    session_id = new_session(alice)
    place = begin(program, session_id, 11)
    assert send(program, place, 0, b"hello ").headers["Upload-Offset"] == "6"
    asked = program.head(place)
    assert (asked.headers["Upload-Offset"], asked.headers["Upload-Length"]) == ("6", "11")
    done = send(program, place, 6, b"world")
    assert done.status_code == 204
    file = load_file_reference(done.headers["Mnesis-File"], session_id=session_id)
    assert (file.path, file.size, read_content(file.content_id, 0, 100)) == ("log.txt", 11, b"hello world")
    assert program.head(place).status_code == 404


@pytest.mark.parametrize(
    ("offset", "data", "status", "code"),
    [(3, b"x", 409, "CONFLICT"), (0, b"0123456789ab", 413, "REQUEST_TOO_LARGE")],
    ids=["elsewhere", "too much"],
)
def test_bytes_at_another_place_and_too_many_are_refused(
    program: Client, alice: Any, offset: int, data: bytes, status: int, code: str
):
    place = begin(program, new_session(alice), 11)
    answer = send(program, place, offset, data)
    assert (answer.status_code, answer.json()["error"]["code"]) == (status, code)
    assert program.head(place).headers["Upload-Offset"] == "0"


def test_another_person_s_upload_is_not_found(program: Client, alice: Any):
    place = begin(program, new_session(alice), 11)
    program.force_login(make_user("bob"))
    assert [program.head(place).status_code, send(program, place, 0, b"x").status_code] == [404, 404]
    assert program.delete(place).status_code == 404


def test_an_upload_that_is_given_up_is_forgotten(program: Client, alice: Any):
    place = begin(program, new_session(alice), 11)
    assert program.delete(place).status_code == 204
    assert program.head(place).status_code == 404


def test_an_upload_may_be_empty(program: Client, alice: Any):
    answer = send(program, begin(program, new_session(alice), 0), 0, b"")
    assert answer.headers["Mnesis-File"].startswith("file_")


def test_a_piece_may_be_larger_than_a_body_that_is_read_at_once(program: Client, alice: Any, settings: Any):
    size = settings.DATA_UPLOAD_MAX_MEMORY_SIZE + 1
    answer = send(program, begin(program, new_session(alice), size), 0, b"x" * size)
    assert answer.headers["Mnesis-File"].startswith("file_")


@pytest.mark.parametrize(
    "headers", [{}, {"Upload-Length": "-1"}, {"Upload-Length": "\N{SUPERSCRIPT TWO}"}, {"Upload-Length": "1"}]
)
def test_what_is_no_upload_is_refused_in_words(program: Client, headers: dict[str, str]):
    answer = program.post("/api/uploads", headers=headers)
    assert answer.status_code in (400, 422)
    assert answer.json()["error"]["code"] == "INVALID_REQUEST"
