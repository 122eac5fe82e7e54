"""The public names of the product, each a line; ``tests/test_public_names.py`` compares them, or writes them down anew.

They are read from the routes, the registries and the database, never from a module that may move.
"""

from __future__ import annotations

import inspect
import json
import os
import re
import runpy
from argparse import _SubParsersAction
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any
from unittest.mock import patch

import httpx2
from asgiref.sync import async_to_sync
from django.apps import apps
from django.conf import settings
from django.core.management import BaseCommand, get_commands, load_command_class
from django.db import connection
from django.test import Client
from django.urls import URLPattern, URLResolver, get_resolver
from django.utils.module_loading import import_string

from mnesis_core import events
from mnesis_core.config import Config
from mnesis_core.errors import MnesisError
from mnesis_site.endpoints import MCP_PATHS
from mnesis_site.readiness import PROBES

ROOT = Path(__file__).resolve().parents[3]
FILE = ROOT / "tests" / "data" / "public_names.txt"
WRITE = "MNESIS_WRITE_PUBLIC_NAMES"
"""The variable with which the test writes the file of names instead of reading it."""
OURS = tuple(str(path.parent) for path in ROOT.glob("*/__init__.py"))
OTHERS = ("auth_", "django_", "sqlite_")
"""How the names of tables begin that packages bring."""
OF_EVERY_COMMAND = {name for known in BaseCommand().create_parser("", "")._actions for name in known.option_strings}

Schema = Mapping[str, Any]


def public_names(key: str) -> list[str]:
    """Return every public name; ``key`` is an API key, with which the running endpoints are asked."""
    found: set[str] = set()
    for names in (addresses, rest, sockets, commands, variables, options, events_of_ledgers, errors, tables):
        found.update(names())
    found.update(rpc_methods(key))
    found.update(mcp_tools(key))
    return sorted(found)


def is_here(name: str) -> bool:
    """Return whether a name is of a kind that this run can see: a table looks different on each database."""
    return not name.startswith("table ") or name.startswith(f"table {connection.vendor} ")


def addresses() -> Iterator[str]:
    """Yield each address with the methods that it answers."""
    for address, pattern in _patterns(get_resolver()):
        yield f"address /{address} {','.join(_methods(pattern.callback))}"
    for address in (*PROBES, MCP_PATHS[0]):  # answered in asgi.py, before the routes are asked
        yield f"address {address}"


def _patterns(resolver: URLResolver, prefix: str = "") -> Iterator[tuple[str, URLPattern]]:
    for pattern in resolver.url_patterns:
        address = f"{prefix}{_APPS.sub(_in_order, str(pattern.pattern))}"
        if isinstance(pattern, URLResolver):
            yield from _patterns(pattern, address)
        else:
            yield address, pattern


# The admin lists its apps in the order in which their modules were first imported.
_APPS = re.compile(r"(?<=\(\?P<app_label>)[\w|]+")


def _in_order(apps: re.Match[str]) -> str:
    return "|".join(sorted(apps[0].split("|")))


def _methods(view: Any) -> list[str]:
    """Return the methods of a view: those of its class, of ``require_http_methods`` or of Ninja; else ``*``."""
    while view is not None:
        if view_class := getattr(view, "view_class", None):
            return sorted(name.upper() for name in view_class.http_method_names if hasattr(view_class, name))
        nonlocals = inspect.getclosurevars(view).nonlocals if inspect.isfunction(view) else {}
        if listed := nonlocals.get("request_method_list"):
            return sorted(listed)
        if operations := getattr(nonlocals.get("self"), "operations", None):
            return sorted({method for operation in operations for method in operation.methods})
        view = getattr(view, "__wrapped__", None)
    return ["*"]


def rest() -> Iterator[str]:
    """Yield what each API says of itself: its calls, their parameters, bodies and answers, and the fields of those."""
    for address, pattern in _patterns(get_resolver()):
        if pattern.name != "api-root":
            continue
        described = pattern.callback.keywords["api"].get_openapi_schema(path_prefix=f"/{address}")
        for path, calls in described["paths"].items():
            for method, call in calls.items():
                yield from (f"rest {method.upper()} {path} {line}" for line in _call(call))
        for name, schema in described["components"]["schemas"].items():
            yield from (f"schema {address}{name}{line}" for line in _fields(schema))


