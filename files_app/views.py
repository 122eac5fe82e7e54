"""The pages of files: all of a person's, and one with what is known of it and its content, stretch by stretch."""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import render
from django.urls import reverse
from django.utils.html import escape
from django.utils.safestring import mark_safe

from files_app.contents import content_size, find_size, read_content
from files_app.downloads import download_whole
from files_app.given_store import list_project_files, load_portrait
from files_app.queries import list_files, load_file_reference, read_lines, versions_of
from mnesis_core.errors import FileNotText, FileReferenceNotFoundError
from mnesis_core.files.detection import BY_NAME, MARK_BYTES, is_text, media_type_of
from mnesis_core.files.lines import FileLine
from mnesis_core.files.pictures import AUDIO_FORMATS, FORMATS
from mnesis_core.records import FileReference
from mnesis_core.text import printable
from sessions_app.assistants.assistant_store import assistant_of, load_assistant
from sessions_app.pages.formats import format_size
from sessions_app.pages.frames import shown_alone
from sessions_app.pages.markdown import LONGEST_LINE, highlight_lines, show_invisible
from sessions_app.pages.shares import shared_view
from sessions_app.pages.transcript import shows_file
from sessions_app.pages.views import number_in, reader_of, signed_in
from sessions_app.record.project_store import load_project
from sessions_app.record.session_queries import load_session, messages_naming, titles_of
from sessions_app.record.shares.sharing import Shared

PAGE = 50
LINES = 200
READINGS = 4
LONGEST_QUERY = 200  # characters
REFERENCES = 20
VERSIONS = 50
# The kinds that have colours, and the lexer of each. A list, so that no name of a file picks any other.
_SAME_NAME = """
    c cpp csharp go html java javascript json markdown php python ruby rust sql toml tsx typescript xml yaml
"""
LEXED = {kind: kind for kind in _SAME_NAME.split()} | {"shell": "bash", "jsonl": "json", "notebook": "json"}
LEADING = 100  # lines before a stretch that are read along, so that a comment or text that began there has its colour
HEX_BYTES = 4_096
HEX_ROW = 16
LARGEST_PICTURE = 25_000_000  # bytes, which are read at once; larger ones are downloaded


@signed_in
def file_list(request: HttpRequest) -> HttpResponse:
    return render(request, "files_app/files.html", _list_context(request))


@signed_in
def file_rows(request: HttpRequest) -> HttpResponse:
    found = _list_context(request)
    response = render(request, "files_app/_file_rows.html", found)
    if found["is_first_page"]:
        search = {name: found[name] for name in ("q", "session") if found[name]}
        response.headers["HX-Replace-Url"] = reverse("files", query=search)
    return response


@signed_in
def file_page(request: HttpRequest, file_id: str) -> HttpResponse:
    file = load_file_reference(file_id, owner_id=reader_of(request))
    versions = versions_of(file)
    number = next(index for index, version in enumerate(versions, 1) if version.id == file.id)
    titles = titles_of([file.session_id], owner_id=reader_of(request))
    shown = list(enumerate(versions, 1))[-VERSIONS:]
    context = {
        "file": file,
        "name": file_name(file),
        "size": file_size(file),
        "title": titles.get(file.session_id, ""),
        "version": number,
        "versions": [(place, version, file_size(version)) for place, version in shown],
        "version_count": len(versions),
    }
    return render(request, "files_app/file.html", context | _content(request, file))


@signed_in
def file_lines(request: HttpRequest, file_id: str) -> HttpResponse:
    file = load_file_reference(file_id, owner_id=reader_of(request))
    return render(request, "files_app/_lines.html", {"lines": _lines(file, _first(request))})


@signed_in
def file_picture(request: HttpRequest, file_id: str) -> HttpResponse:
    """Return a picture or audio by itself. What its bytes say it is counts, never its name: no SVG and no HTML is sent."""
    shown = _shown(load_file_reference(file_id, owner_id=reader_of(request)))
    if shown is None:
        raise FileReferenceNotFoundError(file_id=file_id)
    return shown


def _shown(file: FileReference) -> HttpResponse | None:
    media_type = media_type_of(read_content(file.content_id, 0, MARK_BYTES), "")
    size = content_size(file.content_id)
    if media_type not in (*FORMATS, *AUDIO_FORMATS) or size > LARGEST_PICTURE:
        return None
    return shown_alone(read_content(file.content_id, 0, size), media_type, name=file_name(file))


@shared_view
def shared_file(request: HttpRequest, shared: Shared, file_id: str) -> HttpResponseBase:
    """Return a file that a shared message shows: a picture or audio by itself, anything else as a download."""
    if not shows_file(shared.session.id, file_id, path=shared.path):
        raise FileReferenceNotFoundError(file_id=file_id)
    file = load_file_reference(file_id, session_id=shared.session.id)
    return _shown(file) or download_whole(file)


