"""The one registry of errors: no code has two meanings, and no endpoint has codes of its own."""

from __future__ import annotations

import re
from collections import Counter
from functools import cache
from pathlib import Path

from mnesis_core.errors import MnesisError, error_of
from tests.support.documents.error_table import EXITS, PAGE, kinds, make_page

ROOT = Path(__file__).resolve().parents[2]
KINDS = list(kinds())
APPS = ("mnesis_core", "sessions_app", "compaction_app", "files_app", "agents_app", "audit_app", "mnesis_site")
REGISTRY = {"mnesis_core/errors.py"}
PROTOCOL = {-32700, -32600, -32601}
"""JSON-RPC's own numbers, which its endpoint defines."""


def test_every_error_has_a_code_of_its_own() -> None:
    assert all("code" in vars(kind) for kind in KINDS)
    assert [code for code, count in Counter(kind.code for kind in KINDS).items() if count > 1] == []
    assert all(re.fullmatch(r"[A-Z]+(_[A-Z]+)+", kind.code) or kind.code == "CONFLICT" for kind in KINDS)


def test_an_error_is_found_by_its_code() -> None:
    assert all(type(error_of(kind.code)) is kind for kind in KINDS)


def test_a_number_of_json_rpc_means_one_family() -> None:
    for number in {kind.rpc_code for kind in KINDS}:
        family = [kind for kind in KINDS if kind.rpc_code == number]
        assert all(issubclass(kind, family[0]) for kind in family), family
        assert number in (-32603, -32602) or -32099 <= number <= -32000
        assert number not in PROTOCOL


def test_an_exit_status_means_one_thing() -> None:
    assert [kind for kind in KINDS if not issubclass(kind, EXITS[kind.exit_status][1])] == []


def test_each_has_a_message_that_says_what_to_do_or_know() -> None:
    for kind in KINDS:
        assert kind().message.endswith("."), kind
        assert 400 <= kind.status < 600, kind


def test_the_documented_table_is_the_registry() -> None:
    assert PAGE.read_text() == make_page(), "run: python -m tests.support.documents.error_table"


@cache
def sources() -> dict[str, str]:
    """The product's code, by file."""
    files = [path for app in APPS for path in (ROOT / app).rglob("*.py") if "migrations" not in path.parts]
    return {path.relative_to(ROOT).as_posix(): path.read_text() for path in files}


def test_no_endpoint_has_codes_of_its_own() -> None:
    quoted = re.compile(rf'"({"|".join(kind.code for kind in KINDS)})"|"code": "[A-Z]')
    assert {path for path, text in sources().items() if quoted.search(text)} == REGISTRY


def test_no_endpoint_has_numbers_of_its_own() -> None:
    number = re.compile(r"-32[0-9]{3}\b")
    said = {path: {int(found) for found in number.findall(text)} for path, text in sources().items()}
    assert {path for path, numbers in said.items() if numbers} == REGISTRY | {"agents_app/endpoints/jsonrpc.py"}
    assert set().union(*(said[path] for path in REGISTRY)) == {kind.rpc_code for kind in KINDS}
    assert said["agents_app/endpoints/jsonrpc.py"] == PROTOCOL


def test_endpoints_know_only_the_schema_of_an_error() -> None:
    assert set(MnesisError().as_dict()) == {"code", "message", "details"}
