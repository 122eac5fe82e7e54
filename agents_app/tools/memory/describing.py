"""A run in a few lines for a model: its handle, counts and first failures, however many items it has."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from agents_app.map_queries import first_failures
from agents_app.map_queries import load_run as load_map
from agents_app.tools.memory.reach import Found
from agents_app.tools.memory.reading import neighbours, text_of_part
from compaction_app.lineage import describe as describe_node
from compaction_app.lineage import trace_message
from compaction_app.queries import load_run, load_summary
from files_app.contents import find_size, read_content
from files_app.lines import read_lines
from files_app.queries import load_file_reference, load_file_references, versions_of
from mnesis_core.errors import FileContentNotFound, FileNotText
from mnesis_core.files.footers import ManifestName, is_file_manifest, read_file_manifest
from mnesis_core.files.references import version_of
from mnesis_core.maps.values import ItemRecord, OperatorKind, RunRecord, RunState
from mnesis_core.messages import StoredPart, ToolPart
from mnesis_core.records import FileReference, UsageRecord
from mnesis_core.text import excerpt, printable, text_of_bytes
from sessions_app.record.call_queries import load_call
from sessions_app.record.message_queries import load_message, load_part
from sessions_app.record.session_queries import load_children, load_file_parts, load_line, load_session, message_of_part
from sessions_app.record.turn_queries import load_turn
from sessions_app.search.search import Scope, search

FAILURES = 3
LONGEST_ERROR = 300
KINDS = {OperatorKind.LLM: "llm_map", OperatorKind.AGENTIC: "agentic_map"}
_MORE = {
    RunState.PENDING: "It goes on by itself; lcm_describe of its id says how far it is.",
    RunState.RUNNING: "It goes on by itself; lcm_describe of its id says how far it is.",
    RunState.PAUSED: "A person, or a limit of what may be spent, has paused it.",
}


def told(run: RunRecord) -> str:
    """What a run came to, or how far it is."""
    return "\n".join([_head(run), _counts(run), *_output(run), *_failures(run), *_rest(run)])


def _head(run: RunRecord) -> str:
    why = f" ({run.reason})" if run.reason else ""
    return f"{KINDS[run.kind]} {run.id}: {run.state.value}{why}"


def _counts(run: RunRecord) -> str:
    counts = run.counts
    if counts.items is None:
        return "its input is being read"
    return (
        f"items: {counts.items}, completed {counts.completed}, failed {counts.failed}, cancelled {counts.cancelled}, "
        f"left {counts.left}; {counts.tries} tries, {counts.tokens_input} tokens in, {counts.tokens_output} out"
    )


def _output(run: RunRecord) -> list[str]:
    if not run.output_file_id:
        return []
    return [
        f"results: {run.output_file_id}, JSON Lines in the order of the input: "
        '{"item": number, "input": …, "output": …}, or "error" in place of "output"'
    ]


def _failures(run: RunRecord) -> list[str]:
    if not run.counts.failed:
        return []
    failed = first_failures(run.id, limit=FAILURES)
    return ["first failures:", *(f"- {_failure(item)}" for item in failed)]


def _failure(item: ItemRecord) -> str:
    return f"item {item.number}, {item.error_kind or 'error'}: {excerpt(printable(item.error), LONGEST_ERROR)}"


def _rest(run: RunRecord) -> list[str]:
    if run.error_code:
        return [f"{run.error_code}: {excerpt(printable(run.error_message or ''), LONGEST_ERROR)}"]
    return [_MORE[run.state]] if run.state in _MORE else []


# What a file of the record is: its kind and size, how it was explored, its other versions, and where it is spoken of.

"""Of one list."""
MOST_MESSAGES = 10

LARGEST_LIST = 8_388_608
"""Bytes of a list of files that are read: 200,000 ids."""


def describe_file(file: FileReference, offset: int = 0) -> str:
    """A file; of a list of files a page of it, each with what is known of it."""
    size = find_size(file.content_id) if is_file_manifest(file.path) else None
    if size is None:
        return _facts(file)
    named = read_file_manifest(text_of_bytes(read_content(file.content_id, 0, min(size, LARGEST_LIST))))
    entries: list[ManifestName | str] = [*named.manifests, *named.files]
    start = min(max(offset, 0), len(entries))
    page = entries[start : start + MOST_IDS]
    end = start + len(page)
    more = f"; go on with offset={end}" if end < len(entries) else ""
    place = f"[entries {start} to {end} of {len(entries)}{more}]"
    return "\n".join([_facts(file), *_entry_lines(page, file.session_id), place])


def _entry_lines(page: Sequence[ManifestName | str], session_id: str) -> Iterator[str]:
    ids = [entry for entry in page if isinstance(entry, str)]
    line = [kin.id for kin in load_line(session_id, owner_id=load_session(session_id).owner_id)]
    kept = load_file_references(ids, session_ids=line)
    parts = load_file_parts([id for id in ids if id not in kept], session_id=session_id)
    for entry in page:
        if isinstance(entry, ManifestName):
            yield f"- {entry.id}: a list of {entry.count} more"
        elif known := kept.get(entry) or parts.get(entry):
            yield f"- {entry}: {known.path or 'no path'}, type {known.file_type}, {known.token_count} tokens"
        else:
            yield f"- {entry}: only named here; lcm_describe tells more"


def _facts(file: FileReference) -> str:
    version = version_of(file, versions_of(file))
    size = find_size(file.content_id)
    content = "not kept here" if size is None else "kept; lcm_read reads it, lcm_grep with file_id searches in it"
    return (
        f"file {file.id}: {file.path or 'no path'}\n"
        f"type {file.file_type}, {_told(file.size if size is None else size)} bytes, {file.token_count} tokens, "
        f"lines: {_lines(file)}\n"
        f"SHA-256 {file.content_id}, added {file.created_at:%Y-%m-%d %H:%M} UTC to session {file.session_id}\n"
        f"version: {version or 'the only one at this path'}\n"
        f"content: {content}\nexplored: {_explored(file)}\nspoken of in: {_speakers(file)}\n{file.exploration_summary}"
    )


def _lines(file: FileReference) -> str:
    try:
        return _told(read_lines(file.id, lines=1, session_id=file.session_id).total)
    except FileNotText:
        return "none, it is no text"
    except FileContentNotFound:
        return "unknown"


def _explored(file: FileReference) -> str:
    if not file.is_explored:
        return "not yet"
    if file.exploration is None:
        return "not here" if file.exploration_summary else "no"
    problem = file.exploration.get("problem")
    told = f"by {file.exploration.get('explorer')}, covered {file.exploration.get('covered') or 'unknown'}"
    return f"{told}, problem: {excerpt(problem, EXCERPT)}" if problem else told


def _speakers(file: FileReference) -> str:
    """The messages that name a file, newest first."""
    scope = Scope(owner_id=load_session(file.session_id).owner_id, session_id=file.session_id)
    result = search(scope, f'"{file.id}"', limit=MOST_IDS)
    messages = list(dict.fromkeys(hit.message_id for hit in result.hits if hit.message_id))
    more = " and others" if len(messages) > MOST_MESSAGES or result.more else ""
    return f"{', '.join(messages[:MOST_MESSAGES])}{more}" if messages else "none"


def _told(number: int | None) -> str:
    return "unknown" if number is None else f"{number}"


# What a thing of the record is, by its id: where it stands, what stands for it, and which tool leads on.

MOST_IDS = 50
"""Ids of one list."""
LONGEST_TEXT = 8_000
"""Characters of a text that are told with it."""
EXCERPT = 160


def describe(found: Found, *, offset: int = 0) -> str:
    """What something is, as text for a model; of a list of files those from the ``offset``-th on."""
    if found.kind == "file":
        return describe_file(load_file_reference(found.id, session_id=found.session_id), offset)
    return _DESCRIBE.get(found.kind, describe_session)(found)


def describe_summary(found: Found) -> str:
    """A summary: what it stands for, what stands for it, its newest revision and its text."""
    node = describe_node(load_summary(found.id, session_id=found.session_id))
    summary = node.summary
    newest = node.revisions[-1].id
    stale = "\nstale: something below it was revised since" if summary.freshness == "stale" else ""
    later = f"\nnewest revision: {newest}" if newest != summary.id else stale
    return (
        f"{summary.kind} summary {summary.id}, level {summary.level}, depth {summary.depth}, {summary.token_count} tokens, "
        f"for messages {summary.first_seq} to {summary.last_seq} ({summary.message_count} messages)\n"
        f"sources: {_ids([id for _, id in summary.source_ids])}\nparents: {_ids([above.id for above in node.above])}{later}\n"
        f"with all below: {node.cost.summaries} summaries, {node.cost.token_count} tokens\n\n"
        f"{_beginning(summary.text, summary.id)}"
    )


def describe_message(found: Found) -> str:
    """A message: its place, its parts, and what stands for it in the context."""
    message = load_message(found.id, session_id=found.session_id)
    lineage = trace_message(message.id, session_id=found.session_id)
    parts = [f"- {_part_line(stored)}" for stored in message.parts[:MOST_IDS]]
    more = [f"- and {len(message.parts) - MOST_IDS} more"] if len(message.parts) > MOST_IDS else []
    return "\n".join(
        [
            f"message {message.seq} of session {found.session_id}: {message.id}, {message.role}, "
            f"{message.created_at:%Y-%m-%d %H:%M} UTC, about {message.token_estimate} tokens, turn {message.turn_id}",
            _standing(message.id, lineage.in_context),
            f"summarised by: {_ids([node.id for node in lineage.above])}",
            "parts:",
            *parts,
            *more,
            neighbours(found.session_id, message),
        ]
    )


def describe_part(found: Found) -> str:
    """A part: its message, and what became of a tool's output."""
    stored = load_part(found.id, session_id=found.session_id)
    message_id = message_of_part(found.id, session_id=found.session_id)
    return f"part {_part_line(stored)}\nof message {message_id}\nlcm_read with its id gives all of it."


