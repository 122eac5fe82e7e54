"""What providers want back exactly as they gave it: how litellm hands it on, how it takes it back, and after which prompt.

Claude signs its thinking (``thinking_blocks``), Gemini signs calls and texts (``thought_signature``), and OpenAI's Responses
give encrypted reasoning (``reasoning_items``). DeepSeek and Kimi sign nothing, but want the thinking of each answer that
calls tools back (``reasoning_content``); litellm sends a space in its place where it has none:
https://api-docs.deepseek.com/guides/thinking_mode, https://platform.moonshot.ai/docs/guide/use-kimi-k2-thinking-model. Newer models of Claude take their thinking back only where everything before
it is what it was when they wrote it, else they refuse the request:
https://platform.claude.com/docs/en/build-with-claude/preserved-thinking/prefix-checks
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from mnesis_core.llm.interface import OpaqueBlock

SIGNATURE_IN_ID = "__thought__"  # Internal: litellm puts what follows it at the end of the id of a call.
REASONING = "reasoning_content"  # The kind of thinking that is not signed, and its field.
UNSIGNED = ("deepseek", "moonshot")  # Who wants it back.
SIGNATURE = "thought_signature"  # The kind of Gemini's signatures.
_LISTS = {"thinking": "thinking_blocks", "redacted_thinking": "thinking_blocks", "reasoning": "reasoning_items"}


def opaque_blocks(delta: Any) -> Iterator[OpaqueBlock]:
    """Yield what a piece of an answer holds of it, but for the signatures of its calls."""
    fields = getattr(delta, "provider_specific_fields", None) or {}
    signatures = fields.get("thought_signatures") if isinstance(fields, Mapping) else None
    if isinstance(signatures, list):
        # litellm has the signatures of all parts here, and of those that sum up thoughts once more as blocks.
        of_calls = [
            block.data for call in getattr(delta, "tool_calls", None) or () if (block := signature_of_call(call))
        ]
        blocks = [_signature(text) for text in signatures if isinstance(text, str) and text]
        yield from (block for block in blocks if block.data not in of_calls)
        return
    for block in getattr(delta, "thinking_blocks", None) or ():
        # The pieces of a text come one by one, and at last all of it with its signature.
        if block.get("type") == "redacted_thinking" or (block.get("type") == "thinking" and block.get("signature")):
            yield _block(block["type"], block)
    for item in getattr(delta, "reasoning_items", None) or ():
        if item.get("encrypted_content"):  # Without it, the provider would have to have kept it.
            yield _block("reasoning", item)


def signature_of_call(call: Any) -> OpaqueBlock | None:
    fields = getattr(call, "provider_specific_fields", None) or {}
    signature = fields.get(SIGNATURE) if isinstance(fields, Mapping) else None
    return _signature(signature) if isinstance(signature, str) and signature else None


def unsigned_reasoning(text: str) -> OpaqueBlock:
    return _block(REASONING, {REASONING: text})


def _signature(text: str) -> OpaqueBlock:
    return _block(SIGNATURE, {"thoughtSignature": text})


def _block(kind: str, value: Mapping[str, Any]) -> OpaqueBlock:
    return OpaqueBlock(kind=kind, data=json.dumps(dict(value), ensure_ascii=False))


def fields_of_answer(values: Iterable[tuple[str, Mapping[str, Any]]]) -> dict[str, Any]:
    """Return kinds and values of what stands before a text or a call as fields of an answer, as litellm takes them."""
    fields: dict[str, Any] = {}
    for kind, value in values:
        if kind == SIGNATURE and isinstance(value.get("thoughtSignature"), str):
            fields["provider_specific_fields"] = {"thought_signatures": [value["thoughtSignature"]]}
        elif kind == REASONING and isinstance(value.get(REASONING), str):
            fields[REASONING] = value[REASONING]
        elif kind == value.get("type") and kind in _LISTS:
            fields.setdefault(_LISTS[kind], []).append(value)
    return fields


def fields_of_call(fields: dict[str, Any]) -> dict[str, Any]:
    """Take the fields of a call out of those of its answer."""
    signed = fields.pop("provider_specific_fields", None)
    return {"provider_specific_fields": {SIGNATURE: signed["thought_signatures"][0]}} if signed else {}


def lacks_thinking(messages: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether messages in the form of litellm end in a turn that Claude began without thinking: with results, or with
    an answer that it paused.

    To Claude, a turn begins with a message of the user that brings no results.
    """
    answers: list[Mapping[str, Any]] = []
    brings_results = False
    for message in messages:
        if message["role"] == "assistant":
            answers.append(message)
            brings_results = False
        elif message["role"] == "tool":
            brings_results = True
        elif not brings_results:
            answers = []
    goes_on = brings_results or messages[-1]["role"] == "assistant"
    return goes_on and bool(answers) and "thinking_blocks" not in answers[0]
