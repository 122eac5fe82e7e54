"""What stands before an answer in a prompt, as a digest: thinking that is bound to it goes back after nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import groupby
from typing import Any

from mnesis_core.context.entries import Prompt, only_ran, source_of_message
from mnesis_core.providers.rendering import chat_messages, chat_tools, digest

LENGTH = 32


def prompt_digest(payload: Mapping[str, Any]) -> str:
    """Return the digest of the tools and messages of a payload in litellm's form; marks for a cache change nothing."""
    state = _of_tools([*payload.get("tools", ()), *payload.get("provider_tools", ())])
    for message in payload["messages"]:
        state = _then(state, message)
    return state[:LENGTH]


def answers_after_other_prompts(prompt: Prompt, provider_tools: Sequence[Mapping[str, Any]] = ()) -> frozenset[str]:
    """Return the messages whose opaque parts answered another prompt than what stands before them here.

    What was made after one of them was made with it before it, and so is among them too.
    """
    if not any(message.opaque for message in prompt.messages):
        return frozenset()
    moved: set[str] = set()
    state = _of_tools([*chat_tools(prompt.tools), *provider_tools])
    for source, group in groupby(prompt.messages, key=source_of_message):
        said = list(group)
        given = [opaque for message in said for opaque in message.opaque if not opaque.is_ran]
        if any(opaque.part.prompt != state[:LENGTH] for opaque in given):
            moved.add(source)
            said = only_ran(said)
        for message in said:
            for one in chat_messages(message, in_results=prompt.in_results):
                state = _then(state, one)
    return frozenset(moved)


def _of_tools(tools: Sequence[Mapping[str, Any]]) -> str:
    return digest({"tools": [_without_mark(tool) for tool in tools]})


def _then(state: str, message: Mapping[str, Any]) -> str:
    return digest({"before": state, "message": _without_mark(message)})


def _without_mark(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: item for name, item in value.items() if name != "cache_control"}