def describe_run(found: Found) -> str:
    """A compaction: how it went and what it wrote."""
    run = load_run(found.id, session_id=found.session_id)
    error = f"\n{run.error_code}: {run.error_message}" if run.error_code else ""
    return (
        f"compaction {run.id}: {run.state}, asked for by {run.trigger}, outcome {run.outcome or 'none yet'}, "
        f"{len(run.tries)} tries\ncontext: {_count(run.tokens_before)} tokens before, {_count(run.tokens_after)} after; "
        f"{run.pruned_parts or 0} tool outputs left it\nsummaries: {_ids(run.summary_ids)}{error}"
    )


def describe_turn(found: Found) -> str:
    """A turn: how it ended and what was said in it."""
    turn = load_turn(found.id, session_id=found.session_id)
    error = f"\n{turn.error_code}: {turn.error_message}" if turn.error_code else ""
    return (
        f"turn {turn.seq} of session {found.session_id}: {turn.id}, {turn.state}, model {turn.model}, "
        f"{_usage(turn.usage)}\nmessages: {_ids(turn.message_ids)}{error}"
    )


def describe_call(found: Found) -> str:
    """A model call: for what, how it ended, what it used."""
    call = load_call(found.id)
    error = f"\n{call.error_code}: {call.error_message}" if call.error_code else ""
    return (
        f"model call {call.id} for a {call.purpose}: {call.state}, model {call.model}, {_usage(call.usage)}\n"
        f"turn {call.turn_id or 'none'}, message {call.message_id or 'none'}{error}"
    )


