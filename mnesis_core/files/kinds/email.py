"""A mail: who wrote what to whom and when, its parts, attachments and first lines."""

from __future__ import annotations

import email
from email.header import decode_header
from email.message import Message

from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown

MOST_BYTES = 33_554_432
MOST_PARTS = 100
FIRST_LINES = 8
HEADER_CHARACTERS = 2_000
BODY_CHARACTERS = 20_000
_HEADERS = ("From", "To", "Cc", "Subject", "Date", "Reply-To")


def explore(source: Source) -> Findings:
    message = email.message_from_bytes(source.head(MOST_BYTES))
    lines = [f"{name}: {_header(message, name)}" for name in _HEADERS if name in message]
    if not lines:
        raise Unreadable("it has neither sender, receiver nor subject")
    leaves = _leaves(message)
    number = f"{MOST_PARTS} parts or more" if len(leaves) == MOST_PARTS else counted(len(leaves), "part")
    lines.append(f"{number}: {listed(part.get_content_type() for part in leaves)}")
    attachments = [
        f"{shown(str(name), characters=60)} ({part.get_content_type()}, {counted(len(_payload(part)), 'byte')})"
        for part in leaves
        if (name := part.get_filename())
    ]
    if attachments:
        lines.append(f"{counted(len(attachments), 'attachment')}: {listed(attachments)}")
    texts = [part for part in leaves if part.get_content_maintype() == "text" and not part.get_filename()]
    plain = [part for part in texts if part.get_content_subtype() == "plain"]
    if first := (plain or texts)[:1]:
        text = _decoded(_payload(first[0])[:BODY_CHARACTERS], first[0].get_content_charset("utf-8"))
        if begins := [shown(line, characters=160) for line in text.splitlines() if line.strip()]:
            lines += ["It begins:", *begins[:FIRST_LINES]]
    return Findings(lines=lines, covered=source.covered_by(MOST_BYTES))


def _header(message: Message, name: str) -> str:
    raw = str(message[name])[:HEADER_CHARACTERS]
    try:
        decoded = "".join(_decoded(data, charset) for data, charset in decode_header(raw))
    except (ValueError, LookupError):
        decoded = raw
    return shown(decoded, characters=200)


def _decoded(data: bytes | str, charset: str | None) -> str:
    if isinstance(data, str):
        return data
    try:
        return data.decode(charset or "latin-1", "replace")
    except LookupError:
        return data.decode("latin-1")


def _leaves(message: Message) -> list[Message]:
    found: list[Message] = []
    waiting = [message]
    while waiting and len(found) < MOST_PARTS:
        part = waiting.pop(0)
        inner = part.get_payload()
        if isinstance(inner, list):
            waiting[:0] = [each for each in inner[:MOST_PARTS] if isinstance(each, Message)]
        else:
            found.append(part)
    return found


def _payload(part: Message) -> bytes:
    payload = part.get_payload(decode=True)
    return payload if isinstance(payload, bytes) else b""
