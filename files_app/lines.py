"""Lines of a file: some from a number on, and those that match a pattern. Each request has a time limit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice
from time import monotonic

from django.core.cache import cache

from files_app.contents import content_size, reading
from files_app.queries import load_file_reference
from mnesis_core.errors import FileNotText, InvalidRequest
from mnesis_core.files.detection import is_binary
from mnesis_core.files.lines import (
    OVERLAP_BYTES,
    Encoding,
    FileLine,
    FileLines,
    FileSearch,
    LineHit,
    LineIndex,
    LinePattern,
    Mode,
    Place,
    Read,
    Window,
    encoding_of,
    hits_in,
    lines_of,
    parse_lines,
    windows,
)
from mnesis_core.files.source import HEAD_BYTES
from mnesis_core.records import FileReference

# The limits of one request; the first window is always read.
SECONDS, BYTES = 1.5, 1_073_741_824
# Of one answer.
MOST_LINES, MOST_CHARACTERS = 1_000, 1_000_000
MOST_HITS = 500
# The approximate distance between two places in an index.
STRIDE_BYTES = 1_048_576
_CACHE_KEY, _CACHE_SECONDS = "file-lines-1", 604_800


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    file: FileReference
    read: Read
    size: int
    encoding: Encoding

    @property
    def begin(self) -> Place:
        return Place(line=1, offset=self.encoding.mark)


def read_lines(
    file_id: str, *, first_line: int = 1, lines: int, session_id: str | None = None, owner_id: int | None = None
) -> FileLines:
    """Return at most ``lines`` lines of a file of a session, or of one owner's sessions.

    :raises FileReferenceNotFoundError: there is no such file there.
    :raises FileContentNotFound: its content is not kept here.
    :raises FileNotText: it has no lines.
    :raises InvalidRequest: ``first_line`` or ``lines`` is smaller than 1.
    """
    if first_line < 1 or lines < 1:
        raise InvalidRequest("lines are counted from 1 on, and at least one is read", field="first_line")
    with _open_text(file_id, session_id, owner_id) as text:
        index = _index(text)
        found = list(_lines(text, index, first_line, min(lines, MOST_LINES))) if index.reaches(first_line) else []
    after = found[-1].number + 1 if found else first_line
    is_end = index.total is not None and after > index.total
    return FileLines(file=text.file, lines=tuple(found), total=index.total, next_line=None if is_end else after)


def search_file(
    file_id: str,
    *,
    pattern: str,
    mode: Mode = "text",
    limit: int = 50,
    cursor: str | None = None,
    session_id: str | None = None,
    owner_id: int | None = None,
) -> FileSearch:
    """Return the next matching lines of a file of a session, or of one owner's sessions; ``cursor`` continues.

    If the request's time ends first, the result has the hits so far, perhaps none.

    :raises FileReferenceNotFoundError: there is no such file there.
    :raises FileContentNotFound: its content is not kept here.
    :raises FileNotText: it has no lines.
    :raises InvalidRequest: the pattern or the cursor is invalid.
    """
    wanted = parse_lines(pattern, mode)
    with _open_text(file_id, session_id, owner_id) as text:
        hits, place = _search(text, wanted, _place(cursor, text), min(max(limit, 1), MOST_HITS))
    return FileSearch(
        file=text.file,
        hits=tuple(hits),
        searched_bytes=min(place.offset, text.size),
        size=text.size,
        next_cursor=f"{place.line}.{place.offset}.{place.is_inside:d}" if place.offset < text.size else None,
    )


@contextmanager
def _open_text(file_id: str, session_id: str | None, owner_id: int | None) -> Iterator[_Text]:
    file = load_file_reference(file_id, session_id=session_id, owner_id=owner_id)
    size = content_size(file.content_id)
    with reading(file.content_id) as read:
        head = read(0, HEAD_BYTES)
        if is_binary(head):
            raise FileNotText(file_id=file_id)
        yield _Text(file=file, read=read, size=size, encoding=encoding_of(head))


def _lines(text: _Text, index: LineIndex, first: int, count: int) -> Iterator[FileLine]:
    walk = windows(text.read, text.encoding, index.before(first), size=text.size)
    wanted = (line for window in _in_time(walk) if window.after.line >= first for line in lines_of(window))
    characters = 0
    for line in islice((line for line in wanted if line.number >= first), count):
        yield line
        characters += len(line.text)
        if characters >= MOST_CHARACTERS:
            return


def _index(text: _Text) -> LineIndex:
    """Return where lines begin, from the cache, or counted as far as the time of a request allows and cached."""
    key = f"{_CACHE_KEY}:{text.file.content_id}"
    known: LineIndex | None = cache.get(key)
    if known is not None and known.is_whole:
        return known
    places, after = ([*known.places], known.after) if known else ([text.begin], text.begin)
    for window in _in_time(windows(text.read, text.encoding, after, size=text.size)):
        after = window.after
        if after.offset - places[-1].offset >= STRIDE_BYTES:
            places.append(after)
    index = LineIndex(places=tuple(places), after=after, is_whole=after.offset >= text.size)
    cache.set(key, index, _CACHE_SECONDS)
    return index


def _search(text: _Text, wanted: LinePattern, place: Place, limit: int) -> tuple[list[LineHit], Place]:
    """Return hits and the place to continue: the end of the file when nothing is left."""
    hits: list[LineHit] = []
    walk = windows(
        text.read, text.encoding, place, size=text.size, window_bytes=wanted.window_bytes, overlap=OVERLAP_BYTES
    )
    for window in _in_time(walk):
        for hit, after in hits_in(window, wanted):
            hits.append(hit)
            if len(hits) == limit:
                return hits, after
        place = window.after
    return hits, place


def _in_time(walk: Iterator[Window]) -> Iterator[Window]:
    """Yield windows while a request's time lasts, and at least one."""
    deadline, left = monotonic() + SECONDS, BYTES
    for window in walk:
        yield window
        left -= len(window.raw)
        if left < 0 or monotonic() > deadline:
            return


def _place(cursor: str | None, text: _Text) -> Place:
    if cursor is None:
        return text.begin
    numbers = cursor.split(".")
    if len(numbers) != 3 or not all(one.isascii() and one.isdecimal() and len(one) < 19 for one in numbers):
        raise InvalidRequest("cursor must be the next_cursor of the page before", field="cursor")
    line, offset, inside = map(int, numbers)
    return Place(line=line, offset=max(offset, text.encoding.mark), is_inside=bool(inside))
