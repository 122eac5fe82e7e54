"""Claude Code: one session as JSON Lines, with its sub-agents in the same file or in files beside it.

The format is not documented; the rules here are read off real files of the versions 1.0 to 2.1. An answer of the model
is cut into one record per content block, all with the same ``message.id`` and, until the last one, with preliminary usage.
Every record is kept: as a message, or as a ``DataPart`` labelled ``claude_code:<record type>`` on the message before it.
A question whose ``parentUuid`` names an earlier message begins a branch there, and so does another answer to a question.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from pathlib import PurePath
from typing import Any

from mnesis_core.errors import fill, gettext_noop
from mnesis_core.llm.interface import Source as Origin
from mnesis_core.llm.interface import Usage
from mnesis_core.messages import (
    CitationPart,
    CompactionMarkerPart,
    DataPart,
    ProviderPart,
    ProviderToolPart,
    ReasoningPart,
    TextPart,
    ToolPart,
)
from mnesis_core.transcripts.building import (
    BRANCHES,
    CallPlace,
    MessageDraft,
    Tally,
    TranscriptDraft,
    data_part,
    family_of,
    label_of,
    make_ids_unique,
    nothing_readable,
    readable_lines,
)
from mnesis_core.transcripts.reading import (
    ByteCount,
    UnreadableRecord,
    count_in,
    dump_json,
    identifier,
    list_in,
    load_json,
    mapping_in,
    one_line,
    read_block,
    rest_of_block,
    text_in,
    time_of,
    without_bytes,
)
from mnesis_core.transcripts.values import (
    ROOT,
    LinkKind,
    NamedSource,
    ParentLink,
    ParseResult,
    Progress,
    Source,
    Transcript,
)

FORMAT, PROVIDER = "claude_code", "anthropic"
_OPAQUE = ("thinking", "redacted_thinking")
# Units of a place in a source, in words.
_PLACES = {"page_number": "pages", "char_index": "characters", "block_index": "blocks"}
_LAUNCHING_TOOLS = ("Task", "Agent")
# Record type to the field with the title; later types take precedence.
_TITLES = {"summary": "summary", "ai-title": "aiTitle", "custom-title": "customTitle"}
_LABELS = {"cwd": "cwd", "gitBranch": "git_branch", "version": "version", "slug": "slug", "agentId": "agent_id"}
_LONG_ENOUGH = 16  # A shorter text inside another one may be a coincidence.
_COMPANION = re.compile(r"agent-[^/\\]+\.jsonl(\.gz)?")
_COMPACTION_AGENT = "acompact"
# Every record of Claude Code has at least one of these fields.
_MARKS = ("uuid", "parentUuid", "sessionId", "leafUuid", "snapshot")
_ELSEWHERE = gettext_noop("messages name a parent that is not before them in the file; they continue the one before")
_FROM_PROGRESS = gettext_noop("sub-agents are also told again as children, out of their progress records")


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    call_id: str
    prompt: str
    description: str


class Conversation(TranscriptDraft):
    def __init__(self, tally: Tally) -> None:
        super().__init__(tally)
        self.session_ids: list[str] = []
        self.agent_id = ""
        self.prompt = ""  # The user's first text; a sub-agent's is the prompt of its launch.
        self.first_uuid = ""
        self.parent_uuids: list[str] = []
        # Record uuid to the message that it became or stands behind; none before the first message.
        self.message_of: dict[str, MessageDraft | None] = {}
        self.launches: list[Launch] = []
        self.agents: dict[str, str] = {}  # Agent id to the tool call that launched it, if a record names it.
        self.derived: dict[str, Conversation] = {}  # Agent id to what progress records hold of it.
        self._answers: dict[str, MessageDraft] = {}
        self._boundary: dict[str, Any] = {}
        self._compacted = 0
        self._title_rank = -1

    def take(self, raw: str, record: dict[str, Any]) -> None:
        before = self.last
        self.saw(time_of(record.get("timestamp")))
        session_id = text_in(record, "sessionId")
        if session_id and session_id not in self.session_ids:
            self.session_ids.append(session_id)
        for field, label in _LABELS.items():
            if label not in self.labels and text_in(record, field):
                self.labels[label] = one_line(text_in(record, field), 400)
        self.first_uuid = self.first_uuid or text_in(record, "uuid")
        parent = text_in(record, "parentUuid")
        if parent and parent not in self.message_of:
            self.parent_uuids.append(parent)
        content = mapping_in(record, "message").get("content")
        kind = record.get("type")
        if kind == "assistant" and isinstance(content, str | list):
            self._assistant(record, content)
        elif kind == "user" and content and isinstance(content, str | list):
            self._user(raw, record, content)
        else:
            self._other(raw, record)
        # A record that is no message stands where its parent says, wherever it is kept.
        if uuid := text_in(record, "uuid"):
            is_message = self.last is not before or kind == "assistant"
            self.message_of[uuid] = self.last if is_message else self.message_of.get(parent, self.last)

    def hang_on(self, owner: Conversation, message: MessageDraft | None = None, call_id: str = "") -> None:
        is_compaction = self.agent_id.startswith(_COMPACTION_AGENT)
        self.parent = ParentLink(
            kind=LinkKind.COMPACTION if is_compaction else LinkKind.SUB_AGENT,
            transcript_id=owner.external_id,
            message_id=message.external_id if message else "",
            tool_call_id=identifier(call_id) if call_id else "",
        )

    def _assistant(self, record: dict[str, Any], content: str | list[Any]) -> None:
        message = mapping_in(record, "message")
        message_id = text_in(message, "id")
        known = self._answers.get(message_id) if message_id else None
        if known is not None and known is self.last:
            draft = known
        else:
            if known is not None:
                # Two messages with the numbers of one call would count it twice; the later record has the final ones.
                known.usage = None
                self.tally.note(
                    gettext_noop("answers are interrupted by other messages; the usage stands on their last part")
                )
            draft = self._answers[message_id] = self._draft(record, "assistant")
            self.add(draft, continues=self._start(record, "assistant"))
        draft.usage = usage_of(message.get("usage")) or draft.usage
        draft.finish_reason = one_line(text_in(message, "stop_reason"), 64) or draft.finish_reason
        draft.model = one_line(text_in(message, "model"), 100) or draft.model
        if draft.model and not draft.model.startswith("<"):
            self.model = draft.model
        if isinstance(content, str):
            draft.parts.append(TextPart(text=content))
            draft.records.append(_without_content(record))
            return
        rests = [self._block(draft, record, index, block) for index, block in enumerate(content)]
        draft.records.append(_without_content(record, rests))

    def _draft(self, record: dict[str, Any], role: Any) -> MessageDraft:
        return MessageDraft(
            external_id=identifier(text_in(record, "uuid")), role=role, created_at=time_of(record.get("timestamp"))
        )

    def _start(self, record: dict[str, Any], role: str) -> str:
        """Return what a message continues, unless it is the one before: then it is empty."""
        parent = text_in(record, "parentUuid")
        if parent and parent not in self.message_of and record.get("isSidechain") is not True:
            self.tally.note(_ELSEWHERE)
        start = self.message_of.get(parent, self.last)
        # An answer with several calls goes on behind the result of any; only a question is answered twice.
        if start is self.last or (role == "assistant" and (start is None or start.role == "assistant")):
            return ""
        self.tally.note(BRANCHES)
        return ROOT if start is None else start.external_id

    def _block(self, draft: MessageDraft, record: dict[str, Any], index: int, block: Any) -> Any:
        """Add one content block to a message, and return what its parts do not hold."""
        kind = text_in(block, "type")
        if kind == "text" and isinstance(block.get("text"), str):
            sources = list_in(block, "citations")
            draft.parts += [TextPart(text=block["text"]), *map(_citation, sources)]
            return _without(block, "text", "citations") if sources else _without(block, "text")
        if kind in _OPAQUE and (kind != "thinking" or isinstance(block.get("thinking"), str)):
            if text_in(block, "thinking"):
                draft.parts.append(ReasoningPart(text=block["thinking"]))
            is_signed = kind != "thinking" or isinstance(block.get("signature"), str)
            if not is_signed:
                return _without(block, "thinking")
            draft.parts.append(ProviderPart(provider=PROVIDER, kind=kind, data=dump_json(block)))
            return _only_kind(block)
        if kind.endswith("tool_use"):
            return self._call(draft, record, index, block)
        if _is_result(block) and self._result(block, time_of(record.get("timestamp"))):
            return _without_texts(block)
        if (media := read_block(block)) is not None:
            draft.show(media)
            return rest_of_block(block)
        draft.parts.append(data_part(FORMAT, kind or "block", block))
        return _only_kind(block)

    def _call(self, draft: MessageDraft, record: dict[str, Any], index: int, block: dict[str, Any]) -> Any:
        given = block.get("input", {})
        call_id = text_in(block, "id") or f"{text_in(record, 'uuid')}:{index}"
        name, id = one_line(text_in(block, "name"), 200) or "unknown", identifier(call_id)
        arguments = given if isinstance(given, str) else dump_json(given)
        self.tally.note(gettext_noop("tool inputs are written again as compact JSON"))
        if block["type"] != "tool_use":
            data = dump_json({"call": _without(block, "id", "name", "input")})
            ran = ProviderToolPart(provider=PROVIDER, tool_name=name, tool_call_id=id, input=arguments, data=data)
            self.call(draft, ran, call_id)
            return _without(block, "input")
        at = time_of(record.get("timestamp"))
        part = ToolPart(tool_name=name, tool_call_id=id, input=arguments, started_at=at)
        self.call(draft, part, call_id)
        if part.tool_name in _LAUNCHING_TOOLS:
            launch = Launch(call_id=call_id, prompt=text_in(given, "prompt"), description=text_in(given, "description"))
            self.launches.append(launch)
        return _without(block, "input") if part.tool_name == block.get("name") else block

    def _user(self, raw: str, record: dict[str, Any], content: str | list[Any]) -> None:
        blocks = [{"type": "text", "text": content}] if isinstance(content, str) else content
        at = time_of(record.get("timestamp"))
        places = [(block, self._result(block, at)) for block in blocks if _is_result(block)]
        draft = self._spoken(record, [block for block in blocks if not _is_result(block)])
        target = draft or next((place.message for _, place in places if place), None)
        if target is None:
            self._orphan(raw)
            return
        for block, place in places:
            if place is None:
                self._orphan(dump_json(block))
        rests = None if isinstance(content, str) else [_without_texts(block) for block in content]
        target.records.append(_without_content(record, rests))
        answers = [(block, place) for block, place in places if place]
        if "toolUseResult" not in record:
            return
        extras = record["toolUseResult"]
        call_id = text_in(answers[0][0], "tool_use_id") if answers else ""
        if call_id and text_in(extras, "agentId"):
            self.agents.setdefault(text_in(extras, "agentId"), call_id)
        if answers and not _says_more(extras, answers):
            self.tally.note(gettext_noop("toolUseResult fields that only repeat the result are not stored again"))
            return
        owner = answers[0][1].message if answers else target
        # A picture that a tool read stands there once more.
        extras = without_bytes(
            extras, {encoded: source for block, _ in answers for encoded, source in _bytes_in(block)}
        )
        owner.parts.append(data_part(FORMAT, "toolUseResult", {"tool_use_id": call_id, "toolUseResult": extras}))

    def _orphan(self, text: str) -> None:
        self.tally.note(gettext_noop("tool results without a call are kept as data"))
        self.attach(DataPart(label=label_of(FORMAT, "tool_result"), text=text))

    def _spoken(self, record: dict[str, Any], blocks: list[Any]) -> MessageDraft | None:
        if not blocks:
            return None
        draft = self._draft(record, "user")
        draft.is_summary = record.get("isCompactSummary") is True
        compacted = sum(len(turn.messages) for turn in self.turns)
        self.add(draft, starts_turn=record.get("isMeta") is not True, continues=self._start(record, "user"))
        if draft.is_summary:
            since_last, self._compacted = compacted - self._compacted, compacted
            boundary, self._boundary = self._boundary, {}
            draft.parts.append(
                CompactionMarkerPart(
                    summary_id=draft.external_id,
                    compacted_message_count=count_in(boundary, "messagesSummarized") or since_last,
                    compacted_token_count=count_in(boundary, "preTokens"),
                )
            )
        for index, block in enumerate(blocks):
            self._block(draft, record, index, block)
        texts = (part.text for part in draft.parts if isinstance(part, TextPart))
        self.prompt = self.prompt or next(texts, "")
        return draft

    def _result(self, block: dict[str, Any], at: datetime | None) -> CallPlace | None:
        output, others = _output_of(block.get("content"))
        call_id = text_in(block, "tool_use_id")
        if text_in(block, "type") != "tool_result":
            # Give a call that the provider ran its result word for word, whatever it holds.
            content = block.get("content")
            failed = block.get("is_error") is True or text_in(content, "type").endswith("_error")
            place = self.answer(call_id, content if isinstance(content, str) else dump_json(content), failed=failed)
            ran = place.message.parts[place.index] if place is not None else None
            if place is not None and isinstance(ran, ProviderToolPart):
                told = {**load_json(ran.data), "result": _without(block, "tool_use_id", "content")}
                place.message.parts[place.index] = replace(ran, data=dump_json(told))
            return place
        place = self.answer(call_id, output, failed=block.get("is_error") is True, at=at)
        if place is None:
            return None
        for other in others:
            if (media := read_block(other, tool_call_id=place.part.tool_call_id)) is not None:
                place.message.show(media)
                continue
            place.message.parts.append(
                data_part(FORMAT, text_in(other, "type") or "block", {"tool_use_id": call_id, "block": other})
            )
        if len(list_in(block, "content")) - len(others) > 1:
            self.tally.note(gettext_noop("tool results of several texts are joined by line breaks"))
        return place

    def _other(self, raw: str, record: dict[str, Any]) -> None:
        kind = text_in(record, "type") or "unknown"
        self.attach(DataPart(label=label_of(FORMAT, kind), text=raw))
        rank = list(_TITLES).index(kind) if kind in _TITLES else -1
        if rank >= max(self._title_rank, 0) and text_in(record, _TITLES[kind]):
            self._title_rank, self.title = rank, one_line(text_in(record, _TITLES[kind]), 200)
        if text_in(record, "subtype") == "compact_boundary":
            self._boundary = mapping_in(record, "compactMetadata")
        progress = mapping_in(record, "data")
        agent_id, inner = text_in(progress, "agentId"), mapping_in(progress, "message")
        if progress.get("type") == "agent_progress" and agent_id and inner.get("type") in ("user", "assistant"):
            self.agents.setdefault(agent_id, text_in(record, "parentToolUseID"))
            # Its notes go nowhere: the progress records themselves are stored as they are, on this conversation.
            derived = self.derived.setdefault(agent_id, Conversation(Tally(FORMAT)))
            derived.agent_id = agent_id
            outer = {field: record[field] for field in ("timestamp", "sessionId", *_LABELS) if field in record}
            derived.take(dump_json(inner), {**outer, "agentId": agent_id, **inner})


def usage_of(usage: Any) -> Usage | None:
    # Anthropic's ``input_tokens`` leaves out what was read from or written to a cache.
    if not isinstance(usage, dict):
        return None
    read, written = count_in(usage, "cache_read_input_tokens"), count_in(usage, "cache_creation_input_tokens")
    return Usage(
        input_tokens=count_in(usage, "input_tokens") + read + written,
        output_tokens=count_in(usage, "output_tokens"),
        cache_read_tokens=read,
        cache_write_tokens=written,
        source=Origin.IMPORTED,
    )


def _output_of(content: Any) -> tuple[str, list[Any]]:
    if isinstance(content, str):
        return content, []
    if not isinstance(content, list):
        return ("" if content is None else dump_json(content)), []
    others = [block for block in content if not _is_text(block)]
    return "\n".join(block["text"] for block in content if _is_text(block)), others


def _citation(source: Any) -> CitationPart:
    address = text_in(source, "url") or text_in(source, "source")
    places = (
        (text_in(source, f"start_{unit}"), text_in(source, f"end_{unit}"), word) for unit, word in _PLACES.items()
    )
    return CitationPart(
        text=text_in(source, "cited_text"),
        title=text_in(source, "title") or text_in(source, "document_title"),
        url=address,
        place=next((f"{word} {first}-{last}" for first, last, word in places if first), ""),
        provider=PROVIDER,
        data=dump_json(source),
    )


def _bytes_in(block: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield the Base64 of each file in a tool's result, with the source of its part."""
    for other in _output_of(block.get("content"))[1]:
        media = read_block(other)
        if media is not None and media.file is not None:
            yield text_in(other["source"], "data"), media.file.source