def describe_session(found: Found) -> str:
    """A session: its parent, its size and what it launched."""
    session = load_session(found.id)
    return (
        f"session {session.id}: {excerpt(session.title, EXCERPT) or 'untitled'}, {session.state}, model {session.model}, "
        f"{session.message_seq} messages in {session.turn_seq} turns\nparent: {session.parent_id or 'none'}\n"
        f"launched or forked from it: {_ids([kin.id for kin in load_children(session.id)])}"
    )


def describe_map(found: Found) -> str:
    """A run of an operator: how far it is, and its first failures."""
    return told(load_map(found.id, session_id=found.session_id))


_DESCRIBE: dict[str, Callable[[Found], str]] = {
    "sum": describe_summary,
    "msg": describe_message,
    "part": describe_part,
    "run": describe_run,
    "map": describe_map,
    "turn": describe_turn,
    "call": describe_call,
}


def _part_line(stored: StoredPart) -> str:
    part = stored.part
    line = f"{stored.id}, {part.type}, about {stored.token_estimate} tokens"
    if isinstance(part, ToolPart):
        line += f", tool {excerpt(part.tool_name, EXCERPT)}, {part.state.value}"
    if isinstance(part, ToolPart) and part.compacted_at is not None:
        line += f", its output is out of context since {part.compacted_at:%Y-%m-%d %H:%M} UTC"
    return f"{line}: {excerpt(text_of_part(stored), EXCERPT)}"


def _standing(message_id: str, in_context: str | None) -> str:
    if in_context is None:
        return "in context: no"
    return "in context: yes" if in_context == message_id else f"in context: {in_context} stands for it"


def _ids(ids: Sequence[str]) -> str:
    more = f" and {len(ids) - MOST_IDS} more" if len(ids) > MOST_IDS else ""
    return f"{', '.join(ids[:MOST_IDS])}{more}" if ids else "none"


def _beginning(text: str, id: str) -> str:
    if len(text) <= LONGEST_TEXT:
        return text
    return f"{text[:LONGEST_TEXT]}\n[{len(text):,} characters; lcm_read of {id} goes on with offset={LONGEST_TEXT}]"


def _usage(usage: UsageRecord) -> str:
    return f"{_count(usage.tokens_input)} tokens in, {_count(usage.tokens_output)} out"


def _count(number: int | None) -> str:
    return "unknown" if number is None else str(number)
