"""Which tools of an MCP server change nothing: said of each by an administrator, or by a server whose word is taken."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import CommandError, call_command
from django.test import Client

from agents_app import store
from agents_app.queries import load_server
from agents_app.tools.pages import mark_read_only
from agents_app.tools.registry import close_connections
from agents_app.turns import lifecycle
from agents_app.turns.runner import runner
from mnesis_core.errors import InvalidRequest
from mnesis_core.llm.interface import Request
from mnesis_core.maps.values import OperatorKind
from mnesis_core.messages import ToolPart
from mnesis_core.providers.scripted import Script, ScriptedModel
from mnesis_core.records import SessionRecord
from mnesis_core.turns.mcp_servers import AttachedServer, ListedTool, ServerAddress, read_listing, take_listing
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import list_sessions
from tests.support.people.cast import make_user
from tests.support.people.story import say, tool_call
from tests.support.record.maps import start, worked
from tests.support.record.tools import find_tool
from tests.support.servers.filesystem_server import filesystem_server

__all__ = ["filesystem_server"]

pytestmark = pytest.mark.django_db(transaction=True)
OFFERED = ["files__*", "task"]
WAYS = ["marked", "trusted"]


def listed(name: str = "act", **values: Any) -> ListedTool:
    return ListedTool(**{"name": name, "description": "Acts.", "schema": {"type": "object"}} | values)


def attach(*tools: ListedTool, **values: Any) -> AttachedServer:
    """Attach a server as if it had listed these tools."""
    server_id = store.put_server(ServerAddress(name="files", url="http://127.0.0.1:9/mcp", **values))
    store.put_listing(server_id, take_listing("files", tools))
    return load_server("files")


def read_only() -> set[str]:
    server = load_server("files")
    return {tool.remote_name for tool in server.listing.tools if server.is_read_only(tool)}


def test_what_nobody_has_said_is_not_known() -> None:
    attach(listed(hints={"readOnlyHint": True}), listed("other"))
    assert read_only() == set()
    assert not find_tool("files__act").read_only


def test_an_administrator_says_it_of_each_tool() -> None:
    attach(listed(), listed("other"))
    mark_read_only("files", ["act"])
    assert read_only() == {"act"}
    assert find_tool("files__act").read_only
    mark_read_only("files", ["files__other"])
    assert read_only() == {"other"}
    with pytest.raises(InvalidRequest, match="no tool called nosuch"):
        mark_read_only("files", ["act", "nosuch"])
    assert read_only() == {"other"}


def test_a_server_whose_word_is_taken_says_it_itself() -> None:
    hints = ({"readOnlyHint": True}, {"readOnlyHint": False}, {"destructiveHint": False}, {})
    attach(*(listed(f"act{number}", hints=said) for number, said in enumerate(hints)), trust_annotations=True)
    assert read_only() == {"act0"}


@pytest.mark.parametrize(
    "changed",
    [
        {"description": "Acts, and deletes."},
        {"schema": {"type": "object", "properties": {"force": {"type": "boolean"}}}},
        {"hints": {"readOnlyHint": True, "destructiveHint": True}},
        {"hints": {}},
    ],
)
def test_a_tool_that_is_listed_otherwise_is_another_tool(changed: dict[str, Any]) -> None:
    server = attach(listed(hints={"readOnlyHint": True}))
    mark_read_only("files", ["act"])
    store.put_listing(server.id, take_listing("files", [listed(hints={"readOnlyHint": True})]))
    assert read_only() == {"act"}, "the same listing again changes nothing"
    store.put_listing(server.id, take_listing("files", [listed(**{"hints": {"readOnlyHint": True}} | changed)]))
    assert read_only() == set()


def test_a_mark_stays_with_how_a_server_is_reached() -> None:
    attach(listed())
    mark_read_only("files", ["act"])
    attach(listed(), needs_approval=True)
    assert read_only() == {"act"}
    server_id = store.put_server(ServerAddress(name="files", url="http://127.0.0.1:10/mcp"))
    store.put_listing(server_id, take_listing("files", [listed()]))
    assert read_only() == set()


def test_a_listing_of_before_is_read_without_hints() -> None:
    text = json.dumps(
        {"tools": [{"remote_name": "act", "name": "files__act", "description": "", "parameters": {}}], "left_out": []}
    )
    [tool] = read_listing(text).tools
    assert tool.hints == {}


# At the page and at the terminal.


@pytest.fixture
def admin(transactional_db: None) -> Client:
    browser = Client()
    browser.force_login(User.objects.create_superuser("ada"))
    return browser


def boxes(page: str) -> dict[str, str]:
    """The value of each tool's box."""
    return dict(re.findall(r'value="([0-9a-f]{64})".*?<code>([\w-]+)</code>', page, re.DOTALL))


def test_the_page_says_what_the_server_says_and_marks_what_was_looked_at(admin: Client) -> None:
    server = attach(
        listed(hints={"readOnlyHint": True}),
        listed("write", hints={"readOnlyHint": False, "destructiveHint": True}),
        listed("silent", description="<script>alert(1)</script>\u202e"),
    )
    page = unescape(admin.get("/tools/servers/files/tools/").content.decode())
    for words in (
        "says that it changes nothing.",
        "says that it changes something, may destroy.",
        "does not say what this tool changes",
    ):
        assert words in page
    assert "<script>alert" not in admin.get("/tools/servers/files/tools/").content.decode()
    digests = {name: digest for digest, name in boxes(page).items()}
    said = admin.post("/tools/servers/files/tools/", {"read_only": [digests["files__act"]]}, follow=True)
    assert "1 tool of files is marked as read-only" in said.content.decode()
    assert "1 of 3 tools" in said.content.decode()
    assert read_only() == {"act"}
    store.put_listing(server.id, take_listing("files", [listed(description="Deletes."), listed("write")]))
    assert (
        "Its description has changed since it was marked." in admin.get("/tools/servers/files/tools/").content.decode()
    )
    stale = admin.post("/tools/servers/files/tools/", {"read_only": [digests["files__act"], "nonsense"]}, follow=True)
    assert "have changed since you opened this page" in stale.content.decode()
    assert read_only() == set()