def _is_text(block: Any) -> bool:
    return text_in(block, "type") == "text" and isinstance(block.get("text"), str)


def _is_result(block: Any) -> bool:
    # Tools that run at the provider have kinds of their own, such as web_search_tool_result.
    return text_in(block, "type").endswith("tool_result")


def _says_more(extras: Any, answers: list[tuple[dict[str, Any], CallPlace]]) -> bool:
    """Return whether the extras hold a text or a number found neither in the results nor in the calls."""
    outputs = [_output_of(block.get("content"))[0].strip() for block, _ in answers]
    known = set(outputs)
    for _, place in answers:
        try:
            given = load_json(place.part.input)
        except UnreadableRecord:
            given = place.part.input
        known.update(leaf.strip() for leaf in _leaves(given) if isinstance(leaf, str))
    return any(not _holds(known, outputs, leaf) for leaf in _leaves(extras))


def _holds(known: set[str], outputs: list[str], leaf: Any) -> bool:
    if not isinstance(leaf, str):
        return not leaf
    text = leaf.strip().removeprefix("Error: ")
    return not leaf or text in known or (len(text) >= _LONG_ENOUGH and any(text in output for output in outputs))


def _leaves(value: Any) -> Iterator[Any]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, dict):
            stack.extend(item.values())
        elif isinstance(item, list):
            stack.extend(item)
        else:
            yield item


