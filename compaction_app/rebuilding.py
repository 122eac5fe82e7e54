"""Story: the payload of a past model call, made again from the record and compared with its digest (decision 5)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from compaction_app.queries import load_summary_entries
from mnesis_core.assembly import rebuild
from mnesis_core.assembly.manifest import Row, read_manifest
from mnesis_core.context import Prompt
from mnesis_core.dag import ContextEntry, MessageEntry
from mnesis_core.errors import NotFound
from mnesis_core.llm import ToolSpec, read_tools
from mnesis_core.record import CallRecord
from mnesis_core.rendering import digest, render
from sessions_app import queries


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltPayload:
    """What a model was sent, as the record gives it today."""

    payload: dict[str, Any] | None
    """``None`` when the record does not give one."""
    digest: str
    """Of this payload; empty without one."""
    stored_digest: str
    """Of the payload that was sent."""
    problems: tuple[str, ...]
    """What is missing or differs, in words; nothing when the two digests are the same."""

    @property
    def digest_matches(self) -> bool:
        """Whether this is byte for byte what was sent."""
        return self.digest == self.stored_digest


def rebuild_payload(call: CallRecord) -> RebuiltPayload:
    """The payload of a call, whatever was said, pruned, summarised or redescribed since. Never fails."""
    try:
        prompt, problems = _prompt(call)
    except ValueError as error:
        return RebuiltPayload(payload=None, digest="", stored_digest=call.digest, problems=(str(error),))
    except NotFound as error:
        missing = " ".join([error.message, *map(str, error.details.values())])
        return RebuiltPayload(payload=None, digest="", stored_digest=call.digest, problems=(missing,))
    payload = render(prompt)
    found = digest(payload)
    if found == call.digest:
        problems = []
    elif not problems:
        problems = ["everything it names is there, and yet it reads differently: the rules of rendering have changed"]
    return RebuiltPayload(payload=payload, digest=found, stored_digest=call.digest, problems=tuple(problems))


def _prompt(call: CallRecord) -> tuple[Prompt, list[str]]:
    """The prompt, and what of it was not kept.

    :raises ValueError: the manifest is none.
    :raises NotFound: it names something that is not there.
    """
    manifest = read_manifest(call.manifest)
    tools, problems = _tools(call)
    named = {name for row in manifest if row["kind"] == "tools" for name in row["names"]}
    if missing := named - {tool.name for tool in tools}:
        problems.append(f"the descriptions of then are missing of: {', '.join(sorted(missing))}")
    prompt = rebuild(
        manifest,
        _sources(call.session_id, manifest),
        system_prompt=queries.load_session(call.session_id).system_prompt,
        tools=tools,
    )
    return prompt, problems


def _tools(call: CallRecord) -> tuple[Sequence[ToolSpec], list[str]]:
    text = _texts(call).get("tools")
    if text is None:
        return (), []
    try:
        return read_tools(text), []
    except ValueError as error:
        return (), [str(error)]


def _texts(call: CallRecord) -> dict[str, str]:
    """The texts beside the messages, by the names that the call gives them."""
    names = call.parameters.get("texts")
    if not isinstance(names, Mapping):
        return {}
    kept = queries.load_prompt_texts(call.session_id, [str(digest) for digest in names.values()])
    return {name: kept[digest] for name, digest in names.items() if digest in kept}


def _sources(session_id: str, manifest: Sequence[Row]) -> list[ContextEntry]:
    """The messages and summaries that a manifest names."""
    message_ids = [row["id"] for row in manifest if row["kind"] == "message"]
    positions = {row["id"]: row["first_seq"] for row in manifest if row["kind"] == "summary"}
    messages = queries.load_messages_by_ids(message_ids, session_id=session_id)
    entries: list[ContextEntry] = [MessageEntry(position=message.seq, message=message) for message in messages]
    return [*entries, *load_summary_entries(positions, session_id=session_id)] if positions else entries
