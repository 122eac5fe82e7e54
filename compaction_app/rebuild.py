"""The payload of a past model call, made again from the record and compared with its digest (decision 5)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from compaction_app.queries import load_drafts, load_preview_entries, load_summary_entries
from mnesis_core.compaction.requests import SummaryPrompt, parse_prompt, rebuild_file_question, rebuild_question
from mnesis_core.compaction.summarise import draft_text
from mnesis_core.context.assembly import rebuild
from mnesis_core.context.entries import ContextEntry, MessageEntry, Row, SummaryEntry, read_manifest
from mnesis_core.errors import NotFound
from mnesis_core.llm.interface import ToolSpec, read_tools
from mnesis_core.messages import StoredMessage
from mnesis_core.providers.rendering import digest, render
from mnesis_core.records import CallRecord
from sessions_app.record import call_queries, file_port, message_queries, session_queries

Payload = tuple[dict[str, Any], list[str]]  # a payload, and what of it was not kept, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltPayload:
    """What a model was sent, as the record gives it today."""

    payload: dict[str, Any] | None  # None when the record does not give one
    digest: str  # the digest of this payload; empty without one
    stored_digest: str  # the digest of the payload that was sent
    problems: tuple[str, ...]  # what is missing or differs, in words; empty when the two digests are the same

    @property
    def digest_matches(self) -> bool:
        """Return whether this is byte for byte what was sent."""
        return self.digest == self.stored_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSources:
    """What the prompt of a turn's call was made of, as the record gives it today."""

    manifest: list[Row]
    entries: list[ContextEntry]
    system_prompt: str
    tools: Sequence[ToolSpec]
    problems: list[str]  # what was not kept, in words


def rebuild_payload(call: CallRecord, *, sources: PromptSources | None = None) -> RebuiltPayload:
    """Return the payload of a call, whatever was said, pruned, summarised or redescribed since. Never fails.

    ``sources`` are those of the call's prompt, if they were read before.
    """
    try:
        rebuild_it = _PAYLOADS.get(call.purpose)
        if rebuild_it:
            payload, problems = rebuild_it(call)
        else:
            found = sources or load_sources(call)
            prompt = rebuild(found.manifest, found.entries, system_prompt=found.system_prompt, tools=found.tools)
            payload, problems = render(prompt), found.problems
    except ValueError as error:
        return RebuiltPayload(payload=None, digest="", stored_digest=call.digest, problems=(str(error),))
    except NotFound as error:
        missing = " ".join([error.message, *map(str, error.details.values())])
        return RebuiltPayload(payload=None, digest="", stored_digest=call.digest, problems=(missing,))
    rebuilt_digest = digest(payload)
    if rebuilt_digest == call.digest:
        problems = []
    elif not problems:
        problems = ["everything it names is there, and yet it reads differently: the rules of rendering have changed"]
    return RebuiltPayload(payload=payload, digest=rebuilt_digest, stored_digest=call.digest, problems=tuple(problems))


def load_sources(call: CallRecord) -> PromptSources:
    """Return what the prompt of a turn's call was made of.

    :raises ValueError: the manifest is none.
    :raises NotFound: it names something that is not there.
    """
    manifest = read_manifest(call.manifest)
    texts = _texts(call)
    tools: Sequence[ToolSpec] = ()
    problems = []
    try:
        tools = read_tools(texts["tools"]) if "tools" in texts else ()
    except ValueError as error:
        problems.append(str(error))
    named = {name for row in manifest if row["kind"] == "tools" for name in row["names"]}
    if missing := named - {tool.name for tool in tools}:
        problems.append(f"the descriptions of then are missing of: {', '.join(sorted(missing))}")
    return PromptSources(
        manifest=manifest,
        entries=_sources(call.session_id, manifest),
        system_prompt=texts["system"]
        if "system" in texts
        else session_queries.load_session(call.session_id).system_prompt,
        tools=tools,
        problems=problems,
    )


def _summary_payload(call: CallRecord) -> Payload:
    """:raises ValueError: the manifest is none, or the prompt of then was not kept.
    :raises NotFound: it names something that is not there.
    """
    manifest = read_manifest(call.manifest)
    prompt = _prompt(call, manifest)
    messages, summaries = _sources_of_summary(call.session_id, manifest)
    drafts = load_drafts([row["id"] for row in manifest if row["kind"] == "try"], session_id=call.session_id)
    payload = rebuild_question(
        manifest,
        prompt,
        messages=messages,
        summaries=summaries,
        drafts=[text if level == 3 else draft_text(text) for level, text in drafts],
    )
    return payload, []


def _file_payload(call: CallRecord) -> Payload:
    manifest = read_manifest(call.manifest)
    payload = rebuild_file_question(
        manifest, _prompt(call, manifest), read=partial(file_port.read_content, call.session_id)
    )
    return payload, []


def _prompt(call: CallRecord, manifest: Sequence[Row]) -> SummaryPrompt:
    """:raises ValueError: the prompt of then was not kept."""
    version = next((row["id"] for row in manifest if row["kind"] == "prompt"), "")
    text = _texts(call).get("prompt")
    if text is None:
        raise ValueError(f"the prompt {version} of then was not kept")
    return parse_prompt(version.partition(".")[0], text)


_PAYLOADS: dict[str, Callable[[CallRecord], Payload]] = {"summary": _summary_payload, "file": _file_payload}


def register_payload(purpose: str, rebuild: Callable[[CallRecord], Payload]) -> None:
    """Let an app above this one rebuild the calls for a purpose; it registers when Django is ready."""
    _PAYLOADS[purpose] = rebuild


def _sources_of_summary(session_id: str, manifest: Sequence[Row]) -> tuple[list[StoredMessage], list[SummaryEntry]]:
    positions = {row["id"]: place for place, row in enumerate(manifest) if row["kind"] == "summary"}
    # A preview that was applied since is the summary of the same id, with the same text.
    summaries = load_preview_entries(positions, session_id=session_id) if positions else []
    stored = {id: positions[id] for id in positions.keys() - {entry.id for entry in summaries}}
    summaries += load_summary_entries(stored, session_id=session_id)
    ranges = [span for row in manifest if row["kind"] == "messages" for span in row["ranges"]]
    return load_ranges(session_id, ranges), sorted(summaries, key=lambda entry: entry.position)


def load_ranges(session_id: str, ranges: Iterable[Sequence[int]]) -> list[StoredMessage]:
    """Return the messages of ranges, each given by its first and last; one read for each."""
    found = (
        message_queries.load_messages(session_id, after=first - 1, limit=last - first + 1) for first, last in ranges
    )
    return [message for stretch in found for message in stretch]


def _texts(call: CallRecord) -> dict[str, str]:
    """Return the texts that a prompt has besides messages, by the names that the call gives them."""
    names = call.parameters.get("texts")
    if not isinstance(names, Mapping):
        return {}
    kept = call_queries.load_prompt_texts(call.session_id, [str(digest) for digest in names.values()])
    return {name: kept[digest] for name, digest in names.items() if digest in kept}


def _sources(session_id: str, manifest: Sequence[Row]) -> list[ContextEntry]:
    message_ids = [row["id"] for row in manifest if row["kind"] == "message"]
    positions = {row["id"]: row["first_seq"] for row in manifest if row["kind"] == "summary"}
    messages = message_queries.load_messages_by_ids(message_ids, session_id=session_id)
    entries: list[ContextEntry] = [MessageEntry(position=message.seq, message=message) for message in messages]
    return [*entries, *load_summary_entries(positions, session_id=session_id)] if positions else entries
