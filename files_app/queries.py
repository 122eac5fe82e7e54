"""Reads of file references and of the bytes and lines of files, always of one session or of one owner's sessions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import islice
from time import monotonic
from typing import Any

from django.core.cache import cache
from django.db.models import Max, QuerySet, Sum
from django.utils.translation import gettext_noop

from files_app.contents import content_size, read_content, reading
from files_app.models import FileReference as Row
from files_app.models import ProjectFile
from mnesis_core.context.entries import Picture
from mnesis_core.errors import FileContentNotFound, FileNotText, FileReferenceNotFoundError, InvalidRequest
from mnesis_core.events import MAX_INTEGER
from mnesis_core.files.detection import MARK_BYTES, is_binary, media_type_of
from mnesis_core.files.lines import (
    OVERLAP_BYTES,
    Encoding,
    FileLine,
    FileLines,
    FileSearch,
    LineHit,
    LineIndex,
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
from mnesis_core.files.pictures import AUDIO_FORMATS, FORMATS, MOST_PAGES, MOST_SECONDS, PDF, RENDITION, PictureRule
from mnesis_core.files.source import HEAD_BYTES
from mnesis_core.records import FileRange, FileReference, record_of
from mnesis_core.text import LONGEST_CHARACTER, character_start, encode_text
from sessions_app.assistants.assistant_store import contents_of_assistants
from sessions_app.ownership import is_temporary, owned_by

LINES_SECONDS, LINES_BYTES = 1.5, 1_073_741_824  # the limits of one request for lines; the first window is always read
MOST_LINES, MOST_CHARACTERS = 1_000, 1_000_000
MOST_HITS = 500
STRIDE_BYTES = 1_048_576  # the approximate distance between two places in an index
_CACHE_KEY, _CACHE_SECONDS = "file-lines-1", 604_800


def load_file_reference(file_id: str, *, session_id: str | None = None, owner_id: int | None = None) -> FileReference:
    """:raises FileReferenceNotFoundError: there is no such file there."""
    row = _scope(session_id, owner_id).filter(id=file_id).first()
    if row is None:
        raise FileReferenceNotFoundError(file_id=file_id)
    return _value(row)


def load_file_references(file_ids: Sequence[str], *, session_ids: Sequence[str]) -> dict[str, FileReference]:
    rows = Row.objects.filter(session__deleted_at__isnull=True, session_id__in=session_ids)
    rows = rows.filter(id__in=list(file_ids))
    return {row.id: _value(row) for row in rows}


def find_file_by_content(
    content_id: str, *, session_id: str | None = None, owner_id: int | None = None
) -> FileReference | None:
    """Return the newest reference to this content (SHA-256, 64 hexadecimal digits)."""
    return _newest(session_id, owner_id, content_id=content_id)


def find_file_by_path(path: str, *, session_id: str | None = None, owner_id: int | None = None) -> FileReference | None:
    return _newest(session_id, owner_id, path=path)


def list_contents(session_id: str, *, using: str = "default") -> dict[str, str]:
    """Return each content of a session's files, deleted or not, with a path of it, in order of content ids."""
    rows = Row.objects.using(using).filter(session_id=session_id).order_by("content_id", "-added_seq")
    return dict(rows.values_list("content_id", "path"))


def list_files(
    *, owner_id: int, session_id: str | None = None, query: str = "", before: str | None = None, limit: int = 50
) -> list[FileReference]:
    """Return files of one owner, or of one of their sessions, newest first, before the file ``before``; no renditions.

    Files of temporary chats are left out where no session is named.

    :param query: part of their paths, in any case
    """
    rows = _listed(session_id, owner_id).exclude(file_type=RENDITION)
    if query:
        rows = rows.filter(path__icontains=encode_text(query))
    if before is not None:
        rows = rows.filter(id__lt=before)
    return [_value(row) for row in rows.order_by("-id")[:limit]]


def versions_of(file: FileReference) -> list[FileReference]:
    rows = _scope(file.session_id, None).filter(path=file.path)
    return [_value(row) for row in rows.order_by("added_seq")]


def find_exploration(
    content_id: str, *, file_type: str, explorer: str, model: str = "", prompt_version: str = ""
) -> FileReference | None:
    """Return a file of this content, of any account, that this explorer has explored.

    With ``model``, one that this model has described by this prompt; else one that no model was asked about.
    """
    rows = Row.objects.filter(content_id=content_id, file_type=file_type, exploration__explorer=explorer)
    if model:
        asked = {"model": model, "prompt": prompt_version, "problem": ""}
        rows = rows.filter(**{f"exploration__prose__{name}": value for name, value in asked.items()})
    else:
        rows = rows.filter(exploration__prose__isnull=True)
    row = rows.order_by("-id").first()
    return None if row is None else _value(row)


