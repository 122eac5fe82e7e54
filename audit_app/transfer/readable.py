"""A session for people to read, as Markdown or HTML, and its memory in the layout of Autobyteus.

A transcript has the messages in order and where the session was compacted: first the path to the end of the chosen branch,
then what other branches say, one after the other; a message says in which of them it is also continued. Texts of the session keep their form, but can
neither look like a heading of ours nor fetch or run anything.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import chain
from typing import Any, assert_never

from django.template.loader import render_to_string
from django.utils.safestring import mark_safe
from markdown_it import MarkdownIt

from compaction_app.facts.queries import every_fact
from compaction_app.queries import list_runs_after, list_summaries, load_summaries
from mnesis_core.context.branches import END, Path, Stretch
from mnesis_core.facts import FactState
from mnesis_core.files.references import given_file
from mnesis_core.messages import (
    CitationPart,
    CompactionMarkerPart,
    DataPart,
    FileRefPart,
    MediaPart,
    Part,
    PatchPart,
    ProviderPart,
    ProviderToolPart,
    ReasoningPart,
    RefusalPart,
    StepFinishPart,
    StepStartPart,
    StoredMessage,
    StoredPart,
    TextPart,
    ToolPart,
    UnknownPart,
)
from mnesis_core.records import RunRecord, SessionRecord, SummaryRecord
from mnesis_core.transcripts.autobyteus import (
    archived_traces,
    episodic_items,
    imported_episodes,
    raw_traces,
    semantic_items,
    turn_id_of,
)
from mnesis_core.turns.requests import joined
from sessions_app.database.threads import snapshot
from sessions_app.pages.formats import format_characters, format_count, format_duration, format_money, format_size
from sessions_app.pages.markdown import MARKDOWN_LIMIT, render_markdown, show_invisible, shown_title
from sessions_app.record.branch_queries import last_seqs, load_branches, path_in
from sessions_app.record.context_queries import load_context_items
from sessions_app.record.message_queries import load_message_rows, load_messages, usage_of

MESSAGES = 20  # messages read at a time: for a transcript each may hold many long texts
PAGE = 200
MOST_NAMED = 10  # branches that leave at one message
SPEAKERS = {"user": "You", "assistant": "Assistant", "system": "System"}
DEEPER = 3  # our own headings are of the first three levels
_MARK = "<!-- entries -->"
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!])")
_TICKS = re.compile("`{3,}")
# A span of code, which stays as it is, or the beginning of a tag or an image.
_CODE_OR_ACTIVE = re.compile(r"(?P<code>(?P<ticks>`+)(?!`).+?(?<!`)(?P=ticks)(?!`))|<(?=[A-Za-z/!?])|!(?=\[)")
# Every text with a heading, a block of code or something active matches; parsing the others would take milliseconds.
_ODD = re.compile(r"[<#]|!\[|`{3}|~{3}|^ *(?:=+|-+)[ \t]*$", re.MULTILINE)
_LEVELS = {"=": "####", "-": "#####"}
_ACTING = {"html_block", "html_inline", "image"}
_LENIENT = MarkdownIt("commonmark", {"html": True, "maxNesting": 24})
_MARKDOWN = MarkdownIt("commonmark", {"html": False, "maxNesting": 24})


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    label: str
    text: str
    language: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Block:
    """A piece of a message or of a compaction: prose in Markdown, or passages under a title."""

    prose: str = ""
    title: str = ""
    facts: tuple[str, ...] = ()
    passages: tuple[Passage, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    heading: str
    at: datetime | None
    facts: tuple[str, ...]
    blocks: tuple[Block, ...]
    seq: int | None = None  # empty for a compaction
    role: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Opening:
    title: str
    facts: tuple[tuple[str, str], ...]
    system_prompt: str


def opening_of(session: SessionRecord) -> Opening:
    labels = ", ".join(f"{key}: {value}" if value else key for key, value in session.labels.items())
    facts = {
        "Session": session.id,
        "Model": session.model,
        "Began": format_time(session.created_at),
        "Last changed": format_time(session.updated_at),
        "Messages": f"{session.message_seq:,}",
        "Branches": f"{session.branch_seq + 1:,}; {session.branch} is chosen, and comes first"
        if session.branch_seq
        else "",
        "Labels": show_invisible(labels),
        "Kind": "temporary chat" if session.is_temporary else "",
        "Comes from": "" if session.origin == "chat" else session.origin,
    }
    return Opening(
        title=shown_title(session.title),
        facts=tuple((name, value) for name, value in facts.items() if value),
        system_prompt=show_invisible(joined((session.assistant_instructions, session.system_prompt))),
    )


def entries_of(session: SessionRecord) -> Iterator[Entry]:
    """Yield the messages and compactions of a session in order, reading ``MESSAGES`` messages at a time."""
    path = path_in(session)
    others: dict[int, int] = {}  # branch -> the message after which it is another one
    leaving: dict[int, list[int]] = defaultdict(list)
    if path is not None:
        branches, ends = load_branches(session.id), last_seqs(session.id)
        left = {stretch.branch: stretch.last_seq for stretch in path.stretches}
        begun = {number: left.get(number, branches[number].after_seq if number else 0) for number in sorted(ends)}
        others = {number: after for number, after in begun.items() if after < ends[number]}
    for number, after in others.items():
        leaving[after].append(number)
    yield from _entries(session.id, path, leaving)
    for number, after in others.items():
        what = f"another continuation of message {after}" if after else "another beginning"
        yield Entry(heading=f"Branch {number}", at=None, facts=(what,), blocks=())
        yield from _entries(session.id, Path((Stretch(number, after + 1, END),)), leaving)


def _entries(session_id: str, path: Path | None, leaving: Mapping[int, Sequence[int]]) -> Iterator[Entry]:
    after = 0
    while messages := load_messages(session_id, after=after, limit=MESSAGES, path=path):
        rows = load_message_rows(session_id, [message.id for message in messages])
        runs = [
            run
            for run in list_runs_after(session_id, after + 1, messages[-1].seq)
            if run.summary_ids or run.pruned_parts or run.state in ("failed", "superseded")
        ]
        for message in messages:
            yield _message_entry(message, rows[message.id], leaving.get(message.seq, ()))
            for run in runs:
                if run.after_message_seq == message.seq:
                    yield _compaction_entry(run, is_tree=path is not None)
        after = messages[-1].seq


def format_time(time: datetime) -> str:
    return f"{time:%-d %B %Y, %H:%M:%S} UTC"


def _message_entry(message: StoredMessage, row: Any, also: Sequence[int]) -> Entry:
    usage = usage_of(row)
    tokens = f"{format_count(usage.tokens_input)} tokens in, {format_count(usage.tokens_output)} out"
    more = f" and {len(also) - MOST_NAMED:,} more" if len(also) > MOST_NAMED else ""
    words = "branch" if len(also) == 1 else "branches"
    facts = (
        show_invisible(row.model),
        tokens if usage.tokens_input is not None or usage.tokens_output is not None else "",
        format_money(usage.cost_micros),
        "summary that it came with" if message.is_summary else "",
        "" if row.outcome in (None, "complete") else f"ended {row.outcome}",
        show_invisible(f"{row.error_code}: {row.error_message or ''}") if row.error_code else "",
        f"also continued in {words} {', '.join(map(str, also[:MOST_NAMED]))}{more}" if also else "",
    )
    return Entry(
        heading=SPEAKERS.get(message.role, message.role),
        at=message.created_at,
        facts=tuple(filter(None, facts)),
        blocks=_blocks(message.parts),
        seq=message.seq,
        role=message.role,
    )


def _blocks(parts: Sequence[StoredPart]) -> tuple[Block, ...]:
    # Imported records that are kept with the parts come in one block at the end.
    said = [_block(stored.part) for stored in parts if not isinstance(stored.part, DataPart)]
    kept = [stored.part for stored in parts if isinstance(stored.part, DataPart)]
    if not kept:
        return tuple(said)
    title = f"{len(kept)} imported record{'s' if len(kept) > 1 else ''}"
    return (*said, Block(title=title, passages=tuple(_passage(show_invisible(one.label), one.text) for one in kept)))


def _block(part: Part) -> Block:
    match part:
        case TextPart():
            return _text(part)
        case ToolPart() | ProviderToolPart():
            return _tool(part)
        case FileRefPart() | MediaPart():
            return _file(part)
        case CitationPart():
            facts = tuple(map(show_invisible, filter(None, (part.url, part.file_id, part.message_id, part.place))))
            words = (_passage("", part.text),) if part.text else ()
            return Block(
                title=f"Source: {show_invisible(part.title) or 'without a title'}", facts=facts, passages=words
            )
        case ReasoningPart() | RefusalPart() | DataPart():
            title = show_invisible(part.label) if isinstance(part, DataPart) else part.type.capitalize()
            return Block(title=title, passages=(_passage("", part.text),))
        case PatchPart():
            files = show_invisible(", ".join(part.files_changed))
            return Block(title="Change to files", facts=(files,), passages=(_passage("", part.unified_diff, "diff"),))
        case ProviderPart() | UnknownPart():
            # No one is to read it here; the session's own export has it word for word.
            title = f"Kept for {show_invisible(part.provider)}" if isinstance(part, ProviderPart) else "Unknown part"
            kind = part.kind if isinstance(part, ProviderPart) else part.type
            return Block(title=title, facts=(show_invisible(kind), format_characters(len(part.data))))
        case CompactionMarkerPart():
            count = f"{part.compacted_message_count:,} messages"
            return Block(title=f"{count} were compacted here by the system this history comes from")
        case StepStartPart() | StepFinishPart():
            return Block(title=f"Step {part.step_index} {'begins' if isinstance(part, StepStartPart) else 'ends'}")
        case _:
            assert_never(part)


def _text(part: TextPart) -> Block:
    given = given_file(part.text)
    if given is None:
        return Block(prose=show_invisible(part.text))
    title = f"File {show_invisible(given.path)}"
    return Block(title=title, facts=(given.file_id,), passages=(_passage("In the message", part.text),))


def _file(part: FileRefPart | MediaPart) -> Block:
    if isinstance(part, MediaPart):
        title, size = (
            f"{part.type.capitalize()} {show_invisible(part.name)}".strip(),
            part.size and format_size(part.size),
        )
        facts = (show_invisible(part.file_id or part.source), show_invisible(part.media_type), size or "")
        found = (_passage("Caption", part.caption),) if part.caption else ()
    else:
        title, size = f"File {show_invisible(part.path)}", part.token_count and f"{part.token_count:,} tokens"
        facts = (show_invisible(part.file_id), show_invisible(part.file_type), size or "")
        summary = part.exploration_summary
        found = (_passage("What was found in it", summary),) if summary else ()
    return Block(title=title, facts=tuple(filter(None, facts)), passages=found)


def _tool(part: ToolPart | ProviderToolPart) -> Block:
    texts: dict[str, str | None] = {"Output": part.output, "Error": part.error}
    if isinstance(part, ToolPart):
        began, ended = part.started_at, part.completed_at
        seconds = (ended - began).total_seconds() if began and ended else None
        pruned = f"out of the context since {format_time(part.compacted_at)}" if part.compacted_at else ""
        facts: tuple[str, ...] = (part.state.value, format_duration(seconds), pruned)
        texts |= {"Output that came late": part.late_output, "What was said to the decision": part.decision_note}
    else:
        facts = (f"run by {show_invisible(part.provider)}",)
    try:
        input = _passage("Input", json.dumps(json.loads(part.input), indent=2, ensure_ascii=False), "json")
    except (ValueError, RecursionError):
        input = _passage("Input", part.input)
    results = [_passage(label, text) for label, text in texts.items() if text is not None]
    title = f"Tool: {show_invisible(part.tool_name) or 'unnamed'}"
    return Block(title=title, facts=tuple(filter(None, facts)), passages=(input, *results))


def _passage(label: str, text: str, language: str = "") -> Passage:
    return Passage(label=label, text=show_invisible(text), language=language)


def _compaction_entry(run: RunRecord, *, is_tree: bool) -> Entry:
    seconds = (run.ended_at - run.started_at).total_seconds() if run.ended_at and run.started_at else None
    facts = (
        f"branch {run.branch}" if is_tree else "",
        run.trigger,
        "" if run.state == "completed" else f"{run.state} {run.error_code or ''}".strip(),
        f"{format_count(run.tokens_before)} to {format_count(run.tokens_after)} tokens"
        if run.tokens_after is not None
        else "",
        f"level {run.level}" if run.level else "",
        f"{run.source_count} sources" if run.source_count else "",
        f"{run.pruned_parts} tool outputs left the context" if run.pruned_parts else "",
        format_duration(seconds),
        format_money(run.cost_micros),
    )
    summaries = load_summaries(run.summary_ids, session_id=run.session_id) if run.summary_ids else []
    return Entry(
        heading="Compaction",
        at=run.ended_at,
        facts=tuple(filter(None, facts)),
        blocks=tuple(map(_summary, summaries)),
    )


def _summary(summary: SummaryRecord) -> Block:
    title = f"Summary of messages {summary.first_seq:,} to {summary.last_seq:,}"
    facts = (summary.id, f"level {summary.level}", f"{summary.token_count:,} tokens", show_invisible(summary.model))
    return Block(title=title, facts=tuple(filter(None, facts)), passages=(_passage("", summary.text),))


def html_pieces(opening: Opening, entries: Iterable[Entry]) -> Iterator[str]:
    # The page fetches and runs nothing; its own style is allowed by its digest.
    style = render_to_string("audit_app/transfer/transcript.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    context = {
        "opening": opening,
        "style": mark_safe(f"<style>{style}</style>"),  # noqa: S308 - our own file
        "policy": f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        "mark": mark_safe(_MARK),  # noqa: S308
    }
    head, _, tail = render_to_string("audit_app/transfer/transcript.html", context).partition(_MARK)
    yield head
    for entry in entries:
        blocks = [
            (block, render_markdown(block.prose) if 0 < len(block.prose) <= MARKDOWN_LIMIT else None)
            for block in entry.blocks
        ]
        context = {"entry": entry, "time": format_time(entry.at) if entry.at else "", "blocks": blocks}
        yield render_to_string("audit_app/transfer/_entry.html", context)
    yield tail


def markdown_pieces(opening: Opening, entries: Iterable[Entry]) -> Iterator[str]:
    yield f"# {_line(opening.title)}\n\n"
    yield "".join(f"- {name}: {_line(value)}\n" for name, value in opening.facts)
    if opening.system_prompt:
        yield f"\n## System prompt\n\n{_fenced(Passage(label='', text=opening.system_prompt))}"
    for entry in entries:
        number = "" if entry.seq is None else f" · message {entry.seq}"
        facts = [format_time(entry.at)] if entry.at else []
        head = f"\n---\n\n## {_line(entry.heading)}{number}\n\n*{_line(' · '.join([*facts, *entry.facts]))}*\n"
        yield head
        for block in entry.blocks:
            if not block.title:
                yield f"\n{_prose(block.prose)}\n"
                continue
            more = f" ({_line(', '.join(block.facts))})" if any(block.facts) else ""
            yield f"\n### {_line(block.title)}{more}\n"
            for passage in block.passages:
                label = f"\n{_line(passage.label)}:\n" if passage.label else ""
                yield f"{label}\n{_fenced(passage)}"


def _fenced(passage: Passage) -> str:
    longest = max((len(ticks) for ticks in _TICKS.findall(passage.text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{passage.language}\n{passage.text}\n{fence}\n"


def _line(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _prose(text: str) -> str:
    """Return foreign Markdown with its headings below ours (those in quotes and lists are no danger), and tags and images as text."""
    if len(text) > MARKDOWN_LIMIT:
        return _fenced(Passage(label="", text=text))
    if not _ODD.search(text):
        return text
    lines = text.split("\n")
    tokens = _MARKDOWN.parse(text)
    code = {at for token in tokens if token.type in ("fence", "code_block") and token.map for at in range(*token.map)}
    escaped = [
        line if at in code else _CODE_OR_ACTIVE.sub(lambda found: found["code"] or f"\\{found[0]}", line)
        for at, line in enumerate(lines)
    ]
    for token in tokens:
        if token.type == "heading_open" and token.map and not token.level:
            first, end = token.map
            if token.markup in _LEVELS:
                # The line below is what makes it a heading; that becomes a blank one.
                escaped[first] = f"{_LEVELS[token.markup]} {escaped[first].lstrip()}"
                escaped[end - 1] = ""
            else:
                deeper = "#" * min(6, len(token.markup) + DEEPER)
                escaped[first] = escaped[first].replace(token.markup, deeper, 1)
    prose = "\n".join(escaped)
    last = tokens[-1] if tokens else None
    if last and last.type == "fence" and last.map and not lines[-1].strip().startswith(last.markup):
        prose += f"\n{last.markup}"  # the text leaves a block of code open, and all that follows would be part of it
    # Lines were escaped one by one; a backslash in the text, or a code span over several lines, can undo that. So this
    # looks for what a reader that lets HTML through would find.
    found = (each for token in _LENIENT.parse(prose) for each in (token, *(token.children or ())))
    return _fenced(Passage(label="", text=text)) if any(each.type in _ACTING for each in found) else prose


def memory_files(session_id: str) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield the memory files of a session in the layout of Autobyteus, from one state of the database: path and lines.

    Read the lines of a file before asking for the next file.
    """

    def line_of(value: dict[str, Any]) -> bytes:
        try:
            return json.dumps(value, ensure_ascii=False).encode() + b"\n"
        except UnicodeEncodeError:
            # A lone surrogate is no UTF-8; every reader of JSON understands it as \uD83D.
            return json.dumps(value).encode() + b"\n"

    with snapshot():
        items = load_context_items(session_id)
        in_context = {item.item_id for item in items if item.item_type == "message"}
        turn_of: dict[str, str] = {}
        files: Mapping[str, Iterable[dict[str, Any]]] = {
            "raw_traces.jsonl": raw_traces(_messages(session_id, turn_of), in_context),
            "raw_traces_archive.jsonl": archived_traces(_messages(session_id, turn_of), in_context),
            # Read last, when the turn of every message is known.
            "episodic.jsonl": chain(
                imported_episodes(_messages(session_id, turn_of)), episodic_items(list_summaries(session_id), turn_of)
            ),
            "semantic.jsonl": semantic_items(
                fact for fact in every_fact(session_id, state=FactState.LIVE) if not fact.is_copy
            ),
        }
        for name, values in files.items():
            yield f"agents/{session_id}/{name}", map(line_of, values)


def _messages(session_id: str, turn_of: dict[str, str]) -> Iterator[StoredMessage]:
    after = 0
    while messages := load_messages(session_id, after=after, limit=PAGE):
        for message in messages:
            turn_of[message.id] = turn_id_of(message)
            yield message
        after = messages[-1].seq