def _without(block: dict[str, Any], *fields: str) -> dict[str, Any]:
    return {key: value for key, value in block.items() if key not in fields}


def _only_kind(block: Any) -> dict[str, Any]:
    return {"type": text_in(block, "type")}


def _without_content(record: dict[str, Any], rests: list[Any] | None = None) -> dict[str, Any]:
    message = _without(mapping_in(record, "message"), "content")
    if rests is not None:
        message["content"] = rests
    return {**_without(record, "message", "toolUseResult"), "message": message}


def _without_texts(block: Any) -> dict[str, Any]:
    """Return a block without its texts; the lengths of a result's stay, so that joined ones can be separated again."""
    if _is_text(block):
        return _without(block, "text", "citations") if list_in(block, "citations") else _without(block, "text")
    if not _is_result(block):
        return _only_kind(block) if read_block(block) is None else rest_of_block(block)
    content = block.get("content")
    if not isinstance(content, list):
        return _without(block, "content")
    rests = [
        {**_without(item, "text"), "characters": len(item["text"])} if _is_text(item) else _without_texts(item)
        for item in content
    ]
    return {**block, "content": rests}


def is_companion(name: str) -> bool:
    """Return whether a file beside a session is, by its name, the transcript of a sub-agent."""
    return _COMPANION.fullmatch(PurePath(name).name) is not None


