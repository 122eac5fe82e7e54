"""A session as HTML, as Markdown, and as memory files in the layout of Autobyteus."""

from __future__ import annotations

import base64
import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from django.template.loader import render_to_string
from django.utils.safestring import mark_safe
from markdown_it import MarkdownIt

from audit_app.transfer.readable import Block, Entry, Opening, Passage, format_time
from compaction_app.queries import list_summaries
from mnesis_core.messages import StoredMessage
from mnesis_core.transcripts.autobyteus import archived_traces, episodic_items, raw_traces, semantic_items
from sessions_app.database.threads import snapshot
from sessions_app.pages.markdown import MARKDOWN_LIMIT, render_markdown
from sessions_app.record.context_queries import load_context_items
from sessions_app.record.message_queries import load_messages

_MARK = "<!-- entries -->"


def html_pieces(opening: Opening, entries: Iterable[Entry]) -> Iterator[str]:
    # The page fetches and runs nothing; its own style is allowed by its digest.
    style = render_to_string("audit_app/transcript.css")
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    context = {
        "opening": opening,
        "style": mark_safe(f"<style>{style}</style>"),  # noqa: S308 - our own file
        "policy": f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'",
        "mark": mark_safe(_MARK),  # noqa: S308
    }
    head, _, tail = render_to_string("audit_app/transcript.html", context).partition(_MARK)
    yield head
    for entry in entries:
        blocks = [
            (block, render_markdown(block.prose) if 0 < len(block.prose) <= MARKDOWN_LIMIT else None)
            for block in entry.blocks
        ]
        context = {"entry": entry, "time": format_time(entry.at) if entry.at else "", "blocks": blocks}
        yield render_to_string("audit_app/_entry.html", context)
    yield tail


# Markdown. Texts of the session keep their form, but can neither look like a heading of ours nor fetch anything.

# Our own headings are of the first three levels.
DEEPER = 3
_SPECIAL = re.compile(r"([\\`*_{}\[\]<>#|~!])")
_TICKS = re.compile("`{3,}")
_CODE_SPAN = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_ACTIVE = re.compile(r"<(?=[A-Za-z/!?])|!(?=\[)")
# Every text with a heading, a block of code or something active matches; parsing the others would take milliseconds.
_ODD = re.compile(r"[<#]|!\[|`{3}|~{3}|^ *(?:=+|-+)[ \t]*$", re.MULTILINE)
_LEVELS = {"=": "####", "-": "#####"}
_ACTING = {"html_block", "html_inline", "image"}
_LENIENT = MarkdownIt("commonmark", {"html": True, "maxNesting": 24})
_MARKDOWN = MarkdownIt("commonmark", {"html": False, "maxNesting": 24})


def markdown_pieces(opening: Opening, entries: Iterable[Entry]) -> Iterator[str]:
    yield f"# {_line(opening.title)}\n\n"
    yield "".join(f"- {name}: {_line(value)}\n" for name, value in opening.facts)
    if opening.system_prompt:
        yield f"\n## System prompt\n\n{_fenced(Passage(label='', text=opening.system_prompt))}"
    for entry in entries:
        yield _markdown_entry(entry)


def _markdown_entry(entry: Entry) -> str:
    number = "" if entry.seq is None else f" · message {entry.seq}"
    facts = [format_time(entry.at)] if entry.at else []
    head = f"\n---\n\n## {_line(entry.heading)}{number}\n\n*{_line(' · '.join([*facts, *entry.facts]))}*\n"
    return head + "".join(map(_block, entry.blocks))


def _block(block: Block) -> str:
    if not block.title:
        return f"\n{_prose(block.prose)}\n"
    facts = f" ({_line(', '.join(block.facts))})" if any(block.facts) else ""
    text = f"\n### {_line(block.title)}{facts}\n"
    for passage in block.passages:
        label = f"\n{_line(passage.label)}:\n" if passage.label else ""
        text += f"{label}\n{_fenced(passage)}"
    return text


