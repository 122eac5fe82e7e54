"""Read the original of what left the context, or stands in it shortened, page by page; and open a summary one step."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import accumulate

from agents_app.tools.memory.reach import Found, find, load_family, wanted_id
from agents_app.tools.registry import ToolContext
from compaction_app.lineage import expand_messages, expand_step
from compaction_app.queries import load_summary
from files_app.lines import MOST_LINES, read_lines
from files_app.queries import load_file_reference, read_range
from mnesis_core.errors import FileContentNotFound, InvalidRequest, PermissionDenied
from mnesis_core.llm.tokens import characters_within, estimate_text
from mnesis_core.messages import FileRefPart, Part, PatchPart, StoredMessage, StoredPart, ToolPart
from mnesis_core.records import FileReference, SummaryRecord
from mnesis_core.text import LONGEST_CHARACTER, excerpt
from sessions_app.conf import session_config
from sessions_app.record.message_queries import load_message, load_messages, load_part
from sessions_app.record.session_queries import load_session, tool_outputs

PAGE, LARGEST_PAGE = 8_000, 40_000  # characters: enough to read, too little to flood the context
LINE = 120  # characters of a neighbour that are shown


def read(found: Found, *, offset: int, limit: int, first_line: int = 0) -> str:
    """Return ``limit`` characters of a text from ``offset`` on; of a file, bytes, or lines from ``first_line`` (1) on.

    :raises InvalidRequest: what has this id holds no text, or no lines.
    """
    if first_line > 0 and found.kind != "file":
        raise InvalidRequest("first_line is for files; offset reads on here", field="first_line")
    match found.kind:
        case "msg":
            message = load_message(found.id, session_id=found.session_id)
            place = f"[{place_of(message)}]\n{neighbours(found.session_id, message)}"
            return f"{_stretch(text_of_message(message), offset, limit)}\n{place}"
        case "part":
            return _stretch(text_of_part(load_part(found.id, session_id=found.session_id)), offset, limit)
        case "sum":
            return _stretch(load_summary(found.id, session_id=found.session_id).text, offset, limit)
        case "file":
            if first_line > 0:
                return read_numbered(found, first_line=first_line, limit=limit)
            return read_file(found, offset=offset, limit=limit)
        case _:
            raise InvalidRequest(f"{found.id} holds no text of its own; lcm_describe tells what it is", field="id")


def read_file(found: Found, *, offset: int, limit: int) -> str:
    size = min(max(limit, LONGEST_CHARACTER), LARGEST_PAGE)
    try:
        stretch = read_range(found.id, offset=max(offset, 0), limit=size, session_id=found.session_id)
    except FileContentNotFound:
        file = load_file_reference(found.id, session_id=found.session_id)
        return _stretch(f"The content is not kept here; what is known of it:\n{about_file(file)}", offset, limit)
    end = stretch.offset + len(stretch.data)
    more = f"; read on with offset={end}" if end < stretch.size else ""
    return f"{stretch.text}\n[bytes {stretch.offset} to {end} of {stretch.size}{more}]"


def read_numbered(found: Found, *, first_line: int, limit: int) -> str:
    """Return numbered lines of a file, as many as fit into ``limit`` characters, but always one.

    :raises FileNotText: it has no lines.
    """
    page = read_lines(found.id, first_line=first_line, lines=MOST_LINES, session_id=found.session_id)
    room = min(max(limit, 1), LARGEST_PAGE)
    # The first line is always shown: a model that asks for less than a line would never get further.
    sizes = accumulate(len(line.text) + len(str(line.number)) + 2 for line in page.lines)
    shown = [line for at, (line, size) in enumerate(zip(page.lines, sizes, strict=True)) if at == 0 or size <= room]
    of = "?" if page.total is None else page.total
    if not shown:
        more = "; they are being counted, ask again" if page.total is None else ""
        return f"[no line {first_line}: the file has {of} lines{more}]"
    last = shown[-1].number
    more = f"; read on with first_line={last + 1}" if page.total is None or last < page.total else ""
    lines = [
        f"{line.number}: {line.text}{f' [cut; lcm_read with offset={line.offset} has all of it]' if line.is_cut else ''}"
        for line in shown
    ]
    return "\n".join([*lines, f"[lines {shown[0].number} to {last} of {of}{more}]"])


def about_file(file: FileReference) -> str:
    return (
        f"file {file.id}: {file.path or 'no path'}\ntype {file.file_type}, {file.token_count} tokens, "
        f"SHA-256 {file.content_id}, added {file.created_at:%Y-%m-%d %H:%M} UTC\n{file.exploration_summary}"
    )


def text_of_message(message: StoredMessage) -> str:
    if len(message.parts) == 1:
        return text_of_part(message.parts[0])
    return "\n".join(f"[{stored.id} {stored.part.type}]\n{text_of_part(stored)}" for stored in message.parts)


def text_of_part(stored: StoredPart) -> str:
    part: Part = stored.part
    match part:
        case ToolPart():
            error = f"\nError: {part.error}" if part.error else ""
            return f"tool {part.tool_name} {part.input}\n{part.output or ''}{error}"
        case FileRefPart():
            about = f"file {part.file_id}: {part.path or 'no path'}, type {part.file_type}, {part.token_count} tokens"
            return f"{about}\n{part.exploration_summary}"
        case PatchPart():
            return f"{', '.join(part.files_changed)}\n{part.unified_diff}"
        case _:
            return str(getattr(part, "text", ""))


def neighbours(session_id: str, message: StoredMessage) -> str:
    before = load_messages(session_id, before=message.seq, limit=1, newest=True)
    after = load_messages(session_id, after=message.seq, limit=1)
    lines = [f"before: {_line(other)}" for other in before] + [f"after: {_line(other)}" for other in after]
    return "\n".join(lines) or "This is the only message."


def place_of(message: StoredMessage) -> str:
    return f"message {message.seq} ({message.id}, {message.role}, {message.created_at:%Y-%m-%d %H:%M} UTC)"


def _line(message: StoredMessage) -> str:
    said = next((text for stored in message.parts if (text := text_of_part(stored).strip())), "")
    return f"message {message.seq} ({message.id}, {message.role}): {excerpt(said, LINE)}"


def _stretch(text: str, offset: int, limit: int) -> str:
    start = min(max(offset, 0), len(text))
    piece = text[start : start + min(max(limit, 1), LARGEST_PAGE)]
    end = start + len(piece)
    if start == 0 and end == len(text):
        return piece
    more = f"; read on with offset={end}" if end < len(text) else ""
    return f"{piece}\n[characters {start} to {end} of {len(text)}{more}]"


PAGE_TOKENS = 4_000  # of one answer: what a small window holds beside everything else
MESSAGES = 50  # read at a time
LEFT_OVER = 64  # tokens of an answer that are kept for the lines around its texts

MAIN_AGENT = (
    "lcm_expand is for sub-agents, since what it returns may fill a context. Delegate with task: say what to look for "
    "and in which summary. lcm_grep with summary_id and lcm_read are yours."
)


def expand_for_sub_agent(context: ToolContext, summary_id: str, *, cursor: int) -> str:
    """Return a page of the sources of a summary, within the sub-agent's allowance of tokens.

    :raises PermissionDenied: the session is no sub-agent's.
    :raises InvalidRequest: the allowance is used up, or the id is no summary's.
    """
    family = load_family(context)
    if not (context.depth or family.line[0].is_sub_agent):
        raise PermissionDenied(MAIN_AGENT)
    found = find(family, wanted_id(summary_id))
    if found.kind != "sum":
        raise InvalidRequest(f"{found.id} is no summary; lcm_read reads it", field="summary_id")
    return expand(found, cursor=cursor, tokens=min(PAGE_TOKENS, _allowance_left(context)))


def expand(found: Found, *, cursor: int, tokens: int) -> str:
    summary = load_summary(found.id, session_id=found.session_id)
    start = max(cursor, 0)
    shown: list[str] = []
    room = tokens - LEFT_OVER
    for id, text in _sources(summary, start):
        size = estimate_text(text)
        if shown and size > room:
            return "\n\n".join([*shown, f"[go on with cursor={start + len(shown)}]"])
        if size > room:
            kept = text[: characters_within(text, max(room, 1))]
            text = f"{kept}\n[cut at {len(kept)} of {len(text)} characters; lcm_read of {id} reads all of it]"
        shown.append(text)
        room -= min(size, room)
    return "\n\n".join(shown) or f"[{summary.id} has no source from {start} on]"


def _sources(summary: SummaryRecord, start: int) -> Iterator[tuple[str, str]]:
    if summary.kind == "condensed":
        for _, source in expand_step(summary)[start:]:
            span = f"messages {source.first_seq} to {source.last_seq}"
            yield source.id, f"{source.kind} summary {source.id} ({span}):\n{source.text}"
        return
    offset: int | None = start
    while offset is not None:
        page = expand_messages(summary, offset=offset, limit=MESSAGES)
        yield from ((message.id, f"{place_of(message)}:\n{text_of_message(message)}") for message in page.messages)
        offset = page.next_offset


def _allowance_left(context: ToolContext) -> int:
    # A call that runs beside this one is counted as a full page, and so is this one, which may have its own page.
    allowance = session_config(load_session(context.session_id).config).delegation.expand_tokens
    calls = tool_outputs(context.session_id, "lcm_expand")
    left = allowance - sum(PAGE_TOKENS if tokens is None else tokens for tokens in calls.values())
    own = PAGE_TOKENS if any(tokens is None for tokens in calls.values()) else 0
    if left + own <= LEFT_OVER:
        raise InvalidRequest(
            f"the allowance of {allowance:,} tokens for lcm_expand is used up. Answer with what you have; "
            "lcm_grep and lcm_read are still there"
        )
    return left + own