def contents_of_files(file_ids: Sequence[str], *, owner_id: int) -> dict[str, str]:
    """Return the content of each of these files that is kept here and belongs to this person."""
    rows = _scope(None, owner_id).filter(id__in=list(file_ids), size__isnull=False)
    return dict(rows.values_list("id", "content_id"))


def load_renditions(session_id: str, rule: PictureRule) -> dict[str, Picture]:
    """Return the renditions that a session has under a rule, by the contents of what they show."""
    rows = Row.objects.filter(session_id=session_id, file_type=RENDITION, size__isnull=False).order_by("added_seq")
    found: dict[str, Picture] = {}
    for content_id, size, known in rows.values_list("content_id", "size", "exploration"):
        match known:  # An import may have stored anything.
            case {
                "rendition": {
                    "of": str(source),
                    "rule": rule.name,
                    "media_type": str(kind),
                    "width": int(width),
                    "height": int(height),
                }
            } if kind in FORMATS and 0 < width <= rule.longest and 0 < height <= rule.longest:
                tokens = rule.tokens(width, height)
                found[source] = Picture(
                    content_id=content_id, media_type=kind, width=width, height=height, size=size, tokens=tokens
                )
            case {"rendition": {"of": str(source), "rule": rule.name, "pages": int(pages), "tokens": int(tokens)}} if (
                source == content_id and 0 < pages <= MOST_PAGES and 0 <= tokens <= MAX_INTEGER
            ):
                found[source] = Picture(
                    content_id=source, media_type=PDF, width=0, height=0, size=size, tokens=tokens, pages=pages
                )
            case {
                "rendition": {
                    "of": str(source),
                    "rule": rule.name,
                    "media_type": str(kind),
                    "seconds": int(seconds),
                    "tokens": int(tokens),
                }
            } if kind in AUDIO_FORMATS and source == content_id and 0 < seconds <= MOST_SECONDS:
                if 0 <= tokens <= MAX_INTEGER:
                    found[source] = Picture(
                        content_id=source, media_type=kind, width=0, height=0, size=size, tokens=tokens, seconds=seconds
                    )
    return found


def read_of_session(session_id: str, content_id: str, offset: int, limit: int) -> bytes:
    """Return at most ``limit`` bytes of a content of a session's file, deleted or not.

    :raises FileContentNotFound: no file of the session has it, or it is not kept here.
    """
    if not Row.objects.filter(session_id=session_id, content_id=content_id, size__isnull=False).exists():
        raise FileContentNotFound(content_id=content_id)
    return read_content(content_id, offset, limit)


def find_media_type(file: FileReference) -> str:
    """Return the media type of a file, by its name alone where its content is not kept here."""
    head = b""
    with suppress(FileContentNotFound):
        head = read_content(file.content_id, 0, MARK_BYTES)
    return media_type_of(head, file.path)


def is_waiting(file_id: str) -> bool:
    return Row.objects.filter(id=file_id, exploration_summary__isnull=True).exists()


def bytes_of_person(owner_id: int) -> int:
    """Return the size of an account's files and those of its projects and assistants, each content once."""
    rows = Row.objects.filter(session__owner_id=owner_id, session__deleted_at__isnull=True, size__isnull=False)
    of_projects = ProjectFile.objects.filter(project__owner__user_id=owner_id)
    more = of_projects.exclude(content_id__in=rows.values("content_id"))
    of_assistants = contents_of_assistants(owner_id)
    for found in (rows, more) if of_assistants else ():
        for content_id in found.filter(content_id__in=list(of_assistants)).values_list("content_id", flat=True):
            of_assistants.pop(content_id, None)
    return sum(of_assistants.values()) + sum(
        found.values("content_id").annotate(bytes=Max("size")).aggregate(total=Sum("bytes"))["total"] or 0
        for found in (rows, more)
    )


def kept_contents(session_id: str, *, using: str = "default") -> set[str]:
    """Return the contents of a session's files that were kept here; others were only ever named."""
    rows = Row.objects.using(using).filter(session_id=session_id, size__isnull=False)
    return set(rows.values_list("content_id", flat=True))


