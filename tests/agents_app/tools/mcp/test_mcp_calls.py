"""Tool servers asked for real: programs on standard input and output, and streamable HTTP. Whatever they do is bounded."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import psutil
import pytest
import pytest_asyncio

from agents_app.tools import http as tools_http
from agents_app.tools.mcp import connections as mcp_connections
from agents_app.tools.mcp.connections import Connection, call_tool, connections
from agents_app.tools.registry import ask_for_tools
from mnesis_core.errors import ToolFailed, ToolServerUnreachable
from mnesis_core.turns.mcp_servers import ServerAddress, take_listing
from tests.support.providers.threaded_server import QuietHandler, ThreadedServer
from tests.support.servers.mcp_servers import attached, example, example_over_http, hostile
from tests.support.waiting import until

# One loop for the module, so that a server is started once and not for each test.
pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest.fixture(scope="module")
def over_http() -> Iterator[ServerAddress]:
    with example_over_http() as address:
        yield address


@pytest.fixture(scope="module", params=["stdio", "http"])
def server(request):
    address = example() if request.param == "stdio" else request.getfixturevalue("over_http")
    return attached(address)


@pytest_asyncio.fixture(autouse=True, scope="module", loop_scope="module")
async def ended() -> AsyncIterator[None]:
    """No program outlives these tests."""
    yield
    await connections.close()


@pytest.mark.slow
async def test_tools_of_a_server_are_listed_and_called(server):
    listing = take_listing("example", await ask_for_tools(server.address))
    assert [tool.spec.name for tool in listing.tools][:2] == ["example__add", "example__refuse"]
    assert listing.tools[0].spec.parameters["required"] == ["a", "b"]
    assert await call_tool(server, "add", {"a": 20, "b": 22}) == "42"
    assert len(await call_tool(server, "recite", {"characters": 1_000_000})) == 1_000_000


async def test_a_tools_own_error_is_an_error_and_the_connection_stays(server):
    before = await call_tool(server, "surroundings", {})
    for name, arguments in (("refuse", {"reason": "no"}), ("add", {"a": "x", "b": 1}), ("nosuch", {})):
        with pytest.raises(ToolFailed):
            await call_tool(server, name, arguments)
    assert await call_tool(server, "surroundings", {}) == before


async def test_calls_go_side_by_side_and_one_that_takes_too_long_ends_alone(server):
    async def too_late() -> str:
        async with asyncio.timeout(0.1):
            return await call_tool(server, "wait", {"seconds": 60})

    await call_tool(server, "add", {"a": 1, "b": 1})
    started = time.monotonic()
    late = [call_tool(server, "wait", {"seconds": 0.5}) for _ in range(20)]
    out, *answers = await asyncio.gather(too_late(), *late, return_exceptions=True)
    assert isinstance(out, TimeoutError)
    assert answers == ["late"] * 20
    assert time.monotonic() - started < 20 * 0.5


async def test_a_program_gets_a_small_environment_and_its_secret(monkeypatch):
    monkeypatch.setenv("FILES_TOKEN", "s3cret")
    monkeypatch.setenv("OPENAI_API_KEY", "not for it")
    said = await call_tool(attached(example(secrets={"TOKEN": "FILES_TOKEN"})), "surroundings", {})
    names, token, folder, _ = said.split(" | ")
    assert (
        {"PATH", "TOKEN"}
        <= {*names.split()}
        <= {"HOME", "LC_CTYPE", "LOGNAME", "PATH", "SHELL", "TERM", "TOKEN", "USER"}
    )
    assert (token, folder) == ("s3cret", "/")


@pytest.mark.parametrize(
    ("address", "reason"),
    [
        (hostile("plain", secrets={"TOKEN": "NOT_SET_ANYWHERE"}), "needs the environment variable NOT_SET_ANYWHERE"),
        (ServerAddress(entered_on_host=True, name="x", argv=("/no/such/program",)), "no program /no/such/program"),
        (ServerAddress(entered_on_host=True, name="x", argv=(sys.executable, "-c", "pass")), "ended without an answer"),
        (
            ServerAddress(entered_on_host=True, name="x", argv=(sys.executable, "-c", "print('Hello!')")),
            "ended without an answer",
        ),
        (ServerAddress(entered_on_host=True, name="x", url="http://127.0.0.1:9/mcp"), "ConnectError"),
    ],
)
async def test_what_cannot_be_reached_is_said(address, reason):
    with pytest.raises(ToolServerUnreachable, match=reason):
        await call_tool(attached(address), "act", {})


@pytest.mark.slow
async def test_who_says_nothing_at_all_is_given_up(monkeypatch):
    monkeypatch.setattr(mcp_connections, "CONNECT_SECONDS", 0.3)
    with pytest.raises(ToolServerUnreachable, match=r"did not answer within 0\.3 seconds"):
        await call_tool(attached(hostile("mute")), "act", {})


@pytest.mark.parametrize(
    ("mode", "error", "words"),
    [
        ("nonsense", ToolFailed, "the protocol does not know"),
        ("error", ToolFailed, "answers: no, xxx"),
        ("dies", ToolServerUnreachable, "ended without an answer"),
        ("endless-line", ToolServerUnreachable, "ended without an answer"),
        ("silent", TimeoutError, None),
        ("babbles", TimeoutError, None),
    ],
)
async def test_a_hostile_answer_is_an_error_and_bounded(mode, error, words, monkeypatch):
    monkeypatch.setattr(mcp_connections, "MOST_BYTES", 3_000_000)
    seconds = 0.5 if error is TimeoutError else 20
    with pytest.raises(error, match=words) as raised:
        async with asyncio.timeout(seconds):
            await call_tool(attached(hostile(mode)), "act", {})
    assert len(str(raised.value)) < 700


async def test_a_program_that_died_is_started_again_at_the_next_call():
    server = attached(hostile("plain"))
    first = await call_tool(server, "act", {})
    psutil.Process(int(first.split()[2])).kill()
    await until(lambda: not connections._open[server.id].is_open)
    again = await call_tool(server, "act", {})
    assert again.startswith("done by")
    assert again != first
    assert again.endswith("[image/png, 3 bytes: not shown]")


@pytest.mark.slow
async def test_a_list_without_end_is_read_to_a_limit():
    assert len(await ask_for_tools(hostile("endless-list"))) == 512
    taken = take_listing("hostile", await ask_for_tools(hostile("lies")))
    assert [tool.remote_name for tool in taken.tools] == ["good", "with spaces/and;more", "liar"]
    with pytest.raises(ToolFailed, match="the protocol does not know"):
        await ask_for_tools(hostile("wrong-list"))


async def test_a_schema_of_answers_that_lies_is_not_asked():
    server = attached(hostile("lies"))
    assert (await call_tool(server, "liar", {})).startswith("done by")


def _alive(pids: list[int]) -> list[int]:
    return [pid for pid in pids if psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE]


def _pids(path: Path) -> list[int]:
    return [int(pid) for pid in path.read_text().split()] if path.exists() else []


@pytest.mark.slow
async def test_a_program_that_will_not_end_is_ended_with_its_children(tmp_path):
    connection = Connection(hostile("stays", str(tmp_path / "pids")))
    await until(lambda: len(_pids(tmp_path / "pids")) == 2)
    pids = _pids(tmp_path / "pids")
    assert len(_alive(pids)) == 2
    await connection.close()
    await until(lambda: not _alive(pids))


@pytest.mark.slow
async def test_closing_waits_for_a_program_that_a_caller_gave_up(over_http, tmp_path):
    given_up = asyncio.create_task(call_tool(attached(hostile("stays", str(tmp_path / "pids"))), "act", {}))
    await until(lambda: len(_pids(tmp_path / "pids")) == 2)
    given_up.cancel()
    await asyncio.wait([given_up])
    # Whoever connects next forgets the connections that calls no longer use.
    assert await call_tool(attached(over_http), "add", {"a": 20, "b": 22}) == "42"
    await connections.close()
    assert not [task for task in asyncio.all_tasks() if task.get_name() == "mcp hostile"]
    assert not _alive(_pids(tmp_path / "pids"))


PARENT = """
import subprocess, sys, time
subprocess.Popen([sys.executable, *sys.argv[1:]], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True)
time.sleep(60)
"""


@pytest.mark.slow
async def test_when_we_are_killed_so_is_the_program(tmp_path):
    argv = [str(mcp_connections.SUPERVISOR), "1000", *hostile("stays", str(tmp_path / "pids")).argv]
    parent = await asyncio.create_subprocess_exec(sys.executable, "-c", PARENT, *argv)
    await until(lambda: len(_pids(tmp_path / "pids")) == 2)
    pids = _pids(tmp_path / "pids")
    assert len(_alive(pids)) == 2
    parent.kill()
    await parent.wait()
    await until(lambda: not _alive(pids))


class Rude(QuietHandler):
    """An HTTP server that redirects, or never stops, and remembers what it was sent."""

    seen: list[tuple[str, str | None]] = []

    def do_POST(self) -> None:
        self.seen.append((self.path, self.headers.get("Authorization")))
        self.rfile.read(int(self.headers["Content-Length"]))
        if self.path == "/redirects":
            self.send_response(307)
            self.send_header("Location", f"http://localhost:{self.server.server_address[1]}/elsewhere")
            self.end_headers()
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        try:
            while self.path == "/endless":
                self.wfile.write(b" " * 100_000)
        except OSError:
            return
        self.wfile.write(b"no JSON")


@pytest.fixture
def rude() -> Iterator[str]:
    Rude.seen = []
    with ThreadedServer(Rude) as server:
        yield server.url


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "words"),
    [
        ("/redirects", "elsewhere not followed"),
        ("/endless", "the answer is longer than 1,000,000 bytes"),
        ("/nonsense", "Failed to parse JSON response"),
    ],
)
async def test_a_rude_server_over_http_is_an_error_and_gets_nothing_elsewhere(rude, path, words, monkeypatch):
    monkeypatch.setattr(tools_http, "MOST_BYTES", 1_000_000)
    monkeypatch.setenv("FILES_TOKEN", "s3cret")
    address = ServerAddress(
        entered_on_host=True, name="rude", url=f"{rude}{path}", secrets={"Authorization": "FILES_TOKEN"}
    )
    with pytest.raises((ToolServerUnreachable, ToolFailed), match=words) as raised:
        await call_tool(attached(address), "act", {})
    assert "s3cret" not in str(raised.value)
    assert {*Rude.seen} == {(path, "Bearer s3cret")}


@pytest.mark.slow
async def test_a_connection_that_nobody_uses_is_closed(monkeypatch):
    monkeypatch.setattr(mcp_connections, "IDLE_SECONDS", 0.05)
    server = attached(hostile("plain", "idle"))
    pid = int((await call_tool(server, "act", {})).split()[2])
    await until(lambda: not _alive([pid]))
    assert os.getpid() != pid
