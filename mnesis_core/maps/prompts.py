"""What the engine says beside a run's own words: by version, since past questions are made again from it.

Whoever changes a word adds a version and keeps those before.
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
from mnesis_core.maps.values import ErrorKind, OperatorSpec, TryRecord
from mnesis_core.text import read_json

MARKER = "MNESIS-MAP"
"""In every system text: by it a model, or a gateway, knows what is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """The words of one version."""

    version: str
    """Name and version, as of the prompts of summaries."""
    alone: str
    """Of the system text: what an answer is for."""
    with_schema: str
    """Before the schema."""
    again: str
    """After what is wrong with an answer."""


FIRST = Wording(
    version="map.1",
    alone=f"{MARKER}\nThis is one of many items that are worked on one by one. A program reads your answer, nobody else does: "
    "no greeting, no question back, no remark.",
    with_schema="Answer with one JSON value that fits this JSON Schema, and with nothing before or after it:",
    again="Write the whole answer again, corrected.",
)
CURRENT = FIRST
KNOWN = {one.version: one for one in (FIRST,)}


def wording_of(version: str) -> Wording:
    """The words of a version.

    :raises ValueError: it is none that is known here.
    """
    if version not in KNOWN:
        raise ValueError(f"the prompt {version} of then is not known here")
    return KNOWN[version]


# What a model is asked for one item, the first time and again. The same values give the same bytes: calls are rebuilt from them.

LONGEST_QUOTED_REPLY = 20_000
"""Characters of a refused answer that the model is shown again."""
_REFUSED = (ErrorKind.VALIDATION, ErrorKind.SCHEMA_ERROR)
_NOT_NATIVE = (ErrorKind.LLM_ERROR, ErrorKind.VALIDATION)


def map_payload(
    spec: OperatorSpec, value: Any, tries: Sequence[TryRecord] = (), *, wording: Wording = CURRENT
) -> dict[str, Any]:
    """What the provider gets for one try at an item of an LLMMap.

    :param value: the item
    :param tries: those before, in their order
    :param wording: the words of then, where a past question is made again
    :raises InvalidTemplate: the template does not fit this item.
    """
    schema = schema_of(spec)
    messages = [
        {"role": "system", "content": _system(spec, schema, wording)},
        {"role": "user", "content": compile_template(spec.template).render(value)},
        *_refusal(tries, wording),
    ]
    # A provider may refuse the very schema, or answer it in a way that nobody hears: then the next one goes without.
    is_native = spec.native_schema and all(one.error_kind not in _NOT_NATIVE for one in tries)
    given = schema.response_format if schema and is_native else None
    return {"messages": messages, "response_format": given} if given else {"messages": messages}


def item_prompt(spec: OperatorSpec, value: Any) -> str:
    """The message that an item's sub-agent begins with.

    :raises InvalidTemplate: the template does not fit this item.
    """
    prompt, schema = compile_template(spec.template).render(value), schema_of(spec)
    words = CURRENT.with_schema
    asked = f"\n\nWhen you are done: {words[0].lower()}{words[1:]}\n{schema.text}" if schema else ""
    return f"{prompt}{asked}"


def correction(problem: str, wording: Wording = CURRENT) -> str:
    """What is said to who gave an answer that is no result.

    :param problem: ``Judged.message``
    """
    return f"{problem} {wording.again}"


def schema_of(spec: OperatorSpec) -> OutputSchema | None:
    """The schema of a run's results.

    :raises InvalidSchema: it cannot be used.
    """
    return None if spec.schema is None else compile_schema(spec.schema)


def _system(spec: OperatorSpec, schema: OutputSchema | None, wording: Wording) -> str:
    asked = f"{wording.with_schema}\n{schema.text}" if schema else ""
    return "\n\n".join(part for part in (spec.system_prompt, wording.alone, asked) if part)


def _refusal(tries: Sequence[TryRecord], wording: Wording) -> list[dict[str, Any]]:
    """The last answer that was refused, and why. One that never came says nothing, nor do those before."""
    refused = next((one for one in reversed(tries) if one.error_kind in _REFUSED), None)
    if refused is None:
        return []
    answer = [{"role": "assistant", "content": _quoted(refused.output)}] if refused.output.strip() else []
    return [*answer, {"role": "user", "content": correction(refused.error, wording)}]


def _quoted(text: str) -> str:
    half = LONGEST_QUOTED_REPLY // 2
    return text if len(text) <= LONGEST_QUOTED_REPLY else f"{text[:half]}\n[…]\n{text[-half:]}"


# Whether a reply is a result: JSON that fits the schema, or why not, in words for the model that is asked again.

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
