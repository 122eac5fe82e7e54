"""The original of something that left the context, or stands in it shortened: page by page."""

from __future__ import annotations

from itertools import accumulate

from agents_app.tools.family import Found
from compaction_app.queries import load_summary
from files_app.lines import MOST_LINES, read_lines
from files_app.queries import load_file_reference, read_range
from mnesis_core.errors import FileContentNotFound, InvalidRequest
from mnesis_core.file_lines import FileLine
from mnesis_core.messages import FileRefPart, Part, PatchPart, StoredMessage, StoredPart, ToolPart
from mnesis_core.record import FileReference
from mnesis_core.text import LONGEST_CHARACTER
from mnesis_core.visible import excerpt
from sessions_app.queries import load_message, load_messages, load_part

PAGE, LARGEST_PAGE = 8_000, 40_000
"""Characters: enough to read, too little to flood the context."""
LINE = 120
"""Characters of a neighbour that are shown."""


def read(found: Found, *, offset: int, limit: int, first_line: int = 0) -> str:
    """A stretch of a text, ``limit`` characters from ``offset`` on; of a file also from a line on, counted from 1.

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
    """A stretch of a file's content, counted in bytes; of a file that is not kept here, what is known of it."""
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
    """Lines of a file with their numbers, as many as fit into so many characters.

    :raises FileNotText: it has no lines.
    """
    page = read_lines(found.id, first_line=first_line, lines=MOST_LINES, session_id=found.session_id)
    room = min(max(limit, 1), LARGEST_PAGE)
    # The first is shown always: what asks for less than a line would never come further.
    sizes = accumulate(len(line.text) + len(str(line.number)) + 2 for line in page.lines)
    shown = [line for at, (line, size) in enumerate(zip(page.lines, sizes, strict=True)) if at == 0 or size <= room]
    of = "?" if page.total is None else page.total
    if not shown:
        more = "; they are being counted, ask again" if page.total is None else ""
        return f"[no line {first_line}: the file has {of} lines{more}]"
    last = shown[-1].number
    more = f"; read on with first_line={last + 1}" if page.total is None or last < page.total else ""
    return "\n".join([*map(_numbered, shown), f"[lines {shown[0].number} to {last} of {of}{more}]"])


def _numbered(line: FileLine) -> str:
    cut = f" [cut; lcm_read with offset={line.offset} has all of it]" if line.is_cut else ""
    return f"{line.number}: {line.text}{cut}"


def about_file(file: FileReference) -> str:
    """A file's facts and its exploration summary."""
    return (
        f"file {file.id}: {file.path or 'no path'}\ntype {file.file_type}, {file.token_count} tokens, "
        f"SHA-256 {file.content_id}, added {file.created_at:%Y-%m-%d %H:%M} UTC\n{file.exploration_summary}"
    )


def text_of_message(message: StoredMessage) -> str:
    """Everything a message holds; where that are several parts, each under a line with its id."""
    if len(message.parts) == 1:
        return text_of_part(message.parts[0])
    return "\n".join(f"[{stored.id} {stored.part.type}]\n{text_of_part(stored)}" for stored in message.parts)


def text_of_part(stored: StoredPart) -> str:
    """Everything a part holds: of a tool call the input and the whole output, tombstoned or not."""
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
    """The messages before and after one, a line each."""
    before = load_messages(session_id, before=message.seq, limit=1, newest=True)
    after = load_messages(session_id, after=message.seq, limit=1)
    lines = [f"before: {_line(other)}" for other in before] + [f"after: {_line(other)}" for other in after]
    return "\n".join(lines) or "This is the only message."


def place_of(message: StoredMessage) -> str:
    """Which message it is, who said it and when."""
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
