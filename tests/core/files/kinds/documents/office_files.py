"""Documents of office programs, as an attacker would change them."""

from __future__ import annotations

import io
import zipfile
from collections.abc import Callable, Mapping


def changed(document: bytes, changes: Mapping[str, Callable[[bytes], bytes]]) -> bytes:
    """The document with some of its parts changed, or added where they are not."""
    target = io.BytesIO()
    with zipfile.ZipFile(io.BytesIO(document)) as read, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as written:
        for name in dict.fromkeys([*read.namelist(), *changes]):
            data = read.read(name) if name in read.namelist() else b""
            written.writestr(name, changes[name](data) if name in changes else data)
    return target.getvalue()


def with_entities(part: bytes) -> bytes:
    """XML whose first text would be 3 GB long, if its entities were followed."""
    entities = "".join(f'<!ENTITY e{at} "{f"&e{at - 1};" * 10}">' for at in range(1, 9))
    declared = f'<!DOCTYPE x [<!ENTITY e0 "{"laugh " * 5}"><!ENTITY f SYSTEM "file:///etc/passwd">{entities}]>'.encode()
    start = part.index(b"?>") + 2
    text = part.index(b"VICTIM")
    return part[:start] + declared + part[start:text] + b"&e8;&f;" + part[text:]


def bomb(part: bytes) -> bytes:
    """XML that is 300 MB long and packs to 300 kB."""
    at = part.rindex(b"</")
    return part[:at] + b" " * 300_000_000 + part[at:]


def mangled(document: bytes) -> bytes:
    """The document with wrong bytes in its largest part."""
    with zipfile.ZipFile(io.BytesIO(document)) as read:
        largest = max(read.infolist(), key=lambda info: info.compress_size)
    at = largest.header_offset + 30 + len(largest.filename) + largest.compress_size // 2
    return document[:at] + b"\xff" * 20 + document[at + 20 :]


OLD = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)
"""How an encrypted document begins."""