def test_only_who_may_change_servers_says_it(transactional_db: None) -> None:
    attach(listed())
    browser = Client()
    browser.force_login(make_user("grace"))
    assert browser.get("/tools/servers/files/tools/").status_code == 404
    assert browser.post("/tools/servers/files/tools/", {}).status_code == 404


@pytest.mark.parametrize("name", ["nosuch", "%00", "%ED%A0%80"])
def test_an_address_of_no_server_is_not_found(name: str, admin: Client) -> None:
    assert admin.get(f"/tools/servers/{name}/tools/").status_code == 404
    assert admin.post(f"/tools/servers/{name}/tools/").status_code == 404


def test_the_command_shows_and_says_it(capsys: pytest.CaptureFixture[str]) -> None:
    attach(listed(hints={"readOnlyHint": True}), listed("write"))
    call_command("mcp_server", "tools", "files")
    out = capsys.readouterr().out
    assert "files__act (not known to be read-only; it says: changes nothing): Acts." in out
    assert "files__write (not known to be read-only; it says: nothing): Acts." in out
    call_command("mcp_server", "tools", "files", "--read-only", "act")
    assert "files__act (read-only; " in capsys.readouterr().out
    call_command("mcp_server", "list", "--json")
    assert json.loads(capsys.readouterr().out)[0]["read_only_tools"] == ["files__act"]
    call_command("mcp_server", "tools", "files", "--read-only")
    assert read_only() == set()
    with pytest.raises(CommandError, match="no tool called nosuch") as refused:
        call_command("mcp_server", "tools", "files", "--read-only", "nosuch")
    assert refused.value.returncode == 2


def test_no_command_says_it_of_a_whole_server() -> None:
    with pytest.raises(CommandError, match="--read-only"):
        call_command("mcp_server", "add", "files", "--read-only", "--url", "http://127.0.0.1:9/mcp")


# With the server of files that everybody knows.


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "note.txt").write_text("the harbour code is Tern-4471")
    return tmp_path


@pytest.fixture(params=WAYS)
def files(request: pytest.FixtureRequest, filesystem_server: str, folder: Path, transactional_db: None) -> str:
    """The server, attached as the README says; whether an administrator marks its tools or takes its word."""
    trust = ["--trust-annotations"] if request.param == "trusted" else []
    call_command("mcp_server", "add", "files", *trust, "--program", filesystem_server, str(folder))
    if request.param == "marked":
        assert read_only() == set()
        call_command("mcp_server", "tools", "files", "--read-only", "read_text_file", "list_directory")
    return str(request.param)


def acting(folder: Path) -> Callable[[Request], Script]:
    """A model that writes where it is asked to write, reads where it is asked to read, and hands over what it is asked to."""
    path = str(folder / "made.txt")

    def reply(request: Request) -> Script:
        last = request.payload["messages"][-1]
        if last["role"] == "tool":
            return str(last["content"])
        match str(last["content"]).split()[-1]:
            case "write":
                return tool_call("files__write_file", path=path, content="by a model")
            case "read":
                return tool_call("files__read_text_file", path=str(folder / "note.txt"))
            case "hand-over-write":
                return tool_call("task", prompt="Please write", agent="explore")
            case _:
                return tool_call("task", prompt="Please read", agent="explore")

    return reply


def session_of(alice: User, **turn: Any) -> SessionRecord:
    return lifecycle.create_session(owner=alice, config={"turn": {"tools": OFFERED, **turn}})


def results(session: SessionRecord) -> str:
    """What came of every tool call, of the session and of what it launched."""
    ids = [session.id, *(child.id for child in list_sessions(owner_id=session.owner_id, parent_id=session.id))]
    parts = [stored.part for id in ids for message in load_messages(id) for stored in message.parts]
    return "\n".join(f"{part.output} {part.error}" for part in parts if isinstance(part, ToolPart))


def run_turn(session: SessionRecord, message: str) -> None:
    """One turn, in a process of its own as far as connections to servers go."""

    async def turn() -> None:
        try:
            await say(session, message)
        finally:
            await runner.shutdown()
            await close_connections()

    asyncio.run(turn())


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["session", "explorer", "map"])
def test_what_only_reads_reads_through_it_and_writes_nothing(
    kind: str, files: str, folder: Path, alice: User, script: Callable[..., ScriptedModel]
) -> None:
    script(acting(folder))
    session = session_of(alice, read_only=kind == "session")
    for verb in ("write", "read"):
        if kind == "map":
            worked(start(session, [verb], kind=OperatorKind.AGENTIC))
        else:
            run_turn(session, f"Please {verb}" if kind == "session" else f"Please hand-over-{verb}")
    said = results(session)
    assert "the harbour code is Tern-4471" in said
    assert "TOOL_NOT_FOUND" in said
    assert sorted(path.name for path in folder.iterdir()) == ["note.txt"]


@pytest.mark.slow
def test_a_session_that_may_write_does(
    files: str, folder: Path, alice: User, script: Callable[..., ScriptedModel]
) -> None:
    script(acting(folder))
    run_turn(session_of(alice), "Please write")
    assert (folder / "made.txt").read_text() == "by a model"
