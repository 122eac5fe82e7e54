"""Whether a reply is a result: JSON that fits the schema, or why not, in words for the model that is asked again."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from mnesis_core.endings import ModelTimeout
from mnesis_core.errors import InvalidRequest
from mnesis_core.llm import Outcome, Reply
from mnesis_core.operators.schema import OutputSchema
from mnesis_core.operators.values import ErrorKind
from mnesis_core.strict_json import read_json

LONGEST_REPLY = 4_000_000
"""Characters that are read as JSON."""
_FENCED = re.compile(r"```[ \t]*[\w+-]*[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)
_CUT = "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """What a reply is worth."""

    kind: ErrorKind | None = None
    """``None``: it is a result."""
    message: str = ""
    """What is wrong with it."""
    value: Any = None
    """The result."""


def judge_reply(reply: Reply, schema: OutputSchema | None) -> Judged:
    """Whether a model's call gave a result.

    A reply that is not proven whole is none, however good its text looks.
    """
    if reply.outcome is Outcome.COMPLETE:
        return judge(reply.text, schema, finish_reason=reply.finish_reason)
    kind = ErrorKind.TIMEOUT if isinstance(reply.error, ModelTimeout) else ErrorKind.LLM_ERROR
    return Judged(kind=kind, message=reply.error.message if reply.error else "The model gave no whole answer.")


def judge(text: str, schema: OutputSchema | None, *, finish_reason: str = "") -> Judged:
    """Whether a text is a result: JSON, alone or as the one fenced block of the text; without a schema, any text.

    :param finish_reason: what the provider said at its end
    """
    if not text.strip():
        return _no_json("The answer is empty.", finish_reason)
    if schema is None:
        return Judged(value=text) if finish_reason != _CUT else _no_json("The answer is not whole.", finish_reason)
    if len(text) > LONGEST_REPLY:
        return _no_json(f"The answer is longer than {LONGEST_REPLY:,} characters.", finish_reason)
    try:
        value = read_json(json_in(text))
    except InvalidRequest as error:
        return _no_json(error.message.replace("The body", "The answer", 1), finish_reason)
    if problem := schema.problem(value):
        return Judged(kind=ErrorKind.SCHEMA_ERROR, message=f"The answer does not fit the schema: {problem}.")
    return Judged(value=value)


def json_in(text: str) -> str:
    """The JSON of a reply: what stands in its fences where it has one such block, otherwise all of it."""
    stripped = text.strip().removeprefix("\ufeff")
    if stripped[:1] in ("{", "[", '"'):
        return stripped
    blocks: list[str] = _FENCED.findall(stripped)
    return blocks[0].strip() if len(blocks) == 1 else stripped


def result_of(text: str, schema: OutputSchema | None) -> Any:
    """The result that an accepted reply holds."""
    return text if schema is None else read_json(json_in(text))


def _no_json(problem: str, finish_reason: str) -> Judged:
    cut = " It was cut off at the most tokens that an answer may have: write less." if finish_reason == _CUT else ""
    return Judged(kind=ErrorKind.VALIDATION, message=problem + cut)