def _call(call: Schema) -> Iterator[str]:
    yield "there"
    for parameter in call.get("parameters", []):
        yield f"{parameter['in']} {parameter['name']}: {_type(parameter['schema'])}{_must(parameter['required'])}"
    for kind, content in call.get("requestBody", {}).get("content", {}).items():
        yield f"body {kind} {_type(content.get('schema', {}))}"
    for status, answer in call["responses"].items():
        kinds = answer.get("content") or {"nothing": {}}
        yield from (f"answer {status} {kind} {_type(content.get('schema', {}))}" for kind, content in kinds.items())


def _fields(schema: Schema) -> Iterator[str]:
    if "properties" not in schema:
        yield f": {_type(schema)}"
    for name, field in schema.get("properties", {}).items():
        yield f".{name}: {_type(field)}{_must(name in schema.get('required', []))}"


def _type(schema: Schema) -> str:
    if "$ref" in schema:
        return str(schema["$ref"].rpartition("/")[2])
    if parts := schema.get("anyOf") or schema.get("oneOf") or schema.get("allOf"):
        return "|".join(map(_type, parts))
    if "enum" in schema:
        return f"({'|'.join(map(str, schema['enum']))})"
    if "const" in schema:
        return f"({schema['const']})"
    if schema.get("type") == "array":
        return f"[{_type(schema.get('items', {}))}]"
    if "properties" in schema:
        return f"{{{', '.join(line[1:] for line in _fields(schema))}}}"
    return str(schema.get("type", "anything"))


def _must(is_required: bool) -> str:
    return " required" if is_required else ""


def sockets() -> Iterator[str]:
    """Yield the websockets' addresses."""
    found: Any = import_string(settings.ASGI_APPLICATION).application_mapping["websocket"]
    while not hasattr(found, "routes"):  # a middleware has the next application in an attribute
        found = next(value for value in vars(found).values() if callable(value))
    yield from (f"websocket /{route.pattern}" for route in found.routes)


def rpc_methods(key: str) -> Iterator[str]:
    """Yield the methods of JSON-RPC and their parameters."""
    asked = {"jsonrpc": "2.0", "id": 1, "method": "initialize"}
    headers = {"Authorization": f"Bearer {key}"}
    answer = Client().post("/rpc", asked, content_type="application/json", headers=headers)
    for name, schema in answer.json()["result"]["methods"].items():
        yield f"rpc {name}"
        yield from (f"rpc {name}{line}" for line in _fields(schema) if "properties" in schema)


def mcp_tools(key: str) -> Iterator[str]:
    """Yield the tools of MCP and their parameters."""
    for tool in async_to_sync(_ask_mcp)(key, "tools/list")["tools"]:
        yield f"mcp {tool['name']}"
        schema = tool["inputSchema"]
        yield from (f"mcp {tool['name']}{line}" for line in _fields(schema) if "properties" in schema)
    for template in async_to_sync(_ask_mcp)(key, "resources/templates/list")["resourceTemplates"]:
        yield f"mcp resource {template['uriTemplate']}"


async def _ask_mcp(key: str, method: str) -> Any:
    application: Any = import_string(settings.ASGI_APPLICATION).application_mapping["http"]
    headers = {"Authorization": f"Bearer {key}", "Accept": "application/json, text/event-stream"}
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app=application), headers=headers) as client:
        asked = {"jsonrpc": "2.0", "id": 1, "method": method}
        answer = await client.post("http://localhost/mcp", json=asked)
        return json.loads(answer.text.partition("data: ")[2])["result"]


def commands() -> Iterator[str]:
    """Yield our commands of ``manage.py`` with their options; those of other packages are not ours to keep."""
    ours = {config.name for config in apps.get_app_configs() if config.path in OURS}
    for name, app in get_commands().items():
        if app in ours:
            parser = load_command_class(app, name).create_parser("manage.py", name)
            yield from (f"command {line}" for line in _arguments(parser, name))


def _arguments(parser: Any, name: str) -> Iterator[str]:
    yield name
    for action in parser._actions:
        if isinstance(action, _SubParsersAction):
            for child, child_parser in action.choices.items():
                yield from _arguments(child_parser, f"{name} {child}")
            continue
        if {*action.option_strings} & OF_EVERY_COMMAND:
            continue
        choices = f" ({'|'.join(map(str, action.choices))})" if action.choices else ""
        count = "" if action.nargs is None else f" x{action.nargs}"
        yield f"{name} {'/'.join(action.option_strings) or action.dest}{count}{choices}{_must(action.required)}"


