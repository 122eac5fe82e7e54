"""Files come in: kept once, referred to by a session, explored, and given to a turn."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django.utils.module_loading import import_string

from files_app.intake import TASK, explore_file, keep_file
from files_app.queries import bytes_of_person, load_file_reference, versions_of
from mnesis_core.config import Config, override
from sessions_app.record.session_queries import load_session
from tests.support.people.cast import make_user
from tests.support.record.talks import new_session

pytestmark = pytest.mark.django_db


def upload(program: Client, session_id: str, name: str, data: bytes) -> Any:
    return program.post("/api/files", {"session_id": session_id, "file": SimpleUploadedFile(name, data)})


def test_an_uploaded_file_is_described_at_once_and_explored_by_a_worker(program: Client, session_id: str, alice: Any):
    answer = upload(program, session_id, "tide.toml", b"[gauge]\nmetres = 4.1\nplace = 'Portwell'\n")
    assert answer.status_code == 201, answer.content
    file = answer.json()
    assert (file["path"], file["file_type"], file["state"], file["size"]) == ("tide.toml", "toml", "waiting", 40)
    explore_file(file["id"], owner_id=alice.pk)
    told = program.get(f"/api/files/{file['id']}").json()
    assert told["state"] == "explored"
    assert "gauge" in told["exploration_summary"]
    assert told["exploration"]["covered"] == "all of it"
    assert told["exploration"]["problem"] == ""


def test_the_same_file_again_is_the_one_that_is_there_and_a_changed_one_is_its_next_version(
    alice: Any, session_id: str
):
    first = keep_file(session_id, owner_id=alice.pk, path="a.txt", chunks=[b"one"])
    assert keep_file(session_id, owner_id=alice.pk, path="a.txt", chunks=[b"o", b"ne"]).id == first.id
    second = keep_file(session_id, owner_id=alice.pk, path="a.txt", chunks=[b"two"])
    assert [version.id for version in versions_of(second)] == [first.id, second.id]
    assert bytes_of_person(alice.pk) == 6


@pytest.mark.both_databases
def test_what_is_known_of_a_content_is_not_found_out_twice(alice: Any, session_id: str, monkeypatch: Any):
    first = keep_file(session_id, owner_id=alice.pk, path="a.txt", chunks=[b"one"])
    explored = explore_file(first.id, owner_id=alice.pk)
    monkeypatch.setattr("files_app.intake.explore_alone", None)
    again = keep_file(new_session(alice), owner_id=alice.pk, path="elsewhere/b.txt", chunks=[b"one"])
    assert explore_file(again.id, owner_id=alice.pk).exploration_summary == explored.exploration_summary


def test_a_file_over_the_quota_is_refused_and_nothing_is_kept(program: Client, session_id: str, monkeypatch: Any):
    config = override(Config(), {"files": {"quota_bytes": 10}})
    monkeypatch.setattr("files_app.intake.site_config", lambda: config)
    assert upload(program, session_id, "a.txt", b"12345678").status_code == 201
    refused = upload(program, session_id, "b.txt", b"abcdefgh")
    assert refused.status_code == 413
    assert len(program.get("/api/files").json()["items"]) == 1


def test_only_files_under_a_root_are_taken_in_by_path(program: Client, session_id: str, settings: Any, tmp_path: Path):
    root, outside = tmp_path / "shared", tmp_path / "secret.txt"
    root.mkdir()
    (root / "notes.md").write_text("# Tides\n")
    outside.write_text("secret")
    (root / "link.txt").symlink_to(outside)
    (root / "away").symlink_to(tmp_path)
    settings.MNESIS = settings.MNESIS | {"FILE_ROOTS": [root]}

    def take(path: str) -> Any:
        body = json.dumps({"session_id": session_id, "path": path})
        return program.post("/api/files", body, content_type="application/json")

    assert take(str(root / "notes.md")).status_code == 201
    for path in (
        outside,
        root / "link.txt",
        root / "away" / "secret.txt",
        root / ".." / "secret.txt",
        root,
        root / "none",
    ):
        answer = take(str(path))
        assert (answer.status_code, answer.json()["error"]["code"]) == (404, "FILE_NOT_ALLOWED"), path


def test_another_person_s_session_takes_no_file(program: Client):
    assert upload(program, new_session(make_user("bob")), "a.txt", b"x").json()["error"]["code"] == "SESSION_NOT_FOUND"


def test_a_file_without_a_name_or_with_a_foreign_folder_keeps_only_what_is_a_name(program: Client, session_id: str):
    assert upload(program, session_id, "C:\\Users\\me\\a.txt", b"x").json()["path"] == "a.txt"
    assert (
        load_file_reference(upload(program, session_id, "...", b"y").json()["id"], session_id=session_id).path == "..."
    )


def test_a_file_without_a_session_gets_one_that_is_named_after_it(program: Client, alice: Any):
    answer = program.post("/api/files", {"file": SimpleUploadedFile("tide table.txt", b"04:12 high")})
    assert answer.status_code == 201
    session = load_session(answer.json()["session_id"], owner_id=alice.pk)
    assert (session.title, session.model) == ("tide table.txt", "demo")


def test_a_file_that_is_refused_leaves_no_session(program: Client, alice: Any, monkeypatch: Any):
    config = override(Config(), {"files": {"quota_bytes": 3}})
    monkeypatch.setattr("files_app.intake.site_config", lambda: config)
    assert program.post("/api/files", {"file": SimpleUploadedFile("a.txt", b"four")}).status_code == 413
    assert program.get("/api/sessions").json()["items"] == []


def test_an_exploration_queued_before_an_upgrade_is_found_after_it() -> None:
    assert TASK == "files_app.tasks.explore"
    assert callable(import_string(TASK))
