"""Claude Code: one session as JSON Lines, with its sub-agents in the same file or in files beside it.

Every record is kept: what was said and done as messages, everything else as ``DataPart``s labelled
``claude_code:<record type>`` on the message nearest before it. Sub-agents become children, linked to the tool
call that launched them where a record, or the call's prompt, says which one that was.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from mnesis_core.transcripts.building import (
    MessageDraft,
    Tally,
    family_of,
    make_ids_unique,
    nothing_readable,
    readable_lines,
)
from mnesis_core.transcripts.claude_code_records import FORMAT, Conversation
from mnesis_core.transcripts.reading import (
    ByteCount,
    UnreadableRecord,
    identifier,
    load_json,
    one_line,
    text_in,
)
from mnesis_core.transcripts.values import (
    LinkKind,
    NamedSource,
    ParentLink,
    ParseResult,
    Progress,
    Source,
    Transcript,
)

_COMPANION = re.compile(r"agent-[^/\\]+\.jsonl(\.gz)?")
_COMPACTION_AGENT = "acompact"
_MARKS = ("uuid", "parentUuid", "sessionId", "leafUuid", "snapshot")
"""Fields of which every record of Claude Code has at least one."""
_FROM_PROGRESS = "sub-agents are also told again as children, out of their progress records"


def is_companion(name: str) -> bool:
    """Whether a file beside a session is the transcript of one of its sub-agents, by its name."""
    return _COMPANION.fullmatch(PurePath(name).name) is not None


def parse(
    source: Source, *, name: str = "", companions: Sequence[NamedSource] = (), progress: Progress | None = None
) -> ParseResult:
    """Read a session and its sub-agents' files.

    A companion that belongs to another session becomes a transcript of its own. See ``Parser``.

    :raises InvalidRequest: when the main file holds no record of Claude Code.
    """
    tally, count = Tally(FORMAT), ByteCount(progress)
    main = _read_file(source, name, tally, count)
    if not main.recognised:
        raise nothing_readable(tally, name, main.complaint or "it is empty")
    files = [main, *_read_companions(companions, tally, count)]
    families = _families(files)
    make_ids_unique([chain for family in families for chain in family])
    return ParseResult(transcripts=tuple(_join(family) for family in families), report=tally.report())


class _File:
    """The chains of one file."""

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
        """Add one line."""
        try:
            record = load_json(line)
            if not isinstance(record, dict):
                raise UnreadableRecord("it is not a JSON object")
        except UnreadableRecord as error:
            self._tally.read("unreadable")
            self.complaint = self.complaint or f"a line cannot be read, {error}"
            self._current.keep_unreadable(line, str(error))
            return
        self._tally.read(text_in(record, "type") or "unknown")
        self.recognised += any(mark in record for mark in _MARKS)
        self.complaint = self.complaint or "a record has neither a uuid nor a sessionId"
        self._current = self._chain_of(record)
        self._current.take(line, record)

    def _chain_of(self, record: dict[str, Any]) -> Conversation:
        if record.get("isSidechain") is not True:
            return self._main
        agent_id = text_in(record, "agentId")
        return self._agent(agent_id, agent_id) if agent_id else self._agent(self._side_chain(record), "")

    def _side_chain(self, record: dict[str, Any]) -> str:
        # Until version 2.0.30 or so, side chains had no agent's name, only their records' parents.
        uuid, parent = text_in(record, "uuid"), text_in(record, "parentUuid")
        key = self._side_chain_of.get(parent, "") if parent else ""
        if not key and record.get("type") != "user" and self._side_chain_of:
            key = next(reversed(self._side_chain_of.values()))
        self._side_chain_of[uuid] = key or f"side chain {uuid}"
        return self._side_chain_of[uuid]

    def _agent(self, key: str, agent_id: str) -> Conversation:
        if key not in self._agents:
            self._agents[key] = Conversation(self._tally)
            self._agents[key].agent_id = agent_id
        return self._agents[key]

    def chains(self) -> list[Conversation]:
        """All of them; the first one is what the file is about. An agent's own file has no main chain."""
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


def _read_companions(companions: Sequence[NamedSource], tally: Tally, count: ByteCount) -> list[_File]:
    files = []
    for companion in companions:
        file = _read_file(companion.source, companion.name, tally, count)
        tally.read("file")
        if file.recognised or not file.chains()[0].is_empty:
            files.append(file)
        else:
            tally.skip("file", "it is empty")
    return files


