"""Operations of OpenAPI documents as tools, and the requests that their calls become."""

from __future__ import annotations

from typing import Any

import pytest

from mnesis_core.errors import InvalidRequest, ToolFailed
from mnesis_core.turns.mcp_servers import (
    AttachedTool,
    Listing,
    Operation,
    ServerAddress,
    read_listing,
    take_listing,
    write_listing,
)
from mnesis_core.turns.openapi import DEEPEST, MOST_SCHEMAS, read_operations, request_of
from tests.support.servers.openapi_server import DOCUMENT, NUMBER, TEXT

URL = "https://api.example/openapi.json"


def listing_of(document: Any, **values: Any) -> Listing:
    address = ServerAddress(name="harbour", url=URL, is_openapi=True, **values)
    return take_listing("harbour", read_operations(document, address))


def tools_of(document: Any) -> dict[str, AttachedTool]:
    return {tool.remote_name: tool for tool in listing_of(document).tools}


def one(operation: dict[str, Any], path: str = "/a", **document: Any) -> Listing:
    return listing_of({"openapi": "3.1.0", "paths": {path: {"get": operation}}, **document})


def asked(name: str, **arguments: Any) -> Any:
    operation = tools_of(DOCUMENT)[name].operation
    assert operation is not None
    return request_of(operation, arguments)


def test_each_operation_is_a_tool_with_its_parameters_and_body() -> None:
    tools = tools_of(DOCUMENT)
    tides = tools["listTides"]
    assert (tides.spec.name, tides.spec.description) == (
        "harbour__listTides",
        "GET /harbours/{harbour}/tides\nThe tides of a harbour.",
    )
    assert tides.spec.parameters == {
        "type": "object",
        "properties": {
            "harbour": TEXT,
            "day": TEXT | {"description": "As 2026-11-30."},
            "kind": {"type": "array", "items": TEXT},
            "X-Unit": TEXT,
        },
        "required": ["harbour"],
        "additionalProperties": False,
    }
    note = tools["notes_add"].spec.parameters["properties"]["body"]
    assert note["properties"]["text"] == TEXT
    assert note["properties"]["example"] == {"type": ["string", "null"]}
    assert tools["replace"].spec.parameters["properties"].keys() == {"id", "query_id", "body"}
    assert tools["delete_notes_id"].spec.parameters["properties"] == {"id": NUMBER}
    hints = {name: tool.hints["readOnlyHint"] for name, tool in tools.items()}
    assert (hints["listTides"], hints["notes_add"], hints["replace"]) == (True, False, False)


def test_what_cannot_be_a_tool_is_left_out_with_the_reason() -> None:
    assert sorted(listing_of(DOCUMENT).left_out) == [
        "elsewhere: its server is not the one that the document comes from",
        "outside: it refers to another document",
        "sideways: its path does not begin with a slash, or is more than a path",
        "upload: its body is neither JSON nor a form",
    ]


def test_a_call_becomes_one_request() -> None:
    request = asked("listTides", harbour="Ünst/1 ?", day="a&b", kind=["high", "low"], **{"X-Unit": "m"})
    assert (request.method, request.headers, request.content) == ("GET", {"X-Unit": "m"}, None)
    assert request.url == ("https://api.example/v2/harbours/%C3%9Cnst%2F1%20%3F/tides?day=a%26b&kind=high&kind=low")
    request = asked("notes_add", body={"text": "Grüße \ud800"})
    assert request.headers == {"Content-Type": "application/json"}
    assert request.content == b'{"text": "Gr\\u00fc\\u00dfe \\ud800"}'
    request = asked("replace", id=7, query_id="x", body={"text": "a b", "answers": []})
    assert (request.url, request.content) == ("https://api.example/v2/notes/7?id=x", b"text=a+b&answers=%5B%5D")


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("listTides", {}),
        *[("listTides", {"harbour": text}) for text in ("", ".", "..", None)],
        ("listTides", {"harbour": "a", "theme": "dark"}),
        *[("listTides", {"harbour": "a", "X-Unit": text}) for text in ("m\r\nHost: evil", "m\0", "Ü")],
        ("replace", {"id": 1, "body": "a=b"}),
    ],
)
def test_arguments_that_make_no_request_are_refused(name: str, arguments: dict[str, Any]) -> None:
    with pytest.raises(InvalidRequest):
        asked(name, **arguments)


def test_how_a_tool_is_called_is_kept_with_its_listing() -> None:
    listing = listing_of(DOCUMENT)
    kept = read_listing(write_listing(listing))
    assert [tool.digest for tool in kept.tools] == [tool.digest for tool in listing.tools]
    moved = read_listing(write_listing(listing).replace("/v2/", "/v3/"))
    assert {tool.digest for tool in moved.tools}.isdisjoint(tool.digest for tool in listing.tools)


@pytest.mark.parametrize(
    "document", [None, [], "3.0", {}, {"swagger": "2.0", "paths": {}}, {"openapi": 3}, {"openapi": "4.0.0"}]
)
def test_what_is_no_document_of_version_3_is_refused(document: Any) -> None:
    with pytest.raises(ToolFailed):
        listing_of(document)


