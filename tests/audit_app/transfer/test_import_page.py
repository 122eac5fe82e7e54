"""Files become sessions: at the REST endpoint, by the worker, on the page; hostile ones are refused in words."""

from __future__ import annotations

import gzip
import json
import multiprocessing
import os
import signal
import time
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from django_q.models import OrmQ

from agents_app.turns import lifecycle
from audit_app.tasks import run_import
from audit_app.transfer import imports
from audit_app.transfer.export import export_session
from audit_app.transfer.imports import held, load_import, note_progress
from mnesis_core.config import Config, FileConfig
from mnesis_core.errors import UploadNotFound
from mnesis_core.records import new_id
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import list_sessions
from tests.support.people.cast import make_user
from tests.support.record.talks import HOSTILE, exchange, new_session

pytestmark = pytest.mark.django_db
CHAT = {"messages": [{"role": "user", "content": "The code is Tern-4471."}, {"role": "assistant", "content": "Noted."}]}


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, settings: Any) -> Path:
    settings.MNESIS = settings.MNESIS | {"UPLOAD_FOLDER": tmp_path / "uploads"}
    return tmp_path / "uploads" / "imports"


def limit(monkeypatch: pytest.MonkeyPatch, module: ModuleType, **values: int) -> None:
    """Set limits of files as a site's own configuration would."""
    config = Config(files=FileConfig(**values))
    monkeypatch.setattr(module, "site_config", lambda: config)


def send(browser: Client, *files: tuple[str, bytes], status: int = 202, **fields: Any) -> Any:
    uploads = [SimpleUploadedFile(name, data) for name, data in files]
    answer = browser.post("/api/sessions/import", {"file": uploads} | fields)
    assert answer.status_code == status, answer.content
    return answer.json()


@pytest.fixture
def bring(browser: Client) -> Callable[..., Any]:
    """Send files, let a worker at them, and ask what became of them."""

    def bring(*files: tuple[str, bytes]) -> Any:
        sent = send(browser, *files)
        assert sent["state"] == "waiting"
        run_import(sent["id"])
        return browser.get(f"/api/sessions/import/{sent['id']}").json()

    return bring


def test_a_conversation_of_another_system_becomes_a_session(bring: Callable[..., Any], reader: User) -> None:
    told = bring(("talk.json", json.dumps(CHAT).encode()))
    assert (told["state"], told["error"]) == ("done", None)
    [session] = told["sessions"]
    assert session["id"] == list_sessions(owner_id=reader.pk)[0].id
    [question, _] = load_messages(session["id"])
    assert "Tern-4471" in str(question.parts)
    again = bring(("talk.json", json.dumps(CHAT).encode()))
    assert again["sessions"] == told["sessions"]
    assert any("were here already" in note for note in again["notes"])


def test_a_conversation_whose_session_was_deleted_comes_in_again(bring: Callable[..., Any], reader: User) -> None:
    [gone] = bring(("talk.json", json.dumps(CHAT).encode()))["sessions"]
    lifecycle.delete_session(gone["id"], owner_id=reader.pk)
    told = bring(("talk.json", json.dumps(CHAT).encode()))
    assert (told["state"], [session.id for session in list_sessions(owner_id=reader.pk)]) == (
        "done",
        [session["id"] for session in told["sessions"]],
    )
    assert told["sessions"][0]["id"] != gone["id"]


def test_a_packed_export_comes_in_again_as_it_was(bring: Callable[..., Any], reader: User) -> None:
    session_id = new_session(reader, title="Harbour")
    exchange(session_id, "q", "a")
    lines = b"".join(export_session(session_id))
    told = bring(("harbour.jsonl.gz", gzip.compress(lines)))
    assert told["sessions"] == [{"id": session_id, "title": "Harbour"}]
    assert told["notes"] == ["1 of the sessions were here already, the very same."]


def test_what_cannot_be_imported_is_refused_with_the_line_and_leaves_nothing(
    bring: Callable[..., Any], reader: User, folder: Path
) -> None:
    lines = list(export_session(new_session(reader)))
    changed = b"".join([lines[0], lines[1].replace(b'"demo"', b'"omed"'), *lines[2:]])
    told = bring(("x.jsonl", changed))
    assert told["state"] == "failed"
    assert "Line" in told["error"]["message"]
    wrong = [
        b"",
        b"\x00\xff" * 500,
        b"[" * 100_000,
        b"hello",
        gzip.compress(b"hello")[:-6],
        b'{"format":"mnesis-session"',
    ]
    for data in wrong:
        told = bring(("x.jsonl", data))
        assert (told["state"], told["sessions"]) == ("failed", []), data[:20]
        assert told["error"]["code"] == "INVALID_REQUEST", told
        assert [path.name for path in (folder / told["id"]).iterdir() if path.name.isdecimal()] == []
    assert len(list_sessions(owner_id=reader.pk)) == 1


def test_a_file_that_unpacks_to_too_much_is_refused(bring: Callable[..., Any], monkeypatch: pytest.MonkeyPatch) -> None:
    limit(monkeypatch, imports, import_unpacked_bytes=1_000_000)
    told = bring(("bomb.json.gz", gzip.compress(b'{"messages": ["' + b"a" * 5_000_000)))
    assert told["error"]["code"] == "REQUEST_TOO_LARGE"


def test_too_much_at_once_is_refused_and_not_kept(
    browser: Client, monkeypatch: pytest.MonkeyPatch, folder: Path
) -> None:
    limit(monkeypatch, imports, import_bytes=1_000)
    assert send(browser, ("a.json", b"x" * 2_000), status=413)["error"]["code"] == "REQUEST_TOO_LARGE"
    assert send(browser, *[(f"{n}.json", b"x") for n in range(51)], status=422)
    assert send(browser, status=422)
    assert browser.post("/api/sessions/import", {"a": 1}, content_type="application/json").status_code == 422
    assert list(folder.iterdir()) == []


