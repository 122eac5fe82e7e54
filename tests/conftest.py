"""What every test may ask for, and the rule that a run which promised everything skips nothing."""

from __future__ import annotations

import contextvars
import gc
import math
import os
import shutil
import signal
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import Any

import hypothesis
import psycopg
import pytest
import redis
from django.conf import settings
from django.db import connection
from django.utils import translation

from agents_app.turns import claim
from sessions_app.database.guards.rights import lifted
from sessions_app.record import actor, organisation_store, session_store
from tests.support.material.samples import FOLDER
from tests.support.sites.databases import migrated_database
from tests.support.sites.kept_connections import kept_connections
from tests.support.sites.site import migrated_file, shared_folder
from tests.support.sites.site_role import acting_as, drop_role, make_site_role

DATABASE_FIXTURES = {"db", "transactional_db", "site"}
"""Who asks for one of these uses the database that ``DATABASE_URL`` names, in this process or in a site's."""
SITE_FIXTURES = {"site", "portal"}
"""A running site of processes, and a browser on one: tests that ask for it are slow, unless they are marked ``smoke``."""
FIRST = ("faults", "browser", "journeys")
"""Directories whose tests take longest and share a site; on PostgreSQL they are the last ones."""

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell that starts the suite in the background has it ignore Ctrl+C, and the programs that tests start would, too.
    signal.signal(signal.SIGINT, signal.default_int_handler)
gc.disable()  # until everything is imported: nothing of it is garbage
hypothesis.settings.register_profile("soak", max_examples=2_000, deadline=None)
hypothesis.settings.register_profile("suite", max_examples=25, deadline=None)
hypothesis.settings.register_profile("quick", max_examples=10, deadline=None)
hypothesis.settings.load_profile("suite")


@pytest.fixture
def real_data() -> Path:
    """The directory of real sample files; tests that ask for it are left out where there is none."""
    return FOLDER


@pytest.fixture(scope="session")
def postgres_url() -> str:
    """The address of a PostgreSQL as a superuser."""
    url = os.environ.get("TEST_POSTGRES_URL", "")
    if not url:
        pytest.skip("no PostgreSQL: set TEST_POSTGRES_URL to one as a superuser")
    with psycopg.connect(url, connect_timeout=5):
        return url


@pytest.fixture(scope="session")
def redis_url() -> str:
    """The address of a Redis server."""
    url = os.environ.get("TEST_REDIS_URL", "")
    if not url:
        pytest.skip("no Redis: set TEST_REDIS_URL to one")
    with redis.Redis.from_url(url, socket_connect_timeout=5) as client:
        client.ping()
    return url


@pytest.fixture(scope="session")
def django_db_keepdb(django_db_modify_db_settings: None) -> Iterator[bool]:
    """Begin with a migrated database where the processes of a run share one; what it lacks is migrated all the same."""
    tests = connection.settings_dict["TEST"]
    if shared_folder() is None:
        yield False
    elif connection.vendor == "sqlite":
        shutil.copy(migrated_file(), tests["NAME"])
        yield True  # it goes with the directory of this process
    else:
        with migrated_database(os.environ["TEST_POSTGRES_URL"]) as tests["TEMPLATE"]:
            yield False


@pytest.fixture(scope="session")
def django_db_setup(django_db_setup: None, django_db_blocker: Any) -> Iterator[None]:
    """The test database and, on PostgreSQL, the role that tests act as."""
    with django_db_blocker.unblock():
        settings.MNESIS["APP_ROLE"] = make_site_role() if connection.vendor == "postgresql" else ""
    yield
    with django_db_blocker.unblock():
        drop_role(settings.MNESIS["APP_ROLE"])


@pytest.fixture(scope="session")
def site_role_name(django_db_setup: None) -> str:
    """The role that tests act as on PostgreSQL; SQLite has none."""
    return str(settings.MNESIS["APP_ROLE"])


