"""One question about a text that is kept as a file: what the model reads, and how the record rebuilds it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from mnesis_core.compaction.requests import SummaryPrompt, cleaned, failure_of, judge, reply_limit
from mnesis_core.compaction.transcript import piece_limit
from mnesis_core.config import Config
from mnesis_core.files.explore import fitting
from mnesis_core.files.source import encoding_of, shown
from mnesis_core.llm.interface import ModelSpec, Reply, Request
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.text import LONGEST_CHARACTER, character_start, quote_file

# Kinds of files that are prose. Only those whose bytes are the text: anything else would have to be parsed again, by a
# library that may read it differently by then, to say what a model saw.
KINDS = frozenset({"text", "markdown"})
READ_TOKENS = 8_000  # the most that a model reads of a file
READ_BYTES = 131_072  # No text of READ_TOKENS is longer.
TARGET_TOKENS = 300  # What the model is asked to keep to. A shorter text is not asked about.
LONGEST_TOKENS = 2 * TARGET_TOKENS
LINE_CHARACTERS = 1_600  # The rest of a summary is for what was counted.


@dataclass(frozen=True, slots=True, kw_only=True)
class Beginning:
    length: int  # bytes
    text: str  # quoted as data

    @property
    def tokens(self) -> int:
        return estimate_text(self.text)


@dataclass(frozen=True, slots=True, kw_only=True)
class FileQuestion:
    content_id: str
    beginning: Beginning
    prompt: SummaryPrompt
    request: Request

    @property
    def tokens(self) -> int:
        return sum(estimate_text(message["content"]) for message in self.request.payload["messages"])

    @property
    def manifest(self) -> list[dict[str, Any]]:
        return [
            {"kind": "prompt", "id": self.prompt.version, "target": TARGET_TOKENS},
            {"kind": "file", "content_id": self.content_id, "offset": 0, "bytes": self.beginning.length},
        ]


def read_beginning(data: bytes, *, limit: int) -> Beginning:
    """Return as much of a text's first bytes as takes at most ``limit`` tokens quoted; no character is cut."""
    length = _whole(data, min(len(data), READ_BYTES))
    text = _text(data[:length])
    while length and (tokens := estimate_text(text)) > limit:
        # A little below the proportion, so that uneven texts do not take many steps.
        length = _whole(data, min(length - 1, int(length * limit / tokens * 0.98)))
        text = _text(data[:length])
    return Beginning(length=length, text=text)


def question_about(
    content_id: str, data: bytes, *, prompt: SummaryPrompt, spec: ModelSpec, config: Config
) -> FileQuestion | None:
    """Return what to ask about a content that begins with ``data``, or ``None`` where it is too short to be worth it."""
    beginning = read_beginning(data, limit=min(READ_TOKENS, piece_limit(spec, config)))
    if beginning.tokens <= TARGET_TOKENS:
        return None
    payload = _payload(prompt, beginning.text, TARGET_TOKENS)
    request = Request(payload=payload, max_output_tokens=reply_limit(spec, TARGET_TOKENS))
    return FileQuestion(content_id=content_id, beginning=beginning, prompt=prompt, request=request)


def rebuild_question(
    manifest: Sequence[Mapping[str, Any]], prompt: SummaryPrompt, *, read: Callable[[str, int, int], bytes]
) -> dict[str, Any]:
    """Return the payload of a stored question again; ``read`` gives the bytes of a content, from an offset on.

    :raises ValueError: the manifest is not one of a question, or the content is shorter than it says.
    """
    rows = {row["kind"]: row for row in manifest}
    if not {"prompt", "file"} <= rows.keys():
        raise ValueError("the manifest names no prompt or no file")
    file = rows["file"]
    if file["bytes"] > READ_BYTES:
        raise ValueError(f"the manifest names more than the {READ_BYTES:,} bytes that are read of a file")
    data = read(file["content_id"], file["offset"], file["bytes"])
    if len(data) != file["bytes"]:
        raise ValueError(f"the content has {len(data):,} of the {file['bytes']:,} bytes that the manifest names")
    return _payload(prompt, _text(data), rows["prompt"]["target"])


def problem_of(reply: Reply, beginning: Beginning) -> str:
    """Return why a reply may not describe the text, a reason of ``failure_of`` or ``judge``, or an empty text."""
    text = cleaned(reply.text)
    return (
        failure_of(reply)
        or judge(text, source=beginning.text, source_tokens=beginning.tokens, target=LONGEST_TOKENS)
        or ""
    )


def with_description(ordinary: str, reply: Reply, *, alias: str, length: int, size: int) -> str:
    """Return an ordinary summary below a line with a model's description, the model and the bytes that it read."""
    part = f"all {size:,} bytes" if length >= size else f"the first {length:,} of {size:,} bytes"
    said = shown(cleaned(reply.text), characters=LINE_CHARACTERS)
    return fitting([f"Summary by the model {shown(alias)} of {part}: {said}", *ordinary.splitlines()])


def _payload(prompt: SummaryPrompt, text: str, target: int) -> dict[str, Any]:
    return {"messages": prompt.messages(text, target)}


def _text(data: bytes) -> str:
    return quote_file(data.decode(encoding_of(data[:LONGEST_CHARACTER]), "replace"))


def _whole(data: bytes, length: int) -> int:
    """Return ``length``, or as much less as cuts no character."""
    if length == len(data):
        return length
    encoding = encoding_of(data[:LONGEST_CHARACTER])
    if encoding.startswith("utf-8"):
        return character_start(data, length)
    return length - length % (2 if encoding == "utf-16" else 4)
