"""One site for all tests of this package that kill it, starve it and stop reading: it may as well be the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from django.db import connection

from tests.journeys.conftest import Caller, caller_for
from tests.support.people.story import alice, bob, quiet_runner, script, session
from tests.support.sites.databases import site_database
from tests.support.sites.site import UNLIMITED, Site, running_site, wait_until_ready

__all__ = ["alice", "bob", "quiet_runner", "script", "session"]

# What is about one kind of database belongs to the run on that one; what starts servers of its own needs one run only.
ON_SQLITE = [f"outages/test_{name}.py" for name in ("full_disk", "power_cut", "outages", "probes")]
ON_POSTGRESQL = [f"outages/test_{name}.py" for name in ("line_to_postgresql", "live_connection")]
collect_ignore = ON_POSTGRESQL if connection.vendor == "sqlite" else ON_SQLITE

LEASE_SECONDS = 2.5
SLOW_SECONDS = 1.5
HEADER_SECONDS = 2.0


@pytest.fixture(scope="package")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """A site that gives up soon: the processes that die, and the clients that do not read."""
    directory = tmp_path_factory.mktemp("site")
    config = directory / "config.toml"
    leases = "".join(f"[{part}]\nlease_seconds = {LEASE_SECONDS}\n" for part in ("compaction", "operators", "turn"))
    leases += "most_at_once = 1_000\n"
    web = f"[web]\nheader_seconds = {HEADER_SECONDS}\nbody_seconds = {HEADER_SECONDS}\nwaiting_connections = 256\n"
    config.write_text(f"{leases}{web}[stream]\nslow_seconds = {SLOW_SECONDS}\n{UNLIMITED}")
    settings = {"MNESIS_CONFIG": str(config), "LOOPBACK_KEY": "key"}
    with (
        site_database("test_faults", is_prepared=True) as database,
        running_site(directory, **settings, **database) as site,
    ):
        wait_until_ready(site)
        yield site


@pytest.fixture(scope="package")
def caller(site: Site) -> Iterator[Caller]:
    caller = caller_for(site, "admin")
    yield caller
    caller.client.close()
