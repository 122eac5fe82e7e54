"""Results of tools that are too long for the conversation: the whole becomes a file, its two ends stay."""

from __future__ import annotations

from dataclasses import dataclass

from files_app.contents import put_content
from files_app.ingest import add_file
from mnesis_core.context.tool_outputs import OUTPUTS, shorten_output
from mnesis_core.files.detection import Kind, kind_of_text
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.text import bytes_of_text
from sessions_app.record import message_store
from sessions_app.record.change import Change


@dataclass(frozen=True, slots=True, kw_only=True)
class LongResult:
    """A result whose content is on disk already, before the lock of its session is taken."""

    text: str
    content_id: str
    kind: Kind
    size: int
    tokens: int
    characters: int
    """That stay in the conversation."""


def long_result(text: str, characters: int) -> LongResult | None:
    """Keep the content of a result longer than ``characters``; None for any other."""
    if len(text) <= characters:
        return None
    data = bytes_of_text(text)
    return LongResult(
        text=text,
        content_id=put_content(data),
        kind=kind_of_text(data),
        size=len(data),
        tokens=estimate_text(text),
        characters=characters,
    )


def write_result(
    record: Change, part_id: str, *, output: str | None, error: str | None, long: LongResult | None
) -> str:
    """Write the result of a tool call, as ``long_result`` has it if it is long; returns what stays in the conversation."""
    said = (output if error is None else error) or ""
    kept = said if long is None else keep_long_result(record, part_id, long)
    result = {"output": kept, "error": None} if error is None else {"output": None, "error": kept}
    message_store.finish_tool(record, part_id, **result)
    return kept


def keep_long_result(record: Change, part_id: str, result: LongResult) -> str:
    """Write the reference to the whole; returns what stays, which names it."""
    file_id = add_file(
        record,
        content_id=result.content_id,
        path=f"{OUTPUTS}{part_id}{result.kind.suffixes[0]}",
        file_type=result.kind.name,
        token_count=result.tokens,
        size=result.size,
    )
    return shorten_output(result.text, result.characters, file_id=file_id)