class _Watched(dict[str, str]):
    """An environment that remembers what it was asked for."""

    def __init__(self, values: Mapping[str, str]) -> None:
        super().__init__(values)
        self.asked: set[str] = set()

    def __getitem__(self, name: str) -> str:
        self.asked.add(name)
        return super().__getitem__(name)

    def get(self, name: str, default: Any = None) -> Any:
        self.asked.add(name)
        return super().get(name, default)

    def __contains__(self, name: object) -> bool:
        self.asked.add(str(name))
        return super().__contains__(name)


def variables() -> Iterator[str]:
    """Yield the environment variables that the settings read."""
    watched = _Watched(os.environ)
    with patch.object(os, "environ", watched):
        runpy.run_path(str(ROOT / "mnesis_site" / "settings.py"))
    yield from (f"variable {name}" for name in watched.asked if name.isupper() and not name.startswith("XDG"))


def options(config: Any = None, place: str = "") -> Iterator[str]:
    """Yield the options of ``mnesis.toml`` with their defaults."""
    config = config or Config()
    for field in fields(config):
        value = getattr(config, field.name)
        if is_dataclass(value):
            yield from options(value, f"{place}{field.name}.")
        else:
            yield f"option {place}{field.name} = {value!r}"


def events_of_ledgers() -> Iterator[str]:
    """Yield every event type."""
    for vocabulary in vars(events).values():
        if inspect.isclass(vocabulary) and issubclass(vocabulary, StrEnum) and vocabulary is not StrEnum:
            yield from (f"event {vocabulary.__name__} {member.value}" for member in vocabulary)


def errors(kind: type[MnesisError] = MnesisError) -> Iterator[str]:
    """Yield each error code with its HTTP status, its JSON-RPC number and the exit status of a command."""
    if kind.__module__.startswith("mnesis_core."):
        yield f"error {kind.code} http {kind.status} rpc {kind.rpc_code} exit {kind.exit_status}"
    for child in kind.__subclasses__():
        yield from errors(child)


def tables() -> Iterator[str]:
    """Yield our models, tables, columns, indexes, constraints and triggers, as this database has them."""
    models = [model for config in apps.get_app_configs() if config.path in OURS for model in config.get_models()]
    yield from (f"model {model._meta.label} {model._meta.db_table}" for model in models)
    with connection.cursor() as cursor:
        names = [name for name in connection.introspection.table_names(cursor) if not name.startswith(OTHERS)]
        for sql in _QUERIES[connection.vendor]:
            cursor.execute(sql)
            for table, line in cursor.fetchall():
                if not table.startswith(OTHERS):
                    yield f"table {connection.vendor} {table} {line}"
        for table in names:
            for name, found in connection.introspection.get_constraints(cursor, table).items():
                yield f"table {connection.vendor} {table} {_constraint(name, found)}"


_QUERIES: dict[str, tuple[str, ...]] = {
    "sqlite": (
        """SELECT m.name, 'column ' || p.name || ' ' || p.type || CASE WHEN p."notnull" THEN ' NOT NULL' ELSE '' END
           FROM sqlite_master m JOIN pragma_table_info(m.name) p WHERE m.type = 'table'""",
        "SELECT tbl_name, 'trigger ' || name FROM sqlite_master WHERE type = 'trigger'",
    ),
    "postgresql": (
        """SELECT c.relname, 'column ' || a.attname || ' ' || format_type(a.atttypid, a.atttypmod)
                  || CASE WHEN a.attnotnull THEN ' NOT NULL' ELSE '' END
           FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
           WHERE c.relkind = 'r' AND c.relnamespace = 'public'::regnamespace AND a.attnum > 0 AND NOT a.attisdropped""",
        """SELECT c.relname, 'trigger ' || t.tgname FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
           WHERE NOT t.tgisinternal AND c.relnamespace = 'public'::regnamespace""",
    ),
}


def _constraint(name: str, found: Mapping[str, Any]) -> str:
    """Return a line for an index or constraint; one that SQLite itself numbers has no name of its own."""
    kinds = [kind for kind in ("primary_key", "unique", "index", "check") if found[kind]]
    target = f" -> {'.'.join(found['foreign_key'])}" if found["foreign_key"] else ""
    called = "" if connection.vendor == "sqlite" and (name.startswith(("fk_", "__")) or target) else f" {name}"
    return f"{'+'.join(kinds) or 'foreign_key'}{called} ({', '.join(map(str, found['columns'] or ()))}){target}"
