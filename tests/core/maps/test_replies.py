"""Replies: what is a result, and what is said of those that are none."""

from __future__ import annotations

from typing import Any

import pytest

from mnesis_core.errors import ModelRateLimited, ModelTimeout
from mnesis_core.llm.interface import Outcome, Reply, Usage
from mnesis_core.maps.prompts import judge, judge_reply, result_of
from mnesis_core.maps.schema import compile_schema
from mnesis_core.maps.values import ErrorKind

SCHEMA = compile_schema({"type": "object", "required": ["a"]})
ANY = compile_schema(True)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1}', {"a": 1}),
        (' \n{"a": 1}\n ', {"a": 1}),
        ('\ufeff{"a": 1}', {"a": 1}),
        ('```json\n{"a": 1}\n```', {"a": 1}),
        ('Here it is:\n```\n{"a": 1}\n```\nDone.', {"a": 1}),
        ('{"a": "```json\\n{}\\n```"}', {"a": "```json\n{}\n```"}),
        ('{"a": "\\u0000\\ud800"}', {"a": "\0\ud800"}),
    ],
)
def test_json_is_found_in_a_reply(text: str, value: Any) -> None:
    judged = judge(text, SCHEMA)
    assert (judged.kind, judged.value) == (None, value)
    assert result_of(text, SCHEMA) == value


@pytest.mark.parametrize(
    ("text", "kind", "words"),
    [
        ("", ErrorKind.VALIDATION, "The answer is empty."),
        (" \n", ErrorKind.VALIDATION, "The answer is empty."),
        ("Sure!", ErrorKind.VALIDATION, "The answer is not JSON: Expecting value at line 1, column 1."),
        ('{"a": 1', ErrorKind.VALIDATION, "not JSON"),
        ('{"a": 1} Done.', ErrorKind.VALIDATION, "Extra data"),
        ('{"a": NaN}', ErrorKind.VALIDATION, "NaN is not JSON"),
        ('```\n{"a": 1}\n```\n```\n{"a": 2}\n```', ErrorKind.VALIDATION, "not JSON"),
        ("[" * 3_000 + "]" * 3_000, ErrorKind.VALIDATION, "nested too deeply"),
        ('"' + "x" * 4_000_001 + '"', ErrorKind.VALIDATION, "longer than"),
        ("```\n" * 50_000, ErrorKind.VALIDATION, "not JSON"),
        ("{}", ErrorKind.SCHEMA_ERROR, "The answer does not fit the schema: 'a' is a required property at $."),
        ("[" * 50 + "]" * 50, ErrorKind.SCHEMA_ERROR, "nests more than 40"),
    ],
)
def test_what_is_no_result_says_why(text: str, kind: ErrorKind, words: str) -> None:
    judged = judge(text, SCHEMA)
    assert judged.kind is kind
    assert words in judged.message


def test_without_a_schema_any_text_is_a_result_that_is_whole() -> None:
    assert judge("Just words.", None).value == "Just words."
    assert judge("Just", None, finish_reason="length").kind is ErrorKind.VALIDATION
    assert judge("", None).kind is ErrorKind.VALIDATION


def test_a_reply_that_ran_out_of_tokens_is_told_so() -> None:
    assert "write less" in judge('{"a": [1, 2', SCHEMA, finish_reason="length").message


@pytest.mark.parametrize(
    ("outcome", "error", "kind"),
    [
        (Outcome.FAILED, ModelTimeout(), ErrorKind.TIMEOUT),
        (Outcome.BROKEN, ModelTimeout(), ErrorKind.TIMEOUT),
        (Outcome.FAILED, ModelRateLimited(), ErrorKind.LLM_ERROR),
        (Outcome.INCOMPLETE, None, ErrorKind.LLM_ERROR),
        (Outcome.CANCELLED, None, ErrorKind.LLM_ERROR),
        (Outcome.COMPLETE, None, None),
    ],
)
def test_only_a_whole_reply_is_a_result(outcome: Outcome, error: Any, kind: ErrorKind | None) -> None:
    reply = Reply(text="true", usage=Usage(input_tokens=1, output_tokens=1), outcome=outcome, error=error)
    judged = judge_reply(reply, ANY)
    assert judged.kind is kind
    assert bool(judged.message) == (kind is not None)