def _fenced(passage: Passage) -> str:
    longest = max((len(ticks) for ticks in _TICKS.findall(passage.text)), default=2)
    fence = "`" * (longest + 1)
    return f"{fence}{passage.language}\n{passage.text}\n{fence}\n"


def _line(text: str) -> str:
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def _prose(text: str) -> str:
    """Markdown of others: its headings below ours (those in quotes and lists are no danger), tags and images as the signs they are written with."""
    if len(text) > MARKDOWN_LIMIT:
        return _fenced(Passage(label="", text=text))
    if not _ODD.search(text):
        return text
    lines = text.split("\n")
    tokens = _MARKDOWN.parse(text)
    code = {at for token in tokens if token.type in ("fence", "code_block") and token.map for at in range(*token.map)}
    escaped = [line if at in code else _escape_line(line) for at, line in enumerate(lines)]
    for token in tokens:
        if token.type == "heading_open" and token.map and not token.level:
            _lower(escaped, token.markup, *token.map)
    prose = "\n".join(escaped)
    last = tokens[-1] if tokens else None
    if last and last.type == "fence" and last.map and not lines[-1].strip().startswith(last.markup):
        prose += f"\n{last.markup}"  # the text leaves a block of code open, and all that follows would be part of it
    return _fenced(Passage(label="", text=text)) if _acts(prose) else prose


def _acts(text: str) -> bool:
    """Say whether a reader that lets HTML through would find a tag or an image.

    Lines are escaped one by one; a backslash in the text, or a code span over several lines, can undo that.
    """
    tokens = _LENIENT.parse(text)
    return any(each.type in _ACTING for token in tokens for each in (token, *(token.children or ())))


def _escape_line(line: str) -> str:
    end, said = 0, []
    for span in _CODE_SPAN.finditer(line):
        said += [_ACTIVE.sub(r"\\\g<0>", line[end : span.start()]), span[0]]
        end = span.end()
    return "".join([*said, _ACTIVE.sub(r"\\\g<0>", line[end:])])


def _lower(lines: list[str], markup: str, first: int, end: int) -> None:
    if markup in _LEVELS:
        # The line below is what makes it a heading; that becomes a blank one.
        lines[first] = f"{_LEVELS[markup]} {lines[first].lstrip()}"
        lines[end - 1] = ""
        return
    deeper = "#" * min(6, len(markup) + DEEPER)
    lines[first] = lines[first].replace(markup, deeper, 1)


# Memory files in the layout of Autobyteus, read from one state of the database.

PAGE = 200


def memory_files(session_id: str) -> Iterator[tuple[str, Iterator[bytes]]]:
    """Yield the files of one session: path in the memory directory, lines.

    Read the lines of a file before asking for the next file.
    """
    with snapshot():
        items = load_context_items(session_id)
        in_context = {item.item_id for item in items if item.item_type == "message"}
        turn_of: dict[str, str] = {}
        files: Mapping[str, Iterable[dict[str, Any]]] = {
            "raw_traces.jsonl": raw_traces(_messages(session_id, turn_of), in_context),
            "raw_traces_archive.jsonl": archived_traces(_messages(session_id, turn_of), in_context),
            # Read last, when the turn of every message is known.
            "episodic.jsonl": episodic_items(list_summaries(session_id), turn_of),
            "semantic.jsonl": semantic_items(),
        }
        for name, values in files.items():
            yield f"agents/{session_id}/{name}", map(_memory_line, values)


def _messages(session_id: str, turn_of: dict[str, str]) -> Iterator[StoredMessage]:
    after = 0
    while messages := load_messages(session_id, after=after, limit=PAGE):
        for message in messages:
            turn_of[message.id] = message.turn_id or ""
            yield message
        after = messages[-1].seq


def _memory_line(value: dict[str, Any]) -> bytes:
    try:
        return json.dumps(value, ensure_ascii=False).encode() + b"\n"
    except UnicodeEncodeError:
        # A lone surrogate is no UTF-8; every reader of JSON understands it as \uD83D.
        return json.dumps(value).encode() + b"\n"
