"""Readiness: which parts a server needs, which of them are missing, and the probes ``/livez`` and ``/readyz``."""

from __future__ import annotations

import asyncio
import logging
import shutil
import socket
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field
from pathlib import Path

import redis
from django.conf import settings
from django.core.cache import caches
from django.core.files.storage import FileSystemStorage, storages
from django.db import DatabaseError, connection, connections, transaction
from django.db.migrations.executor import MigrationExecutor
from django.http import JsonResponse
from django.utils import timezone
from django_q.conf import Conf
from django_q.status import Stat

from compaction_app.queries import longest_wait
from mnesis_core.errors import NotReady
from mnesis_site.errors import json_error, send_response
from mnesis_site.processes import UNHEARD
from sessions_app.callers import Scope, Send
from sessions_app.database.guards.rights import connection_differences, grant_differences
from sessions_app.database.guards.triggers import guard_differences
from sessions_app.database.outages import log_outage, to_error
from sessions_app.search.index import index_differences

PROBES = ("/livez", "/readyz")
Parts = dict[str, list[str]]
"""Sentences on what is missing, by part."""
FULL_BYTES = 20_000_000  # a disk with fewer free bytes counts as full
PROBE = "probe"  # no content of a file has this name
LONGEST_SECONDS = 1.5  # a probe waits so long for a check: it is answered within two seconds in all
SILENT = [f"It did not answer within {LONGEST_SECONDS} seconds."]
logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Readiness:
    missing: Parts = field(default_factory=dict)
    degraded: Parts = field(default_factory=dict)  # without these parts the site serves, with limits
    waiting: dict[str, int] = field(default_factory=dict)  # seconds that the oldest work has waited, by kind

    def __or__(self, other: Readiness) -> Readiness:
        return Readiness(
            missing=self.missing | other.missing,
            degraded=self.degraded | other.degraded,
            waiting=self.waiting | other.waiting,
        )


def missing_parts() -> Parts:
    """Return what is missing of ``database``, ``migrations``, ``guards`` and ``index``; empty when ready."""
    try:
        with transaction.atomic() if connection.vendor == "postgresql" else nullcontext():
            if connection.vendor == "postgresql":
                with connection.cursor() as cursor:
                    cursor.execute("SET LOCAL statement_timeout = '2s'")
            executor = MigrationExecutor(connection)
            plan = executor.migration_plan(executor.loader.graph.leaf_nodes())
            unapplied = [f"{migration.app_label}.{migration.name} is not applied" for migration, _backwards in plan]
            found = {"migrations": unapplied, "guards": unguarded(), "index": index_differences(connection)}
            return {part: sentences for part, sentences in found.items() if sentences}
    except DatabaseError as error:
        # Only the log has the reason: it may name hosts and accounts, and anyone may ask.
        log_outage(logger, "The server is not ready: the database does not answer", error)
        return {"database": ["The database does not answer. The server's log says why."]}


def look_at_database() -> Readiness:
    missing = missing_parts()
    seconds = None if missing else longest_wait(timezone.now())
    return Readiness(missing=missing, waiting={} if seconds is None else {"compaction": int(seconds)})


def look_at_workers() -> Readiness:
    try:
        caches[Conf.CACHE].get(PROBE)
    except redis.RedisError as error:
        log_outage(logger, "Redis does not answer", error)
        words = "Redis does not answer, where workers say that they live. The server's log says why."
        return Readiness(degraded={"redis": [words]})
    # A cluster reports every half second that it lives, and each report holds for three seconds.
    if any(stat.status in (Conf.IDLE, Conf.WORKING) for stat in Stat.get_all()):
        return Readiness()
    words = "No worker runs. 'manage.py up' starts one; 'manage.py qcluster' is one alone."
    return Readiness(degraded={"worker": [words]})


def look_at_storage() -> Readiness:
    folder = Path(settings.DATA_DIR)
    problems = []
    if folder.exists() and shutil.disk_usage(folder).free <= FULL_BYTES:
        problems.append("The disk of the data directory is full: nothing can be written. Make room.")
    storage = storages["files"]
    if not isinstance(storage, FileSystemStorage):
        try:
            storage.exists(PROBE)
        except Exception as error:  # each kind of storage has errors of its own
            log_outage(logger, "The storage of files does not answer", error)
            problems.append("The storage of files does not answer. The server's log says why.")
    return Readiness(degraded={"storage": problems} if problems else {})


def unguarded() -> list[str]:
    """Return how the record's guards differ from the declared ones; the site must not serve while they do."""
    return [*guard_differences(connection), *grant_differences(connection), *connection_differences(connection)]


def report_unguarded() -> None:
    """Log missing guards, for a server that was started without 'manage.py up', which refuses to start."""
    try:
        sentences = unguarded()
    except DatabaseError as error:
        log_outage(logger, "Whether the record is guarded cannot be read: the database does not answer", error)
        return
    if sentences:
        logger.error("%s /readyz lists all (%d) and answers 503 until then.", sentences[0], len(sentences))


def worker_gives_sign(pid: int) -> bool:
    """Return whether the cluster with this process id reports that it lives, or could not be heard. Asks no database."""
    if any(stat.pid == pid and stat.host == socket.gethostname() for stat in Stat.get_all()):
        return True
    try:
        caches[Conf.CACHE].set(PROBE, True, 3)
    except UNHEARD:
        return True
    return False


class Look:
    """A check of one part. Probes that come while it runs share it, so a check that hangs takes one thread."""

    def __init__(self, ask: Callable[[], Readiness], *, on_silence: Readiness) -> None:
        self.ask, self._on_silence = ask, on_silence
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="probe")
        self._running: Future[Readiness] | None = None

    async def in_time(self) -> Readiness:
        def ask_and_close() -> Readiness:
            try:
                return self.ask()
            finally:
                connections.close_all()

        if self._running is None or self._running.done():
            self._running = self._thread.submit(ask_and_close)
        running = asyncio.wrap_future(self._running)
        done, _ = await asyncio.wait([asyncio.shield(running)], timeout=LONGEST_SECONDS)
        return self._running.result() if done else self._on_silence


LOOKS = (
    Look(look_at_database, on_silence=Readiness(missing={"database": SILENT})),
    Look(look_at_workers, on_silence=Readiness(degraded={"worker": SILENT})),
    Look(look_at_storage, on_silence=Readiness(degraded={"storage": SILENT})),
)


async def answer_probe(scope: Scope, send: Send) -> None:
    """Answer a probe outside of Django's application: it may ask for any host, and must be answered whatever hangs."""
    if scope["path"] == "/livez":
        await send_response(JsonResponse({"status": "ok"}), send)
        return
    try:
        found = await asyncio.gather(*(look.in_time() for look in LOOKS))
        response = report(found, is_strict=b"strict=1" in scope["query_string"].split(b"&"))
    except Exception as exception:
        response = json_error(to_error(exception, asked="GET /readyz"))
    await send_response(response, send)


def report(looks: Iterable[Readiness], *, is_strict: bool = False) -> JsonResponse:
    """Return 503 with what is missing, also for what is degraded if ``is_strict``; else 200 with what is degraded."""
    found = Readiness()
    for look in looks:
        found |= look
    if found.missing or (found.degraded and is_strict):
        error = NotReady(missing=found.missing, degraded=found.degraded)
        response = JsonResponse({"ready": False, "error": error.as_dict()}, status=error.status)
    else:
        more = {"degraded": found.degraded, "waiting_seconds": found.waiting}
        response = JsonResponse({"ready": True} | {name: value for name, value in more.items() if value})
    response.headers["Cache-Control"] = "no-store"
    return response
