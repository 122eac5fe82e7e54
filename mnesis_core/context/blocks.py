"""The blocks of a past prompt: what it was made of, piece by piece in order, each with what it took.

A block's text is what the model read of it, by the same rules that the prompt itself is read with (``wording``).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum
from typing import Any

from mnesis_core.context.assembly import read_system, read_tool, size_of_tool
from mnesis_core.context.entries import EMPTY_MESSAGE, ContextEntry
from mnesis_core.context.fitting import frame_of
from mnesis_core.context.manifest import Sources, find_message, find_summary, sources_of
from mnesis_core.context.wording import field_texts, read_gap, read_summary
from mnesis_core.llm.interface import ToolSpec
from mnesis_core.llm.tokens import MESSAGE_FRAMING, estimate_text
from mnesis_core.messages import FileRefPart, PatchPart, StoredMessage, StoredPart, ToolPart
from mnesis_core.values import dataclass


class BlockKind(StrEnum):
    SYSTEM = "system"
    TOOL = "tool"
    SUMMARY = "summary"
    MESSAGE = "message"
    TOOL_OUTPUT = "tool_output"
    TOMBSTONE = "tombstone"
    FILE = "file"
    PATCH = "patch"
    GAP = "gap"


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    kind: BlockKind
    role: str
    # (name, text) as the model reads it: ``text``, or ``input`` and ``output`` of a tool call.
    texts: tuple[tuple[str, str], ...]
    tokens: int  # by our own estimate, uncorrected
    name: str = ""  # of a tool, or the path of a file
    item_id: str = ""
    part_id: str = ""
    first_seq: int = 0
    last_seq: int = 0  # The messages that it is of or stands for; 0 for none.
    is_shortened: bool = False
    is_unanswered: bool = False  # a tool call that had no result then


def blocks_of(
    manifest: Sequence[Mapping[str, Any]],
    entries: Sequence[ContextEntry],
    *,
    system_prompt: str,
    tools: Sequence[ToolSpec],
) -> list[Block]:
    """Return the blocks of a stored manifest, from what ``assembly.rebuild`` takes.

    :raises MessageNotFoundError: a message that the manifest names is not among the entries.
    :raises SummaryNotFoundError: a summary that it names is not among them.
    """
    sources = sources_of(entries)
    by_name = {tool.name: tool for tool in tools}
    return [block for row in manifest for block in _row_blocks(row, sources, by_name, system_prompt)]


def _row_blocks(
    row: Mapping[str, Any], sources: Sources, tools: Mapping[str, ToolSpec], system_prompt: str
) -> Iterator[Block]:
    match row["kind"]:
        case "system":
            text = read_system(row, system_prompt).text
            yield _text_block(BlockKind.SYSTEM, "system", text, is_shortened="head" in row)
        case "tools":
            for tool in (tools[name] for name in row["names"] if name in tools):
                texts = (("text", read_tool(tool, indent=2)),)
                yield Block(kind=BlockKind.TOOL, role="system", texts=texts, tokens=size_of_tool(tool), name=tool.name)
        case "summary":
            entry = find_summary(sources, row["id"])
            span = {"first_seq": entry.first_seq, "last_seq": entry.last_seq}
            yield _text_block(BlockKind.SUMMARY, "user", read_summary(entry).text, item_id=entry.id, **span)
        case "message":
            yield from _message_blocks(find_message(sources, row["id"]), row)
        case "gap":
            span = {"first_seq": row["first_seq"], "last_seq": row["last_seq"]}
            yield _text_block(BlockKind.GAP, "user", read_gap(row).text, **span)


def _text_block(kind: BlockKind, role: str, text: str, **more: Any) -> Block:
    tokens = MESSAGE_FRAMING + estimate_text(text)
    return Block(kind=kind, role=role, texts=(("text", text),), tokens=tokens, **more)


def _message_blocks(message: StoredMessage, row: Mapping[str, Any]) -> Iterator[Block]:
    what = {"item_id": message.id, "first_seq": message.seq, "last_seq": message.seq}
    parts = [stored for stored in message.parts[: row["parts"]] if stored.id not in row["omitted"]]
    found = [(stored, texts) for stored in parts if (texts := field_texts(message, stored, row))]
    if not found and message.role == "user":
        yield _text_block(BlockKind.MESSAGE, "user", EMPTY_MESSAGE, **what)
    cut = {shortened["part"] for shortened in row["shortened"]}
    for stored, texts in found:
        yield _part_block(message, stored, texts, row, {**what, "part_id": stored.id, "is_shortened": stored.id in cut})


def _part_block(
    message: StoredMessage, stored: StoredPart, texts: dict[str, str], row: Mapping[str, Any], what: dict[str, Any]
) -> Block:
    match stored.part:
        case ToolPart() as part:
            is_open = stored.id in row["unanswered"]
            names = ("input",) if is_open else ("input", "output")
            return Block(
                kind=BlockKind.TOMBSTONE if stored.id in row["tombstoned"] else BlockKind.TOOL_OUTPUT,
                role="tool",
                texts=tuple((name, texts[name]) for name in names),
                tokens=frame_of(stored) + sum(estimate_text(texts[name]) for name in names),
                name=part.tool_name,
                is_unanswered=is_open,
                **what,
            )
        case FileRefPart() as part:
            return _text_block(BlockKind.FILE, message.role, texts["text"], name=part.path or part.file_id, **what)
        case PatchPart() as part:
            return _text_block(BlockKind.PATCH, message.role, texts["text"], name=", ".join(part.files_changed), **what)
        case _:
            return _text_block(BlockKind.MESSAGE, message.role, texts["text"], **what)