def parse(
    source: Source, *, name: str = "", companions: Sequence[NamedSource] = (), progress: Progress | None = None
) -> ParseResult:
    """A companion that belongs to another session becomes a transcript of its own.

    :raises InvalidRequest: the main file holds no record of Claude Code
    """
    tally, count = Tally(FORMAT), ByteCount(progress)
    main = _read_file(source, name, tally, count)
    if not main.recognised:
        raise nothing_readable(tally, name, main.complaint or "it is empty")
    files = [main]
    for companion in companions:
        file = _read_file(companion.source, companion.name, tally, count)
        tally.read("file")
        if file.recognised or not file.chains()[0].is_empty:
            files.append(file)
        else:
            tally.skip("file", gettext_noop("it is empty"))
    families = _families(files)
    make_ids_unique([chain for family in families for chain in family])
    return ParseResult(transcripts=tuple(_join(family) for family in families), report=tally.report())


class _File:
    def __init__(self, name: str, tally: Tally) -> None:
        self.name = name
        self.recognised = 0
        self.complaint = ""
        self._tally = tally
        self._main = Conversation(tally)
        self._agents: dict[str, Conversation] = {}
        self._side_chain_of: dict[str, str] = {}
        self._current = self._main

    def take(self, line: str) -> None:
        try:
            record = load_json(line)
            if not isinstance(record, dict):
                raise UnreadableRecord(gettext_noop("it is not a JSON object"))
        except UnreadableRecord as error:
            self._tally.read("unreadable")
            self.complaint = self.complaint or f"a line cannot be read, {error}"
            self._tally.note(
                fill(gettext_noop("unreadable lines are kept as text: %(reason)s"), {"reason": str(error)})
            )
            self._current.attach(DataPart(label=label_of(FORMAT, "unreadable"), text=line))
            return
        self._tally.read(text_in(record, "type") or "unknown")
        self.recognised += any(mark in record for mark in _MARKS)
        self.complaint = self.complaint or "a record has neither a uuid nor a sessionId"
        self._current = self._main
        if record.get("isSidechain") is True:
            agent_id = text_in(record, "agentId")
            key = agent_id or self._side_chain(record)
            if key not in self._agents:
                self._agents[key] = Conversation(self._tally)
                self._agents[key].agent_id = agent_id
            self._current = self._agents[key]
        self._current.take(line, record)

    def _side_chain(self, record: dict[str, Any]) -> str:
        # Until version 2.0.30 or so, side chains had no agent's name, only their records' parents.
        uuid, parent = text_in(record, "uuid"), text_in(record, "parentUuid")
        key = self._side_chain_of.get(parent, "") if parent else ""
        if not key and record.get("type") != "user" and self._side_chain_of:
            key = next(reversed(self._side_chain_of.values()))
        self._side_chain_of[uuid] = key or f"side chain {uuid}"
        return self._side_chain_of[uuid]

    def chains(self) -> list[Conversation]:
        """Return all chains, the main one first. An agent's own file has no main chain."""
        agents = list(self._agents.values())
        if self._main.turns or not agents:
            return [self._main, *agents]
        for part in self._main.take_waiting():
            agents[0].attach(part)
        return agents