def _families(files: list[_File]) -> list[list[Conversation]]:
    """Chains that belong together, each family's root first, ids given."""
    families: list[list[Conversation]] = []
    for file in files:
        chains = file.chains()
        family = next((each for each in families if _is_of(each[0], chains)), None)
        if family is None:
            families.append(family := [])
        family.extend(chains)
        for chain in chains:
            _name(chain, family[0], file.name)
    for family in families:
        family.extend(_derived(family))
    return families


def _is_of(root: Conversation, chains: list[Conversation]) -> bool:
    sessions = {session for chain in chains for session in chain.session_ids}
    return not sessions or not root.session_ids or not sessions.isdisjoint(root.session_ids)


def _name(chain: Conversation, root: Conversation, file_name: str) -> None:
    stem = PurePath(file_name).name.split(".")[0]
    # A resumed session's file begins with records of the one it goes on from; then its name says which it is.
    session = stem if stem in chain.session_ids else next(iter(chain.session_ids), stem)
    chain.labels = {"session_id": one_line(session, 200), **chain.labels}
    inner = chain.agent_id or (chain.first_uuid if chain is not root else "")
    chain.external_id = identifier(f"{session}/{inner}" if inner else session)


def _derived(family: list[Conversation]) -> list[Conversation]:
    """Sub-agents that only progress records tell of; a transcript of their own tells more."""
    known = {chain.agent_id for chain in family}
    found: dict[str, Conversation] = {}
    for chain in family:
        for agent_id, derived in chain.derived.items():
            if agent_id in known or agent_id in found:
                continue
            found[agent_id] = derived
            chain.tally.note(_FROM_PROGRESS)
            _name(derived, family[0], "")
    return list(found.values())


# Which chain hangs where


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    owner: Conversation
    message: MessageDraft | None
    call_id: str = ""


def _join(family: list[Conversation]) -> Transcript:
    root, *children = family
    places = _places(root, children)
    ordered = _in_order(root, children, places)
    for child in ordered:
        child.parent = _link(child, places[id(child)])
    return family_of([root, *ordered])


def _places(root: Conversation, children: list[Conversation]) -> dict[int, _Place]:
    family = [root, *children]
    agents = {agent: call for chain in reversed(family) for agent, call in chain.agents.items()}
    launches = [launch for chain in family for launch in chain.launches]
    taken = set(agents.values())
    places = {}
    for child in children:
        call_id = agents.get(child.agent_id, "") if child.agent_id else ""
        if not call_id:
            call_id = next((each.call_id for each in launches if _fits(each.call_id, each.prompt, child, taken)), "")
        taken.add(call_id)
        child.title = next((each.description for each in launches if each.call_id == call_id), "") or child.title
        places[id(child)] = _place(root, family, child, call_id)
    return places


def _fits(call_id: str, prompt: str, child: Conversation, taken: set[str]) -> bool:
    return call_id not in taken and prompt != "" and prompt == child.prompt


def _place(root: Conversation, family: list[Conversation], child: Conversation, call_id: str) -> _Place:
    for owner in family:
        if call_id in owner.callers and owner is not child:
            return _Place(owner=owner, message=owner.callers[call_id], call_id=call_id)
    # A compaction's last record names the last record before the compaction as its parent.
    known = [root.message_of[uuid] for uuid in child.parent_uuids if uuid in root.message_of]
    return _Place(owner=root, message=known[-1] if known else None)


def _in_order(root: Conversation, children: list[Conversation], places: dict[int, _Place]) -> list[Conversation]:
    """Owners before what hangs on them. Where records claim a circle, it is cut at its first chain."""
    placed, ordered, pending = {id(root)}, [], children
    while pending:
        ready = [child for child in pending if id(places[id(child)].owner) in placed]
        if not ready:
            ready = pending[:1]
            places[id(ready[0])] = _Place(owner=root, message=None)
        ordered.extend(ready)
        placed.update(id(child) for child in ready)
        pending = [child for child in pending if id(child) not in placed]
    return ordered


def _link(child: Conversation, place: _Place) -> ParentLink:
    is_compaction = child.agent_id.startswith(_COMPACTION_AGENT)
    return ParentLink(
        kind=LinkKind.COMPACTION if is_compaction else LinkKind.SUB_AGENT,
        transcript_id=place.owner.external_id,
        message_id=place.message.external_id if place.message else "",
        tool_call_id=identifier(place.call_id) if place.call_id else "",
    )
