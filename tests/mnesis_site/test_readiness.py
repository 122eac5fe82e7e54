"""What /readyz says is missing."""

from __future__ import annotations

from datetime import timedelta
from queue import Queue
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.cache import caches
from django.db import connection
from django.db.migrations.recorder import MigrationRecorder
from django.test import Client
from django.utils import timezone
from django_q.brokers import get_broker
from django_q.conf import Conf
from django_q.status import Stat

from compaction_app import store
from mnesis_site import readiness
from mnesis_site.readiness import report_unguarded
from sessions_app.guards.triggers import guarded_models, remove_guards
from sessions_app.models import Message
from sessions_app.record.change import change
from tests.support.talks import new_session

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


def missing(client: Client) -> dict[str, list[str]]:
    """The parts that an unready server names."""
    response = client.get("/readyz")
    assert response.status_code == 503
    body = response.json()
    assert body["ready"] is False
    assert body["error"]["code"] == "NOT_READY"
    named: dict[str, list[str]] = body["error"]["details"]["missing"]
    return named


def test_with_everything_there_it_is_ready(client: Client, worker: None) -> None:
    response = client.get("/readyz")
    assert (response.status_code, response.json()) == (200, {"ready": True})


def test_it_says_how_long_work_waits_for_a_worker(client: Client, worker: None) -> None:
    session_id = new_session(User.objects.create_user("ada"))
    asked_at = timezone.now() - timedelta(seconds=90)
    with change(session_id, now=asked_at) as record:
        run_id = store.request_run(record, trigger="manual")
    assert run_id
    assert client.get("/readyz").json()["waiting_seconds"]["compaction"] >= 90
    with change(session_id) as record:
        store.claim_run(record, run_id, lease_owner="test", lease_seconds=60)
    assert client.get("/readyz").json() == {"ready": True}


def degraded(client: Client) -> dict[str, list[str]]:
    """What a server names that is ready without it, and for alarms is not."""
    response = client.get("/readyz")
    assert response.status_code == 200
    body = response.json()
    assert body["ready"] is True
    strict = client.get("/readyz?strict=1")
    assert strict.status_code == 503
    assert strict.json()["error"]["details"] == {"missing": {}, "degraded": body["degraded"]}
    named: dict[str, list[str]] = body["degraded"]
    return named


def test_without_a_worker_it_is_ready_and_says_so(client: Client) -> None:
    assert degraded(client) == {
        "worker": ["No worker runs. 'manage.py up' starts one; 'manage.py qcluster' is one alone."]
    }


def test_a_worker_that_stops_is_none(client: Client) -> None:
    say_alive(Conf.STOPPING)
    assert list(degraded(client)) == ["worker"]


def test_strictly_ready_with_everything_there(client: Client, worker: None) -> None:
    assert client.get("/readyz?strict=1").json() == {"ready": True}


@pytest.mark.parametrize("path", ["/livez", "/readyz"])
def test_a_probe_by_an_address_that_is_no_host_of_ours_is_answered(client: Client, worker: None, path: str) -> None:
    assert client.get(path, headers={"Host": "10.1.2.3:8000"}).status_code == 200
    assert client.get("/sign-in/", headers={"Host": "10.1.2.3:8000"}).status_code == 400


def test_a_disk_without_room_is_named(client: Client, worker: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readiness, "FULL_BYTES", 1 << 60)
    assert list(degraded(client)) == ["storage"]


def test_a_storage_of_files_that_does_not_answer_is_named(client: Client, db: None, settings: Any) -> None:
    options = {"bucket_name": "files", "endpoint_url": "http://127.0.0.1:1", "access_key": "a", "secret_key": "b"}
    files = {"BACKEND": "files_app.s3.S3ContentStorage", "OPTIONS": options}
    settings.STORAGES = {**settings.STORAGES, "files": files}
    response = client.get("/readyz")
    assert response.status_code == 200
    assert response.json()["degraded"]["storage"] == [
        "The storage of files does not answer. The server's log says why."
    ]


@pytest.mark.owner
def test_a_dropped_trigger_is_named(client: Client, worker: None) -> None:
    remove_guards(connection, [Message])
    named = missing(client)
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
def test_a_migration_that_is_not_applied_is_named(client: Client, worker: None) -> None:
    MigrationRecorder(connection).migration_qs.filter(app="sessions_app").delete()
    assert any("sessions_app.0001_schema is not applied" in sentence for sentence in missing(client)["migrations"])


@pytest.mark.owner
def test_it_lives_although_it_is_not_ready(client: Client) -> None:
    remove_guards(connection, guarded_models())
    assert client.get("/livez").json() == {"status": "ok"}


def test_redis_that_is_away_is_named(client: Client, settings: Any) -> None:
    away = {"BACKEND": "django.core.cache.backends.redis.RedisCache", "LOCATION": "redis://127.0.0.1:1/0"}
    settings.CACHES = {**settings.CACHES, "workers": away}
    assert degraded(client) == {
        "redis": ["Redis does not answer, where workers say that they live. The server's log says why."]
    }
