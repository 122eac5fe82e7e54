"""What is taken of a server's list of tools, and how a server may be reached."""

from __future__ import annotations

import pytest

from mnesis_core.errors import InvalidRequest
from mnesis_core.turns.mcp_servers import (
    LONGEST_DESCRIPTION,
    MOST_TOOLS,
    ListedTool,
    ServerAddress,
    check_address,
    read_listing,
    take_listing,
    write_listing,
)

OBJECT = {"type": "object", "properties": {}}


def listed(name: str, *, description: str = "", schema: object = OBJECT) -> ListedTool:
    return ListedTool(name=name, description=description, schema=schema)


def test_names_get_the_servers_and_lose_what_providers_refuse():
    taken = take_listing("files", [listed("read"), listed("dir/list.all")])
    assert [(tool.spec.name, tool.remote_name) for tool in taken.tools] == [
        ("files__read", "read"),
        ("files__dir_list_all", "dir/list.all"),
    ]
    assert taken.left_out == ()


def deep(levels: int) -> dict:
    schema: dict = dict(OBJECT)
    for _ in range(levels):
        schema = {"type": "object", "properties": schema}
    return schema


def cyclic() -> dict:
    schema: dict = {"type": "object"}
    schema["properties"] = schema
    return schema


@pytest.mark.parametrize(
    ("tool", "reason"),
    [
        (listed("read"), "another tool has this name"),
        (listed(""), "or empty"),
        (listed("x" * 60), "longer than 64 characters"),
        (listed("a", schema={"type": "array"}), "does not describe an object"),
        (listed("a", schema=[]), "does not describe an object"),
        (listed("a", schema={**OBJECT, "x": "y" * 20_000}), "longer than 20,000"),
        (listed("a", schema={**OBJECT, "x": float("nan")}), "is no JSON"),
        (listed("a", schema=cyclic()), "is no JSON"),
        (listed("a", schema=deep(200)), "nested deeper than 100"),
    ],
)
def test_what_is_not_taken_is_said_with_its_reason(tool, reason):
    taken = take_listing("files", [listed("read"), tool])
    assert [tool.spec.name for tool in taken.tools] == ["files__read"]
    [sentence] = taken.left_out
    assert reason in sentence
    assert len(sentence) < 200


def test_a_list_without_end_is_cut():
    taken = take_listing("files", [listed(f"tool{number}") for number in range(10 * MOST_TOOLS)])
    assert (len(taken.tools), len(taken.left_out)) == (MOST_TOOLS, MOST_TOOLS)


def test_a_description_is_cut_and_hides_nothing():
    [tool] = take_listing("files", [listed("a", description="\x1b[2J\u202ee\u200bvil\U000e0041" + "x" * 90_000)]).tools
    assert tool.spec.description.startswith("[2Jevilxxx")
    assert tool.spec.description.endswith(" [cut]")
    assert len(tool.spec.description) == LONGEST_DESCRIPTION + len(" [cut]")


def test_a_listing_comes_back_as_it_was_written():
    taken = take_listing("files", [listed("read", description="Ü \n x"), listed("")])
    assert read_listing(write_listing(taken)) == taken
    assert read_listing("").tools == ()


@pytest.mark.parametrize(
    ("values", "field"),
    [
        ({"name": "Files"}, "name"),
        ({"name": "a__b"}, "name"),
        ({"name": "-"}, "name"),
        ({"name": "x" * 33}, "name"),
        ({"argv": ()}, "url"),
        ({"url": "http://localhost/mcp"}, "url"),
        ({"argv": (), "url": "file:///etc/passwd"}, "url"),
        ({"argv": (), "url": "http://"}, "url"),
        ({"argv": (), "url": "http://a:99999999/"}, "url"),
        ({"argv": (), "url": "https://user:secret@host/mcp"}, "url"),
        ({"argv": (), "url": "https://host/a b"}, "url"),
        ({"argv": (" ",)}, "argv"),
        ({"argv": ("a\0b",)}, "argv"),
        ({"argv": ("a\ud800b",)}, "argv"),
        ({"argv": ("a",) * 101}, "argv"),
        ({"secrets": {"TOKEN": "sk-123 456"}}, "secrets"),
        ({"secrets": {"A-B": "TOKEN"}}, "secrets"),
        ({"timeout_seconds": 0.5}, "timeout_seconds"),
        ({"timeout_seconds": float("nan")}, "timeout_seconds"),
        ({"timeout_seconds": 4_000}, "timeout_seconds"),
    ],
)
def test_a_wrong_address_is_refused_by_the_name_of_what_is_wrong(values, field):
    with pytest.raises(InvalidRequest) as refused:
        check_address(ServerAddress(**{"name": "files", "argv": ("server",)} | values))
    assert refused.value.details["field"] == field


def test_good_addresses_pass():
    check_address(ServerAddress(name="files-2", argv=("npx", "-y", "server"), secrets={"TOKEN": "FILES_TOKEN"}))
    check_address(ServerAddress(name="a", url="https://host:8443/mcp?x=1", secrets={"X-Api-Key": "KEY"}))