@pytest.mark.parametrize(
    "operation",
    [
        {"parameters": "x"},
        {"parameters": [None, 7, "x", {}, {"name": 5, "in": "query"}, {"name": "a", "in": "body"}]},
        {"parameters": [{"name": "a", "in": "query", "schema": "text"}, {"name": "b", "in": "query", "content": []}]},
        {"requestBody": [], "servers": "x"},
        {"requestBody": {"content": {"application/json": 5, "text/plain": {}}}},
        {"operationId": 7, "summary": [], "description": None, "servers": [None]},
        {"requestBody": {"content": {"application/json": {"schema": {"properties": [], "allOf": 5, "items": 7}}}}},
    ],
)
def test_a_document_that_is_not_as_it_should_be_is_read_as_far_as_it_can_be(operation: dict[str, Any]) -> None:
    [tool] = one(operation).tools
    assert tool.operation is not None
    assert request_of(tool.operation, {}).url == "https://api.example/a"


@pytest.mark.parametrize(
    "url", ["//evil.example/", "http://api.example/", "https://api.example:8443/", "http://[", "{x}"]
)
def test_no_server_but_the_documents_own_is_asked(url: str) -> None:
    for document, operation in (({"servers": [{"url": url}]}, {}), ({}, {"servers": [{"url": url}]})):
        listing = one(operation, **document)
        urls = {tool.operation.url for tool in listing.tools if tool.operation}
        assert urls <= {"https://api.example/a"}
        assert len(urls) + len(listing.left_out) == 1


def test_a_document_that_grows_without_end_is_bounded() -> None:
    circle = {"a": {"$ref": "#/components/parameters/b"}, "b": {"$ref": "#/components/parameters/a"}}
    listing = one({"parameters": [{"$ref": "#/components/parameters/a"}]}, components={"parameters": circle})
    assert listing.left_out == ("get_a: it has references that lead in a circle",)
    wide = {"properties": {name: {"$ref": "#/components/schemas/wide"} for name in "abc"}}
    body = {"content": {"application/json": {"schema": {"$ref": "#/components/schemas/wide"}}}}
    listing = one({"requestBody": body}, components={"schemas": {"wide": wide}})
    assert listing.left_out == (f"get_a: its schema has more than {MOST_SCHEMAS:,} parts",)
    long = {"type": "object", "properties": {"next": {"$ref": "#/components/schemas/wide"}}}
    [tool] = one({"requestBody": body}, components={"schemas": {"wide": long}}).tools
    schema, depth = tool.spec.parameters["properties"]["body"], 0
    while schema:
        schema, depth = schema["properties"]["next"], depth + 1
    assert depth == DEEPEST + 1


def test_an_argument_replaces_only_its_own_name_in_the_path() -> None:
    operation = Operation(method="GET", url="https://a/{x}/{y}", places={"x": ("path", "x"), "y": ("path", "y")})
    assert request_of(operation, {"x": "{y}", "y": "1"}).url == "https://a/%7By%7D/1"


def test_a_header_that_the_server_is_sent_anyway_is_no_argument() -> None:
    named = [{"name": name, "in": "header", "required": True, "schema": TEXT} for name in ("X-Key", "X-Day")]
    document = {"openapi": "3.0.0", "paths": {"/a": {"get": {"parameters": named}}}}
    [tool] = listing_of(document, secrets={"x-key": "KEY"}).tools
    assert tool.spec.parameters["required"] == ["X-Day"]


@pytest.mark.parametrize("name", ["Host", "a b", "A\r\nB", "Ü"])
def test_a_header_that_cannot_be_sent_is_left_out_with_its_operation_if_it_is_required(name: str) -> None:
    for is_required in (False, True):
        listing = one({"parameters": [{"name": name, "in": "header", "required": is_required, "schema": TEXT}]})
        assert (len(listing.tools), len(listing.left_out)) == (1 - is_required, int(is_required))


def test_long_names_are_cut() -> None:
    [tool] = one({"operationId": "a" * 200}).tools
    assert len(tool.spec.name) == 64


@pytest.mark.parametrize("held", [{"$ref": "other.json#/a"}, {"$ref": "#/nowhere"}, {"$ref": 7}])
def test_a_path_that_refers_to_nothing_is_left_out(held: dict[str, Any]) -> None:
    listing = listing_of({"openapi": "3.0.0", "paths": {"/a": held, "/b": {"get": {}}, "/c": 5}})
    assert [tool.remote_name for tool in listing.tools] == ["get_b"]
    assert [sentence.partition(":")[0] for sentence in listing.left_out] == ["/a"]


def test_names_of_arguments_are_such_as_providers_take() -> None:
    def named(*names: str) -> dict[str, Any]:
        return {"parameters": [{"name": name, "in": "query", "schema": {"required": True}} for name in names]}

    [tool] = one(named("filter[day]", "$top")).tools
    assert tool.spec.parameters["properties"] == {"filter_day_": {}, "_top": {}}
    assert tool.operation is not None
    assert request_of(tool.operation, {"filter_day_": 1, "_top": True}).url == (
        "https://api.example/a?filter%5Bday%5D=1&%24top=true"
    )
    assert one(named("a[]", "a{}", "a()")).left_out == (
        "get_a: more than one of its parameters would be called query_a__",
    )


def test_a_path_whose_names_are_not_described_is_left_out() -> None:
    assert one({}, path="/a/{day}").left_out == ("get_a_day: it does not describe day of its path",)