def test_sub_agents_files_go_with_their_session(bring: Callable[..., Any]) -> None:
    def line(**values: Any) -> bytes:
        message = {"role": "user", "content": "Look."}
        return json.dumps(
            {"type": "user", "uuid": "u1", "parentUuid": None, "sessionId": "s1", "message": message} | values
        ).encode()

    told = bring(("s1.jsonl", line()), ("agent-a1.jsonl", line(uuid="u2", isSidechain=True, agentId="a1")))
    assert told["state"] == "done", told
    assert len(told["sessions"]) == 2


def test_nobody_is_told_of_anothers_import(browser: Client) -> None:
    sent = send(browser, ("a.json", b"{}"))
    eve = Client()
    eve.force_login(make_user("eve"))
    for address in (
        f"/api/sessions/import/{sent['id']}",
        f"/import/{sent['id']}/",
        "/import/import_x/",
        "/import/%00/",
    ):
        assert eve.get(address).status_code == 404, address
    assert browser.get(f"/import/{sent['id']}/").status_code == 200
    assert Client().post("/api/sessions/import").status_code == 401


def test_two_workers_do_the_work_of_one(browser: Client) -> None:
    sent = send(browser, ("talk.json", json.dumps(CHAT).encode()))
    with held(sent["id"]) as mine:
        assert mine
        run_import(sent["id"])
        assert load_import(sent["id"]).state == "waiting"
    run_import(sent["id"])
    assert load_import(sent["id"]).state == "done"
    run_import(sent["id"])
    run_import(new_id("import"))


def die_at_it(import_id: str) -> None:
    """A worker takes an import up, and is killed."""
    worker = multiprocessing.get_context("fork").Process(target=take_and_die, args=(import_id,))
    worker.start()
    worker.join()
    assert worker.exitcode == -signal.SIGKILL


def take_and_die(import_id: str) -> None:
    with held(import_id) as mine:
        assert mine
        note_progress(mine, state="running", attempts=mine.attempts + 1, verb="stored")
        os.kill(os.getpid(), signal.SIGKILL)


def test_an_import_whose_worker_was_killed_waits_for_another_one_as_soon_as_somebody_looks(browser: Client) -> None:
    sent = send(browser, ("talk.json", json.dumps(CHAT).encode()))
    die_at_it(sent["id"])
    assert load_import(sent["id"]).state == "running"
    OrmQ.objects.all().delete()
    assert "Waiting for a worker" in browser.get(f"/import/{sent['id']}/").content.decode()
    assert OrmQ.objects.count() == 1
    assert browser.get(f"/api/sessions/import/{sent['id']}").json()["state"] == "waiting"
    assert OrmQ.objects.count() == 1, "another one is asked for once"
    run_import(sent["id"])
    assert browser.get(f"/api/sessions/import/{sent['id']}").json()["state"] == "done"


def test_an_import_that_somebody_is_at_runs(browser: Client) -> None:
    sent = send(browser, ("talk.json", json.dumps(CHAT).encode()))
    with held(sent["id"]) as mine:
        assert mine
        note_progress(mine, state="running")
        OrmQ.objects.all().delete()
        assert browser.get(f"/api/sessions/import/{sent['id']}").json()["state"] == "running"
        assert not OrmQ.objects.exists()


@pytest.mark.slow
def test_an_import_that_workers_die_of_is_given_up(browser: Client) -> None:
    sent = send(browser, ("talk.json", json.dumps(CHAT).encode()))
    for _ in range(imports.MOST_ATTEMPTS):
        die_at_it(sent["id"])
        assert browser.get(f"/api/sessions/import/{sent['id']}").json()["state"] == "waiting"
    run_import(sent["id"])
    told = browser.get(f"/api/sessions/import/{sent['id']}").json()
    assert (told["state"], told["sessions"]) == ("failed", [])
    assert "3 workers were lost" in told["error"]["message"]


def test_an_unexpected_end_is_told_without_its_secrets(browser: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    def break_down(*_: Any, **__: Any) -> None:
        raise RuntimeError("secret")

    monkeypatch.setattr(imports, "store_transcripts", break_down)
    sent = send(browser, ("talk.json", json.dumps(CHAT).encode()))
    run_import(sent["id"])
    told = load_import(sent["id"])
    assert told.error
    assert told.error["code"] == "INTERNAL_ERROR"
    assert "secret" not in str(told)


def test_old_imports_are_forgotten(browser: Client, folder: Path) -> None:
    sent = send(browser, ("a.json", b"{}"))
    old = time.time() - imports.KEPT_SECONDS - 1
    os.utime(folder / sent["id"], (old, old))
    send(browser, ("b.json", b"{}"))
    with pytest.raises(UploadNotFound):
        load_import(sent["id"])


def test_the_page_shows_how_far_it_is_and_hostile_names_as_text(browser: Client) -> None:
    assert "Choose files" in browser.get("/import/").content.decode()
    sent = send(browser, ('"><script>alert(1)</script>\u202e.json', HOSTILE.encode("utf-8", "replace")))
    waiting = browser.get(f"/import/{sent['id']}/", HTTP_HX_REQUEST="true").content.decode()
    assert "Waiting for a worker" in waiting
    assert "hx-trigger" in waiting
    run_import(sent["id"])
    failed = browser.get(f"/import/{sent['id']}/").content.decode()
    assert "The import failed" in failed
    assert "hx-trigger" not in failed
    assert "<script>alert" not in waiting + failed
