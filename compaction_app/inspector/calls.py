"""Story: one call opened: its payload proven, its blocks, and how they differ from those of another call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from compaction_app.context import ComparedCalls, compare_calls
from compaction_app.rebuild import PromptSources, RebuiltPayload, load_sources, rebuild_payload
from mnesis_core.context.blocks import Block, BlockKind, blocks_of
from mnesis_core.context.prompt_diff import Difference
from mnesis_core.errors import CallNotFoundError, NotFound
from mnesis_core.llm.tokens import MESSAGE_FRAMING, estimate_text
from mnesis_core.records import CallRecord
from sessions_app.pages.permissions import Inspected
from sessions_app.record.call_queries import load_call

DEEPEST = 100
"""Levels of JSON that is laid out in lines: indents of deeper ones are longer than what they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedCall:
    """A call with what it was sent."""

    record: CallRecord
    rebuilt: RebuiltPayload
    blocks: list[Block]
    """In order; none where the record does not give them."""

    @property
    def is_of_turn(self) -> bool:
        """Whether it was asked to answer, with the session's context."""
        return self.record.purpose == "turn"


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedBlock:
    """What one difference is about, as both prompts show it."""

    difference: Difference
    block: Block | None
    """Of the later prompt, else of the earlier one; ``None`` where neither can be read."""
    tokens: int | None
    """By how much the prompt grew for it; ``None``: that cannot be told."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """Two calls, and what the later one shows in another way."""

    compared: ComparedCalls
    changes: list[ComparedBlock]


def load_call_of(about: Inspected, call_id: str) -> CallRecord:
    """One call of a session.

    :raises CallNotFoundError: the session has no such call.
    """
    call = load_call(call_id)
    if call.session_id != about.id:
        raise CallNotFoundError(call_id=call_id)
    return call


def open_call(call: CallRecord) -> OpenedCall:
    """A call with its payload and its blocks, from one read of the record. Never fails."""
    sources = _sources(call) if call.purpose == "turn" else None
    rebuilt = rebuild_payload(call, sources=sources)
    blocks = _blocks(sources) if sources else _messages(rebuilt.payload)
    return OpenedCall(record=call, rebuilt=rebuilt, blocks=blocks)


def compare(opened: OpenedCall, *, owner_id: int, earlier_id: str | None) -> Comparison:
    """The difference of a call from an earlier one, by default the one before it.

    :raises CallNotFoundError: there is no such earlier call.
    :raises InvalidRequest: they cannot be compared.
    """
    compared = compare_calls(opened.record.id, owner_id=owner_id, earlier_id=earlier_id)
    sources = _sources(compared.earlier) if compared.earlier else None
    before, after = _by_key(_blocks(sources) if sources else []), _by_key(opened.blocks)
    is_known = bool(opened.blocks) and (sources is not None or compared.earlier is None)
    changes = [_compared(change, before, after, is_known=is_known) for change in compared.changes]
    return Comparison(compared=compared, changes=changes)


def pretty(payload: Mapping[str, Any]) -> str:
    """A payload as JSON, in lines and indents as long as these are readable."""
    return json.dumps(payload, ensure_ascii=False, indent=2 if _depth(payload) <= DEEPEST else None)


def _depth(value: Any) -> int:
    # A stack instead of recursion: what a tool's description holds may be nested deeper than Python's.
    deepest, waiting = 0, [(value, 1)]
    while waiting:
        here, depth = waiting.pop()
        inner = here.values() if isinstance(here, dict) else here if isinstance(here, list) else ()
        waiting += [(item, depth + 1) for item in inner if isinstance(item, dict | list)]
        deepest = max(deepest, depth)
    return deepest


def _sources(call: CallRecord) -> PromptSources | None:
    try:
        return load_sources(call)
    except (ValueError, NotFound):  # rebuild_payload says why
        return None


def _blocks(sources: PromptSources) -> list[Block]:
    try:
        return blocks_of(sources.manifest, sources.entries, system_prompt=sources.system_prompt, tools=sources.tools)
    except NotFound:
        return []


def _messages(payload: Mapping[str, Any] | None) -> list[Block]:
    """The messages of a payload that is no turn's, as blocks."""
    messages = payload.get("messages") if payload else None
    return (
        [_message(message) for message in messages if isinstance(message, dict)] if isinstance(messages, list) else []
    )


def _message(message: Mapping[str, Any]) -> Block:
    role, content = str(message.get("role", "")), message.get("content")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    kind = BlockKind.SYSTEM if role == "system" else BlockKind.MESSAGE
    return Block(kind=kind, role=role, texts=(("text", text),), tokens=MESSAGE_FRAMING + estimate_text(text))


Key = tuple[str, str]


def _by_key(blocks: Iterable[Block]) -> dict[Key, list[Block]]:
    """Blocks by what a difference may name: the prompt's beginning, tools, messages and summaries, and parts."""
    found: dict[Key, list[Block]] = {}
    for block in blocks:
        for key in _keys(block):
            found.setdefault(key, []).append(block)
    return found


def _keys(block: Block) -> list[Key]:
    if block.kind is BlockKind.SYSTEM:
        return [("system", "")]
    if block.kind is BlockKind.TOOL:
        return [("tool", block.name)]
    item = ("summary" if block.kind is BlockKind.SUMMARY else "message", block.item_id)
    return [item, ("part", block.part_id)] if block.part_id else [item]


def _compared(
    change: Difference, before: Mapping[Key, list[Block]], after: Mapping[Key, list[Block]], *, is_known: bool
) -> ComparedBlock:
    then, now = before.get((change.kind, change.id), []), after.get((change.kind, change.id), [])
    tokens = sum(block.tokens for block in now) - sum(block.tokens for block in then)
    return ComparedBlock(difference=change, block=next(iter([*now, *then]), None), tokens=tokens if is_known else None)