def _read_file(source: Source, name: str, tally: Tally, count: ByteCount) -> _File:
    file = _File(name, tally)
    for line in readable_lines(source, tally, count):
        if line.strip():
            file.take(line)
    return file


def _families(files: list[_File]) -> list[list[Conversation]]:
    families: list[list[Conversation]] = []
    for file in files:
        chains = file.chains()
        sessions = {session for chain in chains for session in chain.session_ids}
        roots = ((family, set(family[0].session_ids)) for family in families)
        # A file that names no session belongs to the first family.
        family = next((each for each, ids in roots if sessions & ids or not sessions or not ids), None)
        if family is None:
            families.append(family := [])
        family.extend(chains)
        for chain in chains:
            _name(chain, family[0], file.name)
    for family in families:
        known = {chain.agent_id for chain in family}
        found: dict[str, Conversation] = {}
        for chain in family:
            for agent_id, derived in chain.derived.items():
                if agent_id in known or agent_id in found:
                    continue
                found[agent_id] = derived
                chain.tally.note(_FROM_PROGRESS)
                _name(derived, family[0], "")
        family.extend(found.values())
    return families


def _name(chain: Conversation, root: Conversation, file_name: str) -> None:
    stem = PurePath(file_name).name.split(".")[0]
    # A resumed session's file begins with records of the one it goes on from; then its name says which it is.
    session = stem if stem in chain.session_ids else next(iter(chain.session_ids), stem)
    chain.labels = {"session_id": one_line(session, 200), **chain.labels}
    inner = chain.agent_id or (chain.first_uuid if chain is not root else "")
    chain.external_id = identifier(f"{session}/{inner}" if inner else session)


