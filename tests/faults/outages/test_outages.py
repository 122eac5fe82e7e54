"""What a site needs goes away and comes back: `up` stays, says so while it lasts, and everything works again by itself."""

from __future__ import annotations

import json
import os
import shutil
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import ConnectionClosed
from websockets.sync.client import ClientConnection, connect

from sessions_app.callers import TRY_AGAIN
from tests.faults.conftest import LEASE_SECONDS
from tests.journeys.conftest import Caller, caller_for
from tests.support.failures.outages import SPARE_BYTES, FullDisk, Outage, own_line, own_postgres, own_redis, small_disk
from tests.support.sites.site import Site, lay_database, running_site, wait_until

pytestmark = pytest.mark.slow

ROUNDS = int(os.environ.get("MNESIS_SOAK_OUTAGE_ROUNDS", "10"))
SOAK_SECONDS = [float(text) for text in os.environ.get("MNESIS_SOAK_OUTAGE_SECONDS", "5,30,120").split(",")]
SHORT_SECONDS = 4.0
ANSWER_SECONDS = 8.0
"""In which everything is answered, also on a busy machine; on an idle one it is a third of it."""
BACK_SECONDS = 90.0
"""In which everything works again, also on a busy machine; a lease and a sweep of five seconds are in it."""
SURVIVED_SECONDS = 30.0
"""The longest outage of the database that a running answer survives."""
CROWD = 8
"""Requests at once."""
LINES_A_SECOND = 3.0
"""How much all processes of a site together may log during an outage, and twenty lines more."""

CONFIG = f"""
[turn]
lease_seconds = {LEASE_SECONDS}
[requests]
per_second = 1000.0
burst = 1000
"""
"""The driver asks about hundreds of turns in a row, faster than one person may by default."""