def read_range(
    file_id: str, *, offset: int = 0, limit: int, session_id: str | None = None, owner_id: int | None = None
) -> FileRange:
    """Return at most ``limit`` bytes of a file from ``offset`` on, of a session, or of one owner's sessions.

    No UTF-8 character is cut, so the range may begin and end up to three bytes earlier.

    :raises FileReferenceNotFoundError: there is no such file there.
    :raises FileContentNotFound: its content is not kept here.
    :raises InvalidRequest: ``offset`` is negative, or ``limit`` smaller than the longest character (4).
    """
    if offset < 0 or limit < LONGEST_CHARACTER:
        raise InvalidRequest(
            gettext_noop("offset must be at least 0 and limit at least %(most)s"),
            {"most": str(LONGEST_CHARACTER)},
            field="offset",
        )
    file = load_file_reference(file_id, session_id=session_id, owner_id=owner_id)
    size = content_size(file.content_id)
    begin = min(offset, size)
    before = max(0, begin - LONGEST_CHARACTER)
    around = read_content(file.content_id, before, limit + 2 * LONGEST_CHARACTER)
    first = character_start(around, begin - before)
    last = character_start(around, first + limit)
    return FileRange(file=file, data=around[first:last], offset=before + first, size=size)


# Lines of a file: some from a number on, and those that match a pattern. Each request has a time limit.


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
        raise InvalidRequest(gettext_noop("lines are counted from 1 on, and at least one is read"), field="first_line")
    found: list[FileLine] = []
    with _open_text(file_id, session_id, owner_id) as text:
        index = _line_index(text)
        walk = windows(text.read, text.encoding, index.before(first_line), size=text.size)
        here = (line for window in _in_time(walk) if window.after.line >= first_line for line in lines_of(window))
        wanted = (line for line in here if line.number >= first_line) if index.reaches(first_line) else ()
        characters = 0
        for line in islice(wanted, min(lines, MOST_LINES)):
            found.append(line)
            characters += len(line.text)
            if characters >= MOST_CHARACTERS:
                break
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
    wanted, limit = parse_lines(pattern, mode), min(max(limit, 1), MOST_HITS)
    hits: list[LineHit] = []
    with _open_text(file_id, session_id, owner_id) as text:
        place = _place_of(cursor, text)
        walk = windows(
            text.read, text.encoding, place, size=text.size, window_bytes=wanted.window_bytes, overlap=OVERLAP_BYTES
        )
        for window in _in_time(walk):
            found = list(islice(hits_in(window, wanted), limit - len(hits)))
            hits += [hit for hit, _ in found]
            if len(hits) == limit:
                place = found[-1][1]
                break
            place = window.after
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


def _line_index(text: _Text) -> LineIndex:
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


def _in_time(walk: Iterator[Window]) -> Iterator[Window]:
    """Yield windows while a request's time lasts, and at least one."""
    deadline, left = monotonic() + LINES_SECONDS, LINES_BYTES
    for window in walk:
        yield window
        left -= len(window.raw)
        if left < 0 or monotonic() > deadline:
            return


def _place_of(cursor: str | None, text: _Text) -> Place:
    if cursor is None:
        return text.begin
    numbers = cursor.split(".")
    if len(numbers) != 3 or not all(one.isascii() and one.isdecimal() and len(one) < 19 for one in numbers):
        raise InvalidRequest(gettext_noop("cursor must be the next_cursor of the page before"), field="cursor")
    line, offset, inside = map(int, numbers)
    return Place(line=line, offset=max(offset, text.encoding.mark), is_inside=bool(inside))


# Rows.


def _scope(session_id: str | None, owner_id: int | None) -> QuerySet[Any]:
    if session_id is None and owner_id is None:
        raise ValueError("session_id or owner_id is required")
    rows: QuerySet[Any] = Row.objects.filter(session__deleted_at__isnull=True)
    if session_id is not None:
        rows = rows.filter(session_id=session_id)
    return rows if owner_id is None else rows.filter(owned_by(owner_id, "session__"))


def _listed(session_id: str | None, owner_id: int | None) -> QuerySet[Any]:
    rows = _scope(session_id, owner_id)
    return rows.exclude(is_temporary("session__")) if session_id is None else rows


def _newest(session_id: str | None, owner_id: int | None, **where: str) -> FileReference | None:
    rows = _listed(session_id, owner_id).filter(**where)
    # Only time orders files of different sessions.
    row = rows.order_by("-created_at" if session_id is None else "-added_seq", "-id").first()
    return None if row is None else _value(row)


def _value(row: Row) -> FileReference:
    summary = row.exploration_summary
    return record_of(FileReference, row, exploration_summary=summary or "", is_explored=summary is not None)
