"""What a file of the record is: its kind and size, how it was explored, its other versions, and where it is spoken of."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from files_app.contents import find_size, read_content
from files_app.lines import read_lines
from files_app.queries import load_file_references, versions_of
from mnesis_core.attachments import version_of
from mnesis_core.errors import FileContentNotFound, FileNotText
from mnesis_core.file_manifests import is_file_manifest, read_file_manifest
from mnesis_core.footers import ManifestName
from mnesis_core.record import FileReference
from mnesis_core.text import text_of_bytes
from mnesis_core.visible import excerpt
from sessions_app.queries import load_file_parts, load_line, load_session
from sessions_app.search import Scope, search

MOST_IDS = 50
"""Of one list."""
MOST_MESSAGES = 10
EXCERPT = 160
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
