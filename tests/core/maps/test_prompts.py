"""What a model is asked for one item: the schema always, the validator's words when it is asked again."""

from __future__ import annotations

from dataclasses import asdict, replace
from datetime import UTC, datetime

import pytest

from mnesis_core.errors import InvalidTemplate
from mnesis_core.maps.prompts import (
    CURRENT,
    KNOWN,
    LONGEST_QUOTED_REPLY,
    MARKER,
    correction,
    item_prompt,
    map_payload,
    prompt_version,
)
from mnesis_core.maps.values import AttemptRecord, ErrorKind, OperatorSpec, read_spec, write_spec
from mnesis_core.providers.rendering import digest
from mnesis_core.records import UsageRecord

SCHEMA = {"type": "object", "properties": {"z": {}, "a": {}}}
SPEC = OperatorSpec(template="Of {{ item.text }}.", schema=SCHEMA, system_prompt="You are exact.")


def _try(number: int, output: str, kind: ErrorKind | None, error: str = "") -> AttemptRecord:
    return AttemptRecord(
        id=f"try_{number}",
        run_id="map_1",
        item=1,
        number=number,
        call_id=None,
        child_turn_id="",
        output=output,
        accepted=kind is None,
        error_kind=kind,
        error=error,
        usage=UsageRecord(),
        duration_ms=1,
        created_at=datetime(2026, 1, 1, tzinfo=UTC),
    )


def test_the_first_try_has_the_prompt_and_the_schema() -> None:
    system, user = map_payload(SPEC, {"text": "rain"})["messages"]
    assert user == {"role": "user", "content": "Of rain."}
    assert system["content"].startswith(f"You are exact.\n\n{MARKER}\n")
    assert '{"type": "object", "properties": {"z": {}, "a": {}}}' in system["content"]


def test_without_a_schema_none_is_spoken_of() -> None:
    payload = map_payload(OperatorSpec(template="{{ item }}", native_schema=True), "x")
    assert "Schema" not in payload["messages"][0]["content"]
    assert payload.keys() == {"messages"}


def test_a_provider_that_supports_it_gets_the_schema_itself() -> None:
    spec = OperatorSpec(template="{{ item }}", schema=SCHEMA, native_schema=True)
    assert map_payload(spec, 1)["response_format"]["json_schema"]["schema"] == SCHEMA
    assert "response_format" not in map_payload(SPEC, {"text": ""})
    array = OperatorSpec(template="{{ item }}", schema={"type": "array"}, native_schema=True)
    assert "response_format" not in map_payload(array, 1)


def test_after_a_call_that_failed_the_schema_is_in_the_text_alone() -> None:
    spec = OperatorSpec(template="{{ item }}", schema=SCHEMA, native_schema=True)
    assert "response_format" in map_payload(spec, 1, [_try(1, "[]", ErrorKind.SCHEMA_ERROR, "wrong")])
    assert "response_format" not in map_payload(spec, 1, [_try(1, "", ErrorKind.LLM_ERROR, "refused")])
    assert "response_format" not in map_payload(spec, 1, [_try(1, "", ErrorKind.VALIDATION, "no JSON")])


def test_the_next_try_has_the_refused_answer_and_the_validators_words() -> None:
    tries = [
        _try(1, "no json", ErrorKind.VALIDATION, "first"),
        _try(2, "[]", ErrorKind.SCHEMA_ERROR, "[] is not of type 'object' at $."),
        _try(3, "half of", ErrorKind.TIMEOUT, "too slow"),
    ]
    messages = map_payload(SPEC, {"text": "rain"}, tries)["messages"]
    assert messages[:2] == map_payload(SPEC, {"text": "rain"})["messages"]
    assert messages[2] == {"role": "assistant", "content": "[]"}
    assert messages[3]["content"] == correction("[] is not of type 'object' at $.")
    assert len(messages) == 4


@pytest.mark.parametrize("kind", [ErrorKind.TIMEOUT, ErrorKind.LLM_ERROR, ErrorKind.BUDGET, ErrorKind.TOOL_ERROR])
def test_a_try_that_gave_no_answer_changes_nothing(kind: ErrorKind) -> None:
    assert map_payload(SPEC, {"text": "x"}, [_try(1, "half", kind)]) == map_payload(SPEC, {"text": "x"})


def test_an_empty_answer_is_not_repeated_and_a_huge_one_is_shortened() -> None:
    empty = map_payload(SPEC, {"text": "x"}, [_try(1, " ", ErrorKind.VALIDATION, "empty")])["messages"]
    assert [message["role"] for message in empty] == ["system", "user", "user"]
    huge = map_payload(SPEC, {"text": "x"}, [_try(1, "x" * 10**6, ErrorKind.VALIDATION, "long")])["messages"]
    assert len(huge[2]["content"]) < LONGEST_QUOTED_REPLY + 10


def test_a_stored_specification_asks_the_same() -> None:
    assert map_payload(read_spec(write_spec(SPEC)), {"text": "é\ud800"}) == map_payload(SPEC, {"text": "é\ud800"})


def test_a_sub_agent_is_told_the_schema_in_its_first_message() -> None:
    assert item_prompt(SPEC, {"text": "rain"}).startswith("Of rain.\n\nWhen you are done: answer with one JSON value")
    assert item_prompt(OperatorSpec(template="{{ item }}"), "x") == "x"


def test_an_item_that_does_not_fit_the_template_is_an_error() -> None:
    with pytest.raises(InvalidTemplate, match="cannot be rendered for this item"):
        map_payload(SPEC, "no object")


def test_the_words_of_a_version_never_change() -> None:
    # Another digest: give the new words a version of their own, and keep these.
    assert {version: digest(asdict(words)) for version, words in KNOWN.items()} == {
        "map.1": "30b9de60a0fb2201a2670c185b94a55b8372639b9fd4deea2da14b5dd9f97ec8"
    }
    assert prompt_version(CURRENT.version) is CURRENT
    with pytest.raises(ValueError, match=r"map\.0 of then is not known"):
        prompt_version("map.0")


def test_a_past_question_is_made_again_with_the_words_of_then() -> None:
    then = replace(CURRENT, version="map.0", alone="Alone.", with_schema="So:", again="Once more.")
    refused = [_try(1, "[]", ErrorKind.SCHEMA_ERROR, "No object.")]
    system, _, _, again = map_payload(SPEC, {"text": "rain"}, refused, prompts=then)["messages"]
    assert system["content"] == 'You are exact.\n\nAlone.\n\nSo:\n{"type": "object", "properties": {"z": {}, "a": {}}}'
    assert again["content"] == "No object. Once more."