@signed_in
def file_references(request: HttpRequest, file_id: str) -> HttpResponse:
    file = load_file_reference(file_id, owner_id=reader_of(request))
    found = messages_naming(file.id, session_id=file.session_id, limit=REFERENCES + 1)
    context = {"file": file, "references": found[:REFERENCES], "has_more": len(found) > REFERENCES}
    return render(request, "files_app/_references.html", context)


@signed_in
def project_files(request: HttpRequest, project_id: str) -> HttpResponse:
    """Return the files of a project, as a part of its page."""
    project = load_project(project_id, user_id=reader_of(request))
    files = [(file, format_size(file.size)) for file in list_project_files(project.id, user_id=reader_of(request))]
    return render(request, "files_app/_project_files.html", {"project": project, "files": files})


@signed_in
def assistant_picture(request: HttpRequest, assistant_id: str) -> HttpResponse:
    """Return the picture of the newest version of an assistant that the reader may use."""
    return shown_alone(*load_portrait(load_assistant(assistant_id, user_id=reader_of(request))), name="picture")


@signed_in
def session_picture(request: HttpRequest, session_id: str) -> HttpResponse:
    """Return the picture of the version that a session of the reader began with, whoever may use that now."""
    session = load_session(session_id, owner_id=reader_of(request))
    return shown_alone(*load_portrait(assistant_of(session)), name="picture")


def file_name(file: FileReference) -> str:
    """Return the last part of a file's path, or its id where there is none."""
    path = show_invisible(file.path)
    return path.rstrip("/").rpartition("/")[2] or path or file.id


def file_size(file: FileReference) -> str:
    """Return how large a file is, in words; nothing where its content is not kept here."""
    octets = find_size(file.content_id) if file.size is None else file.size
    return "" if octets is None else format_size(octets)


def _content(request: HttpRequest, file: FileReference) -> dict[str, Any]:
    """Return a content for the page; ``content`` names its form."""
    size = find_size(file.content_id)
    if not size:
        return {"content": "missing" if size is None else "empty"}
    with suppress(FileNotText):
        if file.file_type not in BY_NAME or is_text(file.file_type):
            first = _first(request)
            total = read_lines(file.id, lines=1, session_id=file.session_id).total
            lines = _lines(file, first)
            return {
                "content": "text",
                "lines": lines,
                "total": total,
                "page_lines": LINES,
                "previous": max(1, first - LINES) if first > 1 else None,
                "next": first + LINES if len(lines) == LINES and first + LINES != (total or 0) + 1 else None,
            }
    rest = format_size(HEX_BYTES) if size > HEX_BYTES else ""
    data = read_content(file.content_id, 0, HEX_BYTES)
    rows = []
    for offset in range(0, len(data), HEX_ROW):
        row = data[offset : offset + HEX_ROW]
        left, right = (row[begin : begin + 8].hex(" ").ljust(23) for begin in (0, 8))
        letters = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        rows.append(f"{offset:08x}  {left}  {right}  {letters}")
    return {"content": "bytes", "bytes": "\n".join(rows), "only": rest}


def _lines(file: FileReference, first: int) -> list[dict[str, Any]]:
    leading = min(LEADING if file.file_type in LEXED else 0, first - 1)
    lines: list[FileLine] = []
    wanted: int | None = first - leading
    # One reading gives fewer lines where they are very long, or where its time was over.
    for _ in range(READINGS):
        if wanted is None or len(lines) == LINES + leading:
            break
        found = read_lines(file.id, first_line=wanted, lines=LINES + leading - len(lines), session_id=file.session_id)
        lines += found.lines
        wanted = found.next_line
    texts = [show_invisible(line.text) for line in lines]
    colours = [escape(text) for text in texts]
    if file.file_type in LEXED and all(len(line.text) <= LONGEST_LINE for line in lines):
        html = highlight_lines("\n".join(texts), LEXED[file.file_type])
        colours = [mark_safe(line) for line in html] if len(html) == len(lines) else colours  # noqa: S308 - escaped
    coloured = [
        {"number": line.number, "html": html, "is_cut": line.is_cut} for line, html in zip(lines, colours, strict=True)
    ]
    return coloured[leading:]


def _first(request: HttpRequest) -> int:
    return max(1, number_in(request, "first") or 1)


def _list_context(request: HttpRequest) -> dict[str, Any]:
    owner, query = reader_of(request), request.GET.get("q", "").strip()[:LONGEST_QUERY]
    session_id, cursor = request.GET.get("session", ""), request.GET.get("cursor", "")
    session = load_session(session_id, owner_id=owner) if session_id else None
    files = list_files(
        owner_id=owner, session_id=session_id or None, query=query, before=cursor or None, limit=PAGE + 1
    )
    page = files[:PAGE]
    titles = titles_of({file.session_id for file in page}, owner_id=owner) if page else {}
    return {
        "files": [(file, file_name(file), file_size(file), titles.get(file.session_id, "")) for file in page],
        "next_cursor": page[-1].id if len(files) > PAGE else "",
        "is_first_page": not cursor,
        "q": printable(query),
        "session": session_id,
        "session_title": "" if session is None else session.title,
    }
