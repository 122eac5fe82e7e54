"""What a model is asked for one item, the first time and again. The same values give the same bytes: calls are rebuilt from them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mnesis_core.operators.schema import OutputSchema, compile_schema
from mnesis_core.operators.template import compile_template
from mnesis_core.operators.values import ErrorKind, OperatorSpec, TryRecord
from mnesis_core.operators.wording import CURRENT, Wording

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
