"""``/livez`` and ``/readyz`` are answered whatever hangs."""

from __future__ import annotations

from pathlib import Path

import httpx
import pytest

from tests.support.failures.outages import FrozenBackends, own_postgres, own_redis
from tests.support.sites.site import Site, running_site, wait_until, wait_until_ready

pytestmark = pytest.mark.slow

ANSWER_SECONDS = 8.0
"""In which a probe is answered on a busy machine; without a limit it never is."""
ELSEWHERE = {"Host": "10.1.2.3:8000"}
"""What a probe by a pod's address sends: no host of ours."""


def test_probes_are_answered_while_every_backend_hangs(tmp_path: Path) -> None:
    with own_postgres() as postgres, running_site(tmp_path, **postgres.settings) as site:
        wait_until_ready(site)
        assert probe(site, "readyz").json() == {"ready": True}
        frozen = FrozenBackends(postgres)
        frozen.begin()
        try:
            for _ in range(3):  # those that hang are not to take the threads of those that come
                assert probe(site, "livez").status_code == 200
                answer = probe(site, "readyz")
                assert answer.status_code == 503
                assert list(answer.json()["error"]["details"]["missing"]) == ["database"]
        finally:
            frozen.end()
        wait_until(lambda: probe(site, "readyz").json() == {"ready": True})


def test_a_redis_that_hangs_leaves_a_site_ready(tmp_path: Path) -> None:
    with own_redis(tmp_path) as server, running_site(tmp_path, **server.settings) as site:
        wait_until_ready(site)
        server.freeze()
        for _ in range(3):
            answer = probe(site, "readyz")
            assert answer.status_code == 200
            assert set(answer.json()["degraded"]) & {"redis", "worker"}


def probe(site: Site, name: str) -> httpx.Response:
    """Ask, as what watches over a container does."""
    return httpx.get(f"{site.url}/{name}", headers=ELSEWHERE, timeout=ANSWER_SECONDS)