LENGTHS = [
    pytest.param(1, SHORT_SECONDS, id="short"),
    *(pytest.param(ROUNDS, seconds, id=f"{seconds:g}s", marks=pytest.mark.soak) for seconds in SOAK_SECONDS),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    disk = tmp_path / "disk"
    disk.mkdir()
    return disk


def kinds(folder: Path) -> dict[str, Callable[[], AbstractContextManager[Outage]]]:
    """Each kind of outage, by its name."""
    return {
        "postgresql": own_postgres,
        "line": own_line,
        "redis": lambda: own_redis(folder),
        "disk": lambda: small_disk(folder),
    }


CODES = {"postgresql": "DATABASE_UNAVAILABLE", "line": "DATABASE_UNAVAILABLE", "disk": "STORAGE_FULL", "redis": ""}
"""What a write is answered meanwhile; none: it is done."""


@pytest.mark.parametrize(("rounds", "seconds"), LENGTHS)
@pytest.mark.parametrize("kind", list(CODES))
def test_a_site_outlasts_an_outage(tmp_path: Path, folder: Path, kind: str, rounds: int, seconds: float) -> None:
    if kind == "disk" and (os.getuid() != 0 or not shutil.which("mount")):
        pytest.skip("mounting a disk takes root")
    with kinds(folder)[kind]() as outage:
        (tmp_path / "config.toml").write_text(CONFIG)
        settings = {"MNESIS_DATA_DIR": str(folder), "MNESIS_CONFIG": str(tmp_path / "config.toml")} | outage.settings
        if "DATABASE_URL" not in settings:
            lay_database(folder)
            settings["DATABASE_URL"] = f"sqlite:///{folder}/mnesis.sqlite3"
        with running_site(tmp_path, **settings) as site:
            wait_until(lambda: is_whole(site))
            caller = caller_for(site, "admin")
            for number in range(rounds):
                Round(site, caller, outage, code=CODES[kind]).run(seconds, number)
            caller.client.close()
            assert "Traceback" not in site.output()


def test_of_many_connections_that_broke_one_request_at_most_finds_out(tmp_path: Path) -> None:
    with own_line() as line, running_site(tmp_path, **line.settings) as site:
        wait_until(lambda: is_whole(site))
        caller = caller_for(site, "admin")
        with ThreadPoolExecutor(CROWD) as crowd:
            assert set(crowd.map(lambda _: ask_for_list(caller), range(4 * CROWD))) == {200}
        line.begin()
        line.end()
        answers = [ask_for_list(caller) for _ in range(CROWD)]
        caller.client.close()
        assert answers.count(200) >= CROWD - 1, f"{answers}\n{site.output()[-4000:]}"


def ask_for_list(caller: Caller) -> int:
    """The status of an answer that takes a connection to the database."""
    return caller.client.get("/api/sessions").status_code


def is_whole(site: Site) -> bool:
    """Whether the site says that it is ready and nothing of it is missing."""
    try:
        return httpx.get(f"{site.url}/readyz", params={"strict": "1"}, timeout=5).status_code == 200
    except httpx.TransportError:
        return False


def wait_for(socket: ClientConnection, kind: str, **data: str) -> None:
    """Read from a socket up to the first frame of this kind, about this."""
    while True:
        frame = json.loads(socket.recv(timeout=BACK_SECONDS))
        if frame["type"] == kind and data.items() <= frame.get("data", {}).items():
            return


class Round:
    """One outage of a running site."""

    def __init__(self, site: Site, caller: Caller, outage: Outage, *, code: str) -> None:
        self.site, self.caller, self.outage, self.code = site, caller, outage, code
        self.session = ""
        self.turns: list[dict[str, str]] = []
        """Those that were acknowledged."""

    def run(self, seconds: float, number: int) -> None:
        """Begin it in the middle of an answer, ask all the while, end it and see that everything works."""
        self.session = session = self.caller.new_session(title=f"round {number}")
        with self.follow(session) as socket:
            self.away_and_back(session, socket, seconds, number)
            turn = self.caller.say(session, "Are you there?")
            wait_for(socket, "turn.completed", turn_id=turn["id"])

    def follow(self, session: str) -> ClientConnection:
        """A socket that is to stay open all the while."""
        address = f"ws://127.0.0.1:{self.site.port}/ws/sessions/{session}?after=0"
        return connect(address, additional_headers={"Authorization": f"Bearer {self.caller.key}"}, max_queue=None)

    def away_and_back(self, session: str, socket: ClientConnection, seconds: float, number: int) -> None:
        """The outage itself, and what is to be true after it."""
        first = self.caller.start(session, "!slow 50 !long 80")
        wait_for(socket, "delta")
        tree, lines = set(self.roots()), self.site.output().count("\n")
        self.outage.begin()
        slowest = self.ask(time.monotonic() + seconds)
        said = self.site.output().count("\n") - lines
        self.outage.end()
        began = time.monotonic()
        wait_until(lambda: is_whole(self.site), seconds=BACK_SECONDS)
        back = time.monotonic() - began
        print(f"round {number}: slowest answer {slowest:.1f} s, {said} lines, whole after {back:.1f} s")
        self.turns.append(self.caller.wait(first, seconds=BACK_SECONDS))
        if seconds <= SURVIVED_SECONDS and self.code != "STORAGE_FULL":
            assert self.turns[-1]["state"] == "completed", self.turns[-1]
        assert set(self.roots()) == tree
        assert said <= 20 + LINES_A_SECOND * seconds
        self.everything_works(session)

    def roots(self) -> list[int]:
        """The launcher, the web server and the cluster: none of them is to die."""
        launcher = self.site.processes()[0]
        return [launcher.pid, *(child.pid for child in launcher.children())]

    def ask(self, ends: float) -> float:
        """Ask every endpoint until then; returns how long the slowest answer took."""
        slowest, asked = 0.0, 0
        while time.monotonic() < ends:
            if isinstance(self.outage, FullDisk):
                self.outage.begin()  # what the site deletes makes room
            for look in (self.look_at_probes, self.write, self.look_at_page, self.open_a_socket):
                began = time.monotonic()
                look(is_settled=asked > 0)
                slowest = max(slowest, time.monotonic() - began)
            asked += 1
            time.sleep(0.3)
        assert slowest < 2 * ANSWER_SECONDS
        return slowest

    def look_at_probes(self, *, is_settled: bool) -> None:
        """It lives; it is ready unless the database is away."""
        assert httpx.get(f"{self.site.url}/livez", timeout=ANSWER_SECONDS).status_code == 200
        ready = httpx.get(f"{self.site.url}/readyz", timeout=ANSWER_SECONDS)
        if is_settled:
            assert ready.status_code == (503 if self.code == "DATABASE_UNAVAILABLE" else 200), ready.text

    def write(self, *, is_settled: bool) -> None:
        """A turn is refused in so many words, or acknowledged."""
        answer = self.caller.client.post("/api/sessions", json={"title": "meanwhile"}, timeout=ANSWER_SECONDS)
        if answer.status_code < 300:
            session = answer.json()["id"]
            started = self.caller.client.post(
                f"/api/sessions/{session}/turns", json={"message": "Hello"}, timeout=ANSWER_SECONDS
            )
            if started.status_code < 300:
                self.turns.append(started.json())
                return
            answer = started
        self.is_refused(answer)
        if self.code == "STORAGE_FULL":
            files = {"file": ("large", os.urandom(2 * SPARE_BYTES))}
            data = {"session_id": self.session}
            self.is_refused(self.caller.client.post("/api/files", files=files, data=data, timeout=ANSWER_SECONDS))

    def is_refused(self, answer: httpx.Response) -> None:
        """It is, with a code of an outage and when to come again."""
        error = answer.json()["error"]
        assert self.code, answer.text
        assert error["code"] in (self.code, "DATABASE_UNAVAILABLE"), answer.text
        assert int(answer.headers["Retry-After"]) > 0

    def look_at_page(self, *, is_settled: bool) -> None:
        """A page that reads is shown, or says what is away."""
        cookies = {"sessionid": "nobodysnobodysnobodysnobodysnobo"}
        page = httpx.get(f"{self.site.url}/", cookies=cookies, timeout=ANSWER_SECONDS)
        if self.code != "DATABASE_UNAVAILABLE":
            assert page.status_code in (200, 302), page.text
        elif is_settled:
            assert page.status_code == 503
            assert self.code in page.text
            assert int(page.headers["Retry-After"]) > 0

    def open_a_socket(self, *, is_settled: bool) -> None:
        """A new socket is closed with the code that says to come again."""
        if self.code != "DATABASE_UNAVAILABLE" or not is_settled:
            return
        with self.follow("sess_of_nobody") as socket, pytest.raises(ConnectionClosed):
            socket.recv(timeout=ANSWER_SECONDS)
        assert socket.close_code == TRY_AGAIN

    def everything_works(self, session: str) -> None:
        """Every acknowledged turn has ended, a new one completes, and a worker takes a job."""
        ends = [self.caller.wait(turn, seconds=BACK_SECONDS) for turn in self.turns]
        assert {end["state"] for end in ends} <= {"completed", "failed", "interrupted"}
        assert {end["error"]["code"] for end in ends if end["error"]} <= {"TURN_INTERRUPTED", self.code}
        assert self.caller.say(session, "Hello again")["state"] == "completed"
        answer = self.caller.client.post(
            "/api/files", files={"file": ("a.txt", os.urandom(16).hex().encode())}, data={"session_id": session}
        )
        assert answer.status_code == 201, answer.text
        path = f"/api/files/{answer.json()['id']}"
        wait_until(lambda: self.caller.call("GET", path)["state"] == "explored", seconds=BACK_SECONDS)
