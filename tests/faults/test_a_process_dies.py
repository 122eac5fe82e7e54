"""Processes are killed while they work. What was acknowledged stays; what was streamed is found again."""

from __future__ import annotations

import signal
from pathlib import Path

import httpx
import psutil

from tests.journeys.conftest import Caller, caller_for
from tests.support.databases import site_database
from tests.support.site import Site, running_site, wait_until, wait_until_ready

STORY = "The harbour office moved its ledgers to the new building in March, and Ines checked every one of them. "


def children(site: Site, name: str) -> list[psutil.Process]:
    """The processes below the launcher whose command line names this."""
    return [process for process in site.processes()[1:] if name in " ".join(process.cmdline())]


def stream_a_little(caller: Caller, session: str) -> None:
    """Wait until some of the answer has been seen by somebody."""
    path = f"/api/sessions/{session}/events"
    with caller.client.stream("GET", path, headers={"Accept": "text/event-stream"}) as stream:
        lines = stream.iter_lines()
        for _ in range(12):
            next(line for line in lines if '"delta"' in line)


def test_a_killed_web_server_loses_no_word_and_a_missing_worker_no_answer(tmp_path: Path):
    with site_database("test_faults") as database, running_site(tmp_path, **database) as site:
        wait_until_ready(site)
        caller = caller_for(site, "admin")
        session = caller.new_session()
        turn = caller.start(session, "!slow 60 !long 500")
        stream_a_little(caller, session)
        for process in children(site, "daphne"):
            process.send_signal(signal.SIGKILL)
        wait_until(lambda: site.output().count("started again") >= 1, seconds=30)
        wait_until_ready(site)
        ended = caller.wait(turn, seconds=40)
        assert (ended["state"], ended["error"]["code"]) == ("interrupted", "TURN_INTERRUPTED")
        user, answer = caller.texts(session)
        assert user == "!slow 60 !long 500"
        assert len(answer) > 20
        assert caller.say(session, "Hello again")["state"] == "completed"
        _stop_worker(site)
        for index in range(20):
            assert caller.say(session, f"Chapter {index}. {STORY * 12}")["state"] == "completed"
        runs = caller.call("GET", f"/api/sessions/{session}/compactions")["items"]
        assert any(run["state"] == "completed" for run in runs)
        context = caller.call("GET", f"/api/sessions/{session}")["context"]
        assert context["used_tokens"] <= context["hard_tokens"]
        caller.client.close()


def test_a_stop_in_the_middle_of_an_answer_keeps_it_and_says_so(tmp_path: Path):
    with site_database("test_stop") as database:
        with running_site(tmp_path, **database) as site:
            wait_until_ready(site)
            caller = caller_for(site, "admin")
            session = caller.new_session()
            turn = caller.start(session, "!slow 60 !long 500")
            stream_a_little(caller, session)
        with running_site(tmp_path, **database) as site:
            again = Caller(
                site=site, key=caller.key, client=httpx.Client(base_url=site.url, headers=caller.client.headers)
            )
            ended = again.call("GET", f"/api/sessions/{session}/turns/{turn['id']}")
            assert (ended["state"], ended["error"]["code"]) == ("interrupted", "TURN_INTERRUPTED")
            assert len(again.texts(session)[1]) > 20
            again.client.close()
        caller.client.close()


def _stop_worker(site: Site) -> None:
    """Freeze the worker's processes: they are there, and do nothing. Stopped for good they would be replaced."""
    for process in children(site, "qcluster"):
        process.suspend()