def _join(family: list[Conversation]) -> Transcript:
    root, *children = family
    owner_of = _link(root, children)
    placed, ordered, pending = {id(root)}, [], children  # Where records claim a circle, it is cut at its first chain.
    while pending:
        ready = [child for child in pending if id(owner_of[id(child)]) in placed]
        if not ready:
            ready = pending[:1]
            ready[0].hang_on(root)
        ordered.extend(ready)
        placed.update(id(child) for child in ready)
        pending = [child for child in pending if id(child) not in placed]
    return family_of([root, *ordered])


def _link(root: Conversation, children: list[Conversation]) -> dict[int, Conversation]:
    """Link each child to what launched it, and return the conversation that it hangs on, by the child's ``id()``."""
    family = [root, *children]
    agents = {agent: call for chain in reversed(family) for agent, call in chain.agents.items()}
    launches = [launch for chain in family for launch in chain.launches]
    taken = set(agents.values())
    owner_of = {}
    for child in children:
        call_id = agents.get(child.agent_id, "") if child.agent_id else ""
        if not call_id:
            fitting = (each for each in launches if each.prompt and each.prompt == child.prompt)
            call_id = next((each.call_id for each in fitting if each.call_id not in taken), "")
        taken.add(call_id)
        child.title = next((each.description for each in launches if each.call_id == call_id), "") or child.title
        owner = next((chain for chain in family if call_id in chain.callers and chain is not child), None)
        owner_of[id(child)] = owner or root
        if owner is not None:
            child.hang_on(owner, owner.callers[call_id], call_id)
            continue
        # A compaction's last record names the last record before the compaction as its parent.
        known = [root.message_of.get(uuid) for uuid in child.parent_uuids if uuid in root.message_of]
        child.hang_on(root, known[-1] if known else None)
    return owner_of
