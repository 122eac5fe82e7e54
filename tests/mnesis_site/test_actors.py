"""Each endpoint says who acts: all that there are, as the routes, methods, tools, commands and tasks list them."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.management import get_commands, load_command_class
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.views.decorators.csrf import csrf_exempt
from ninja import NinjaAPI, Schema
from ninja.operation import AsyncOperation, Operation
from pydantic import TypeAdapter

from agents_app.endpoints.mcp_server import TOOLS
from mnesis_core.actor import Via
from mnesis_core.network.rate_limits import KeyText
from mnesis_site.endpoints import anthropic_api, api, openai_api
from mnesis_site.middleware import via_of
from sessions_app.callers import READING
from sessions_app.database.threads import db
from sessions_app.llm.model_store import create_key
from sessions_app.management.acting import RecordCommand
from sessions_app.operations import OPERATIONS
from sessions_app.record.actor import current_actor
from sessions_app.record.organisation_store import ref_of
from tests.mnesis_site.endpoints.test_mcp import ask as ask_mcp

# Committed, because what is tried has connections of its own.
pytestmark = pytest.mark.usefixtures("transactional_db")

ROOT = Path(__file__).resolve().parents[2]
APPS = ("sessions_app", "compaction_app", "files_app", "agents_app", "audit_app", "mnesis_site")
READS = {
    *(
        "apikey",
        "limit",
        "roles",
        "flush",
        "loaddata",
        "migrate",
        "test",
        "testserver",
        "rebuild_search",
        "reencrypt_keys",
        "fill_vectors",
        "makemessages",
    ),
    *("export", "move_database", "replay", "summaries", "up", "verify", "organisation", "evaluate_memory"),
}
"""Commands that write no entry of a ledger, or copy entries as they are."""


class Nothing(Schema):
    """What a probe takes."""


def told() -> dict[str, Any]:
    """What an entry would say here of who acts."""
    return dict(json.loads(current_actor().text))


@csrf_exempt
def probe(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
    return JsonResponse(told())


def pages(patterns: list[URLPattern | URLResolver], start: str = "/") -> Iterator[tuple[str, URLPattern]]:
    """Every address that Django answers itself, each with something in the place of its parameters."""
    for pattern in patterns:
        address = start + re.sub(r"<[^>]+>", "1", str(pattern.pattern).lstrip("^").rstrip("$"))
        if isinstance(pattern, URLResolver):
            yield from pages(pattern.url_patterns, address)
        elif not address.startswith(("/api/", "/v1/", "/rpc", "/static/")):
            yield address.replace("(?P1.+)", "1").replace("\\Z", ""), pattern


def calls(of: NinjaAPI, start: str) -> Iterator[tuple[str, str]]:
    """Method and path of every call of an API that may write."""
    for _, router in of._routers:
        for path, view in router.path_operations.items():
            for method in (method for operation in view.operations for method in operation.methods):
                if method not in READING:
                    yield method, start + re.sub(r"\{[^}]+\}", "1", path)


@pytest.fixture
def browser(ada: User) -> Client:
    client = Client()
    client.force_login(ada)
    return client


@pytest.fixture
def key(ada: User) -> KeyText:
    return create_key(owner_id=ada.pk)


@pytest.fixture
def as_ada(ada: User) -> dict[str, str]:
    return {"kind": "user", "ref": ref_of(ada.pk)}


@pytest.fixture
def as_key(ada: User, key: KeyText) -> dict[str, str]:
    return {"kind": "key", "ref": key.prefix, "for": ref_of(ada.pk)}


def test_every_page_acts_for_who_is_signed_in(
    browser: Client, as_ada: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: dict[str, int] = {}
    found = list(pages(get_resolver().url_patterns))
    for _, pattern in found:
        monkeypatch.setattr(pattern, "callback", probe)
    for address, _ in found:
        answer = browser.post(address)
        via = "admin" if address.startswith("/admin/") else "page"
        assert answer.json() == as_ada | {"via": via, "request": answer.headers["X-Request-Id"]}, address
        tried[via] = tried.get(via, 0) + 1
    assert tried["page"] > 60
    assert tried["admin"] > 40


def test_every_call_of_the_apis_acts_for_who_asks(
    browser: Client, key: KeyText, as_ada: dict[str, str], as_key: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(self: Operation, request: HttpRequest, **values: Any) -> HttpResponse:
        return self._run_checks(request) or JsonResponse(told())

    async def run_async(self: AsyncOperation, request: HttpRequest, **values: Any) -> HttpResponse:
        return await self._run_checks(request) or JsonResponse(await db(told))

    monkeypatch.setattr(Operation, "run", run)
    monkeypatch.setattr(AsyncOperation, "run", run_async)
    program = Client(headers={"Authorization": f"Bearer {key}"})
    found = [*calls(api, "/api"), *calls(openai_api, "/v1"), *calls(anthropic_api, "/v1")]
    assert len(found) > 25
    for method, path in found:
        via = "v1" if path.startswith("/v1/") else "api"
        for client, who in ((program, as_key), (browser, as_ada)):
            answer = client.generic(method, path)
            if client is browser and via == "v1":  # which takes keys only
                assert answer.status_code == 401
            else:
                assert answer.json() == who | {"via": via, "request": answer.headers["X-Request-Id"]}, path


@pytest.fixture
def by_name(monkeypatch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """The names of methods and of tools, each with a probe in the place of what it does."""
    for table in (OPERATIONS, TOOLS):
        for name, operation in list(table.items()):
            changed = replace(operation, params=Nothing, call=lambda *_: told(), result=TypeAdapter(dict[str, Any]))
            monkeypatch.setitem(table, name, changed)
    return [*OPERATIONS], [*TOOLS]


@pytest.mark.slow
def test_every_method_acts_for_who_asks(
    by_name: tuple[list[str], list[str]], key: KeyText, as_key: dict[str, str], browser: Client, as_ada: dict[str, str]
) -> None:
    program = Client(headers={"Authorization": f"Bearer {key}"})
    for name in by_name[0]:
        asked = {"jsonrpc": "2.0", "id": 1, "method": name}
        for client, who in ((program, as_key), (browser, as_ada)):
            answer = client.post("/rpc", asked, content_type="application/json")
            assert answer.json()["result"] == who | {"via": "rpc", "request": answer.headers["X-Request-Id"]}, name


async def test_every_tool_acts_for_who_asks(
    by_name: tuple[list[str], list[str]], key: KeyText, as_key: dict[str, str]
) -> None:
    for name in by_name[1]:
        call = {"jsonrpc": "2.0", "id": 5, "method": "tools/call", "params": {"name": name, "arguments": {}}}
        answer = await ask_mcp({"Authorization": f"Bearer {key}", "MCP-Protocol-Version": "2025-06-18"}, call)
        who = json.loads(answer.text.partition("data: ")[2] or answer.text)["result"]["structuredContent"]
        assert who.pop("request").startswith("req_")
        assert who == as_key | {"via": "mcp"}, name


def test_every_command_that_writes_says_so() -> None:
    ours = {name: load_command_class(app, name) for name, app in get_commands().items() if app in APPS}
    assert {name for name, command in ours.items() if not isinstance(command, RecordCommand)} == READS


@dataclass(frozen=True, slots=True)
class Later:
    """A task of the worker, and the test of what it writes."""

    task: str
    test: str


TASKS = [
    Later("agents_app.tasks.fork", "tests/agents_app/test_actors.py::test_a_worker_forks_for_who_asked"),
    Later("agents_app.tasks.work", "tests/agents_app/test_actors.py::test_a_worker_runs_a_map_for_who_asked"),
    Later("audit_app.tasks.run_import", "tests/audit_app/test_actors.py::test_a_worker_imports_for_who_asked"),
    Later("compaction_app.tasks.align", "tests/compaction_app/test_actors.py::test_a_worker_aligns_for_who_asked"),
    Later("compaction_app.tasks.compact", "tests/compaction_app/test_actors.py::test_a_worker_compacts_for_who_asked"),
    Later("compaction_app.tasks.reflect", "tests/compaction_app/test_actors.py::test_a_worker_reflects_for_who_asked"),
    Later("files_app.tasks.explore", "tests/files_app/test_actors.py::test_a_worker_explores_for_who_asked"),
    Later("audit_app.tasks.verify", ""),  # writes nothing of the record
    Later("audit_app.tasks.evaluate_session", ""),  # nor does this: it writes in a database of its own
    Later("sessions_app.tasks.fill_vectors", ""),  # nor does this
]


def test_every_task_of_the_worker_has_a_test_of_who_acts() -> None:
    files = [file for app in APPS for file in (ROOT / app).rglob("*.py") if "migrations" not in file.parts]
    named = {name for file in files for name in re.findall(r'^\w*TASK = "(.+)"$', file.read_text(), re.MULTILINE)}
    assert named - {"map"} == {later.task for later in TASKS}
    for later in TASKS:
        module, _, name = later.task.rpartition(".")
        assert callable(getattr(import_module(module), name))
        path, _, test = later.test.partition("::")
        assert not later.test or f"def {test}(" in (ROOT / path).read_text()


def test_addresses_belong_to_endpoints() -> None:
    assert via_of("/api/sessions") is Via.API
    assert via_of("/rpc") is Via.RPC
    assert via_of("/mcp") is Via.MCP
    assert via_of("/v1/models") is Via.V1
    assert via_of("/admin/") is Via.ADMIN
    assert via_of("/") is via_of("/apis/") is Via.PAGE
