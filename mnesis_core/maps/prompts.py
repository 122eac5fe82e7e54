"""The requests of an operator's items, and whether a reply is a result.

The engine's own words are versioned, since past requests are rebuilt from them: to change a word, add a version.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from mnesis_core.errors import InvalidRequest, ModelTimeout
from mnesis_core.llm.interface import Outcome, Reply
from mnesis_core.maps.schema import OutputSchema, compile_schema
from mnesis_core.maps.template import compile_template
from mnesis_core.maps.values import AttemptRecord, ErrorKind, OperatorSpec
from mnesis_core.text import read_json

# Begins every system text, so that a model or a gateway can recognise the request.
MARKER = "MNESIS-MAP"


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptVersion:
    version: str
    # In the system text: what an answer is for.
    alone: str
    # Precedes the schema.
    with_schema: str
    # Follows what is wrong with an answer.
    again: str


FIRST = PromptVersion(
    version="map.1",
    alone=f"{MARKER}\nThis is one of many items that are worked on one by one. A program reads your answer, nobody else does: "
    "no greeting, no question back, no remark.",
    with_schema="Answer with one JSON value that fits this JSON Schema, and with nothing before or after it:",
    again="Write the whole answer again, corrected.",
)
CURRENT = FIRST
KNOWN = {one.version: one for one in (FIRST,)}


def prompt_version(version: str) -> PromptVersion:
    """Return the words of a version.

    :raises ValueError: the version is unknown
    """
    if version not in KNOWN:
        raise ValueError(f"the prompt {version} of then is not known here")
    return KNOWN[version]


# Requests. The same values give the same bytes: past calls are rebuilt from them.

# Characters of a refused answer that are quoted to the model.
LONGEST_QUOTED_REPLY = 20_000
_REFUSED = (ErrorKind.VALIDATION, ErrorKind.SCHEMA_ERROR)
_NOT_NATIVE = (ErrorKind.LLM_ERROR, ErrorKind.VALIDATION)


def map_payload(
    spec: OperatorSpec, value: Any, attempts: Sequence[AttemptRecord] = (), *, prompts: PromptVersion = CURRENT
) -> dict[str, Any]:
    """Return the provider's request for one attempt at an item of an LLMMap.

    :param value: the item
    :param attempts: the earlier ones, in their order
    :param prompts: the version to use; an earlier one to rebuild a past request
    :raises InvalidTemplate: the template does not fit this item
    """
    schema = schema_of(spec)
    asked = f"{prompts.with_schema}\n{schema.text}" if schema else ""
    messages = [
        {"role": "system", "content": "\n\n".join(part for part in (spec.system_prompt, prompts.alone, asked) if part)},
        {"role": "user", "content": compile_template(spec.template).render(value)},
        *_refusal(attempts, prompts),
    ]
    # A provider may refuse the schema itself, or give no usable answer with it: the next attempt then goes without.
    is_native = spec.native_schema and all(one.error_kind not in _NOT_NATIVE for one in attempts)
    given = schema.response_format if schema and is_native else None
    return {"messages": messages, "response_format": given} if given else {"messages": messages}


def item_prompt(spec: OperatorSpec, value: Any) -> str:
    """Return the first message for an item's sub-agent.

    :raises InvalidTemplate: the template does not fit this item
    """
    prompt, schema = compile_template(spec.template).render(value), schema_of(spec)
    words = CURRENT.with_schema
    asked = f"\n\nWhen you are done: {words[0].lower()}{words[1:]}\n{schema.text}" if schema else ""
    return f"{prompt}{asked}"


def correction(problem: str, prompts: PromptVersion = CURRENT) -> str:
    """Return the request to correct an answer.

    :param problem: ``Judged.message``
    """
    return f"{problem} {prompts.again}"


def schema_of(spec: OperatorSpec) -> OutputSchema | None:
    """Return the schema of a run's results.

    :raises InvalidSchema: it cannot be used
    """
    return None if spec.schema is None else compile_schema(spec.schema)


def _refusal(attempts: Sequence[AttemptRecord], prompts: PromptVersion) -> list[dict[str, Any]]:
    refused = next((one for one in reversed(attempts) if one.error_kind in _REFUSED), None)
    if refused is None:
        return []
    answer = [{"role": "assistant", "content": _quoted(refused.output)}] if refused.output.strip() else []
    return [*answer, {"role": "user", "content": correction(refused.error, prompts)}]


def _quoted(text: str) -> str:
    half = LONGEST_QUOTED_REPLY // 2
    return text if len(text) <= LONGEST_QUOTED_REPLY else f"{text[:half]}\n[…]\n{text[-half:]}"


# Replies.

# Characters that are read as JSON.
LONGEST_REPLY = 4_000_000
_FENCED = re.compile(r"```[ \t]*[\w+-]*[ \t]*\r?\n(.*?)\r?\n?[ \t]*```", re.DOTALL)
_CUT = "length"


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    # None if the reply is a result.
    kind: ErrorKind | None = None
    message: str = ""
    value: Any = None


def judge_reply(reply: Reply, schema: OutputSchema | None) -> Judged:
    """Judge a model's reply. One that is not proven complete is no result, whatever its text."""
    if reply.outcome is Outcome.COMPLETE:
        return judge(reply.text, schema, finish_reason=reply.finish_reason)
    kind = ErrorKind.TIMEOUT if isinstance(reply.error, ModelTimeout) else ErrorKind.LLM_ERROR
    return Judged(kind=kind, message=reply.error.message if reply.error else "The model gave no whole answer.")


def judge(text: str, schema: OutputSchema | None, *, finish_reason: str = "") -> Judged:
    """Judge a text: JSON, alone or as the only fenced block; without a schema, any text.

    :param finish_reason: the provider's
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
    """Return the JSON of a reply: its only fenced block, or all of it."""
    stripped = text.strip().removeprefix("\ufeff")
    if stripped[:1] in ("{", "[", '"'):
        return stripped
    blocks: list[str] = _FENCED.findall(stripped)
    return blocks[0].strip() if len(blocks) == 1 else stripped


def result_of(text: str, schema: OutputSchema | None) -> Any:
    return text if schema is None else read_json(json_in(text))


def _no_json(problem: str, finish_reason: str) -> Judged:
    cut = " It was cut off at the most tokens that an answer may have: write less." if finish_reason == _CUT else ""
    return Judged(kind=ErrorKind.VALIDATION, message=problem + cut)
