"""One call opened: its payload proven, its blocks, and how they differ from those of another call."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from django.http import Http404, HttpResponse, JsonResponse

from compaction_app.context import ComparedCalls, compare_calls
from compaction_app.rebuild import PromptSources, RebuiltPayload, load_sources, rebuild_payload
from mnesis_core.context.blocks import Block, BlockKind, blocks_of
from mnesis_core.context.prompt_diff import Difference
from mnesis_core.errors import CallNotFoundError, NotFound
from mnesis_core.llm.tokens import MESSAGE_FRAMING, estimate_text
from mnesis_core.records import CallRecord
from sessions_app.pages.permissions import Inspected
from sessions_app.record.call_queries import load_call

MAX_INDENTED_DEPTH = 100  # The indents of deeper JSON would be longer than what it says.
SEES_PAYLOADS = (
    "sessions_app.view_modelcall", "sessions_app.view_message", "sessions_app.view_messagepart",
    "sessions_app.view_prompttext", "compaction_app.view_summarynode",
)  # fmt: skip
_ALSO = {
    "file": ["files_app.view_filereference"],
    "map": ["files_app.view_filereference", "agents_app.view_operatorrun", "agents_app.view_operatortry"],
}
"""Permissions for what else a payload holds, by the purpose of its call."""

Key = tuple[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenedCall:
    """A call with what it was sent."""

    record: CallRecord
    rebuilt: RebuiltPayload
    blocks: list[Block]
    """In order; empty where the record does not give them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ComparedBlock:
    """What one difference is about, as both prompts show it."""

    difference: Difference
    block: Block | None
    """The block of the later prompt, else of the earlier one; ``None`` where neither can be read."""
    tokens: int | None
    """By how much the prompt grew for it; ``None`` where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """All blocks of one kind, and their stretch of a bar of 1,000."""

    kind: BlockKind
    count: int
    tokens: int
    x: float
    width: float


def load_call_of(about: Inspected, call_id: str) -> CallRecord:
    """:raises CallNotFoundError: the session has no such call."""
    call = load_call(call_id)
    if call.session_id != about.id:
        raise CallNotFoundError(call_id=call_id)
    return call


def open_call(call: CallRecord) -> OpenedCall:
    """Return a call with its payload and its blocks, from one read of the record. Never fails."""
    sources = _sources(call) if call.purpose == "turn" else None
    rebuilt = rebuild_payload(call, sources=sources)
    if sources:
        return OpenedCall(record=call, rebuilt=rebuilt, blocks=_blocks(sources))
    # The prompt of any other purpose has no manifest of the context: its messages are its blocks.
    messages = rebuilt.payload.get("messages") if rebuilt.payload else None
    given = messages if isinstance(messages, list) else []
    return OpenedCall(
        record=call, rebuilt=rebuilt, blocks=[_message_block(one) for one in given if isinstance(one, dict)]
    )


def _message_block(message: Mapping[str, Any]) -> Block:
    role, content = str(message.get("role", "")), message.get("content")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    kind = BlockKind.SYSTEM if role == "system" else BlockKind.MESSAGE
    return Block(kind=kind, role=role, texts=(("text", text),), tokens=MESSAGE_FRAMING + estimate_text(text))


def compare(opened: OpenedCall, *, owner_id: int, earlier_id: str | None) -> tuple[ComparedCalls, list[ComparedBlock]]:
    """Return the difference of a call from an earlier one, by default the one before it.

    :raises CallNotFoundError: there is no such earlier call.
    :raises InvalidRequest: they cannot be compared.
    """
    compared = compare_calls(opened.record.id, owner_id=owner_id, earlier_id=earlier_id)
    sources = _sources(compared.earlier) if compared.earlier else None
    before, after = _by_key(_blocks(sources) if sources else []), _by_key(opened.blocks)
    is_known = bool(opened.blocks) and (sources is not None or compared.earlier is None)
    changes = []
    for change in compared.changes:
        then, now = before.get((change.kind, change.id), []), after.get((change.kind, change.id), [])
        tokens = sum(block.tokens for block in now) - sum(block.tokens for block in then)
        block = next(iter([*now, *then]), None)
        changes.append(ComparedBlock(difference=change, block=block, tokens=tokens if is_known else None))
    return compared, changes


def shares_of(blocks: Iterable[Block], kinds: Iterable[BlockKind]) -> list[Share]:
    """Return how much of a prompt is of what kind, in the order of ``kinds``."""
    found: dict[BlockKind, list[int]] = {kind: [] for kind in kinds}
    for block in blocks:
        found[block.kind].append(block.tokens)
    total, at, shares = max(sum(map(sum, found.values())), 1), 0, []
    for kind, sizes in found.items():
        if sizes:
            x, end = 1_000 * at / total, 1_000 * (at + sum(sizes)) / total
            at += sum(sizes)
            shares.append(Share(kind=kind, count=len(sizes), tokens=sum(sizes), x=x, width=end - x))
    return shares


def pretty(payload: Mapping[str, Any]) -> str:
    """Return a payload as JSON, laid out in lines as long as the indents stay readable."""
    # A stack instead of recursion: the description of a tool may be nested deeper than Python's stack allows.
    deepest = 0
    waiting: list[tuple[Any, int]] = [(payload, 1)]
    while waiting:
        here, depth = waiting.pop()
        inner = here.values() if isinstance(here, Mapping) else here
        waiting += [(item, depth + 1) for item in inner if isinstance(item, dict | list)]
        deepest = max(deepest, depth)
    return json.dumps(payload, ensure_ascii=False, indent=2 if deepest <= MAX_INDENTED_DEPTH else None)


def may_see_payload(user: Any, purpose: str) -> bool:
    """Return whether a person may look at everything that the payload of another person's call for this purpose holds."""
    return bool(user.has_perms((*SEES_PAYLOADS, *_ALSO.get(purpose, ()))))


def payload_file(call: CallRecord, rebuilt: RebuiltPayload) -> HttpResponse:
    """Return a payload as a file of JSON.

    :raises Http404: it cannot be rebuilt.
    """
    if rebuilt.payload is None:
        raise Http404("this payload cannot be rebuilt")
    response = JsonResponse(rebuilt.payload)
    response["Content-Disposition"] = f'attachment; filename="{call.id}.json"'
    return response


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


def _by_key(blocks: Iterable[Block]) -> dict[Key, list[Block]]:
    """Group blocks by what a difference may name: the system prompt, tools, messages, summaries and parts."""
    found: dict[Key, list[Block]] = {}
    for block in blocks:
        if block.kind is BlockKind.SYSTEM:
            keys = [("system", "")]
        elif block.kind is BlockKind.TOOL:
            keys = [("tool", block.name)]
        else:
            keys = [("summary" if block.kind is BlockKind.SUMMARY else "message", block.item_id)]
            keys += [("part", block.part_id)] if block.part_id else []
        for key in keys:
            found.setdefault(key, []).append(block)
    return found