@pytest.fixture(scope="session", autouse=True)
def _acting() -> Iterator[None]:
    """What a test does itself is the system's; requests, workers and commands must say who acts (``REQUIRE_ACTOR``)."""
    with actor.acting_as(actor.SYSTEM):
        yield


@pytest.fixture(scope="session", autouse=True)
def _no_worker() -> None:
    """No worker runs beside a test, so a turn need not give one time to explore its files first."""
    claim.WORKER_SECONDS = 0.0


@pytest.fixture(scope="session", autouse=True)
def _no_rounds() -> None:
    """A process's round over changed sessions, every five minutes, would count among the queries of the test that it meets."""
    session_store.RECORD_SECONDS = math.inf


@pytest.fixture(autouse=True)
def _strangers() -> Iterator[None]:
    """A test's accounts have the numbers of the last test's, and so may those of a module, which come before this."""
    organisation_store._refs.clear()
    yield
    organisation_store._refs.clear()


@pytest.fixture(autouse=True)
def _english() -> Iterator[None]:
    """The language of the last request stays active in its thread."""
    yield
    translation.deactivate()


class _Thread(threading.Thread):
    """A thread of a test acts as the test does; threads of the site copy a context for each call."""

    def start(self) -> None:
        context, run = contextvars.copy_context(), self.run
        self.run = lambda: context.run(run)  # type: ignore[method-assign]
        super().start()


threading.Thread = _Thread  # type: ignore[misc]


@pytest.fixture(autouse=True)
def _rights(request: pytest.FixtureRequest) -> Iterator[None]:
    """A test has the site's rights, like web and workers; one that is marked ``owner`` has the database owner's."""
    uses_database = {"db", "transactional_db"} & {*request.fixturenames} or request.node.get_closest_marker("django_db")
    rights: AbstractContextManager[None] = nullcontext()
    kept: AbstractContextManager[None] = nullcontext()
    if request.node.get_closest_marker("owner"):
        rights = lifted(connection)
    elif uses_database and connection.vendor == "postgresql":
        name = request.getfixturevalue("site_role_name")
        request.getfixturevalue("db")  # what undoes the test's work is the owner's again
        rights, kept = acting_as(name), kept_connections()
    with rights, kept:
        yield


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Mark what uses the database, a running site or the sample files, and leave out what lacks those, as in a clone."""
    for item in items:
        fixtures = {*getattr(item, "fixturenames", ())}
        if fixtures & DATABASE_FIXTURES or item.get_closest_marker("django_db"):
            item.add_marker("uses_database")
        if fixtures & SITE_FIXTURES and not item.get_closest_marker("smoke"):
            item.add_marker("slow")
        if "real_data" in fixtures:
            item.add_marker("real_data")
    if not FOLDER.is_dir():
        config.hook.pytest_deselected(items=[item for item in items if item.get_closest_marker("real_data")])
        items[:] = [item for item in items if not item.get_closest_marker("real_data")]
    # A worker that keeps to a directory starts its site once. The run on PostgreSQL has them last: two of their kind at
    # the same time wait for each other's processor, and beside tests that never wait they do not.
    order = {directory: place for place, directory in enumerate(FIRST)}
    sign = -1 if connection.vendor == "postgresql" else 1
    items.sort(key=lambda item: sign * order.get(item.nodeid.split("/")[1], len(FIRST)))


def pytest_collection_finish() -> None:
    """Let the garbage collector leave alone what is imported by now: it stays to the end."""
    gc.collect()
    gc.freeze()
    gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what was not tested."""
    if not FOLDER.is_dir():
        terminalreporter.section("NO SAMPLE FILES")
        terminalreporter.line(f"tests on real transcripts were left out: {FOLDER} does not exist")
    if os.environ.get("MNESIS_REQUIRE_ALL") and terminalreporter.stats.get("skipped"):
        terminalreporter.section("SKIPPED, BUT THIS RUN MUST TEST EVERYTHING", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """With MNESIS_REQUIRE_ALL a skipped test fails the run."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if os.environ.get("MNESIS_REQUIRE_ALL") and reporter and reporter.stats.get("skipped"):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
