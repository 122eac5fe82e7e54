"""What /readyz says is missing."""

from __future__ import annotations

import json
from datetime import timedelta
from queue import Queue
from typing import Any

import pytest
from channels.testing import HttpCommunicator
from django.contrib.auth.models import User
from django.core.cache import caches
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.utils import timezone
from django_q.brokers import get_broker
from django_q.conf import Conf
from django_q.status import Stat

from compaction_app import store
from mnesis_site import readiness
from mnesis_site.asgi import answer
from mnesis_site.readiness import report_unguarded
from sessions_app.database.guards.triggers import remove_guards
from sessions_app.models import Message
from sessions_app.record.change import change
from tests.support.record.talks import new_session

pytestmark = pytest.mark.both_databases


class Cluster:
    """A worker cluster as ``Stat`` looks at the real one."""

    def __init__(self, status: str) -> None:
        self.pid = self.parent_pid = 1
        self.cluster_id = "one"
        self.broker = get_broker()
        self.tob = timezone.now()
        self.reincarnations = 0
        self.result_queue: Queue[None] = Queue()
        self.task_queue: Queue[None] = Queue()
        self.monitor = self.pusher = None
        self.pool: list[None] = []
        self.status = lambda: status


@pytest.fixture(autouse=True)
def no_worker(db: None) -> Any:
    caches["workers"].clear()
    yield
    caches["workers"].clear()


@pytest.fixture
def worker() -> None:
    say_alive(Conf.IDLE)


def say_alive(status: str) -> None:
    Stat(Cluster(status)).save()


def ready(*, is_strict: bool = False) -> tuple[int, Any]:
    """The status and body of ``/readyz``, with every look in this thread, whose transaction others do not see."""
    response = readiness.report([look.ask() for look in readiness.LOOKS], is_strict=is_strict)
    return response.status_code, json.loads(response.content)


def missing() -> dict[str, list[str]]:
    """The parts that an unready server names."""
    status, body = ready()
    assert status == 503
    assert body["ready"] is False
    assert body["error"]["code"] == "NOT_READY"
    named: dict[str, list[str]] = body["error"]["details"]["missing"]
    return named


def test_with_everything_there_it_is_ready(worker: None) -> None:
    assert ready() == (200, {"ready": True})


def test_it_says_how_long_work_waits_for_a_worker(worker: None) -> None:
    session_id = new_session(User.objects.create_user("ada"))
    asked_at = timezone.now() - timedelta(seconds=90)
    with change(session_id, now=asked_at) as record:
        run_id = store.request_run(record, trigger="manual")
    assert run_id
    assert ready()[1]["waiting_seconds"]["compaction"] >= 90
    with change(session_id) as record:
        store.claim_run(record, run_id, lease_owner="test", lease_seconds=60)
    assert ready() == (200, {"ready": True})


def degraded() -> dict[str, list[str]]:
    """What a server names that is ready without it, and for alarms is not."""
    status, body = ready()
    assert (status, body["ready"]) == (200, True)
    status, strict = ready(is_strict=True)
    assert status == 503
    assert strict["error"]["details"] == {"missing": {}, "degraded": body["degraded"]}
    named: dict[str, list[str]] = body["degraded"]
    return named


def test_without_a_worker_it_is_ready_and_says_so() -> None:
    assert degraded() == {"worker": ["No worker runs. 'manage.py up' starts one; 'manage.py qcluster' is one alone."]}


def test_a_worker_that_stops_is_none() -> None:
    say_alive(Conf.STOPPING)
    assert list(degraded()) == ["worker"]


def test_strictly_ready_with_everything_there(worker: None) -> None:
    assert ready(is_strict=True) == (200, {"ready": True})


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/livez", 200),
        ("/readyz", 200),
        ("/readyz?strict=1", 503),
        ("/readyz?verbose&strict=1", 503),
        ("/readyz?" + "&".join("a" * 2_000), 200),  # more parameters than Django reads
        ("/readyz?%ff=%00", 200),
    ],
)
async def test_a_probe_by_an_address_that_is_no_host_of_ours_is_answered(
    monkeypatch: pytest.MonkeyPatch, path: str, status: int
) -> None:
    look = readiness.Look(lambda: readiness.Readiness(degraded={"worker": ["None."]}), on_silence=readiness.Readiness())
    monkeypatch.setattr(readiness, "LOOKS", (look,))
    probe = HttpCommunicator(answer, "GET", path, headers=[(b"host", b"10.1.2.3:8000")])
    assert (await probe.get_response(timeout=5))["status"] == status


async def test_a_look_that_fails_is_answered_as_an_error_of_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "LOOKS", (readiness.Look(lambda: 1 // 0, on_silence=readiness.Readiness()),))
    response = await HttpCommunicator(answer, "GET", "/readyz").get_response(timeout=5)
    assert (response["status"], json.loads(response["body"])["error"]["code"]) == (500, "INTERNAL_ERROR")


async def test_it_lives_although_it_is_not_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    look = readiness.Look(lambda: readiness.Readiness(missing={"guards": ["None."]}), on_silence=readiness.Readiness())
    monkeypatch.setattr(readiness, "LOOKS", (look,))
    assert (await HttpCommunicator(answer, "GET", "/readyz").get_response(timeout=5))["status"] == 503
    alive = await HttpCommunicator(answer, "GET", "/livez").get_response(timeout=5)
    assert (alive["status"], json.loads(alive["body"])) == (200, {"status": "ok"})


def test_a_disk_without_room_is_named(worker: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "FULL_BYTES", 1 << 60)
    assert list(degraded()) == ["storage"]


def test_a_storage_of_files_that_does_not_answer_is_named(db: None, settings: Any) -> None:
    options = {"bucket_name": "files", "endpoint_url": "http://127.0.0.1:1", "access_key": "a", "secret_key": "b"}
    files = {"BACKEND": "files_app.s3.S3ContentStorage", "OPTIONS": options}
    settings.STORAGES = {**settings.STORAGES, "files": files}
    status, body = ready()
    assert status == 200
    assert body["degraded"]["storage"] == ["The storage of files does not answer. The server's log says why."]


@pytest.mark.owner
def test_a_dropped_trigger_is_named(worker: None) -> None:
    remove_guards(connection, [Message])
    named = missing()
    assert list(named) == ["guards"]
    assert any("guard_messages_frozen is missing" in sentence for sentence in named["guards"])


@pytest.mark.owner
def test_a_server_that_starts_alone_puts_it_into_the_log(db: None, caplog: pytest.LogCaptureFixture) -> None:
    remove_guards(connection, [Message])
    report_unguarded()
    [record] = caplog.records
    assert record.levelname == "ERROR"
    assert record.getMessage().startswith("messages is not guarded: guard_messages_")


def test_a_server_that_is_guarded_says_nothing(db: None, caplog: pytest.LogCaptureFixture) -> None:
    report_unguarded()
    assert not caplog.records


@pytest.mark.owner
def test_a_migration_that_is_not_applied_is_named(worker: None) -> None:
    MigrationRecorder(connection).migration_qs.filter(app="sessions_app").delete()
    assert any("sessions_app.0001_schema is not applied" in sentence for sentence in missing()["migrations"])


def test_redis_that_is_away_is_named(settings: Any) -> None:
    away = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    settings.CACHES = {**settings.CACHES, "workers": away}
    assert degraded() == {
        "redis": ["Redis does not answer, where workers say that they live. The server's log says why."]
    }
