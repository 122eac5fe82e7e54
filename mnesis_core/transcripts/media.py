"""Pictures, sounds and documents in transcripts: named by where they are, or with their bytes inside."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote_to_bytes

from mnesis_core.messages import AudioPart, DocumentPart, ImagePart
from mnesis_core.transcripts.reading import mapping_in, one_line, text_in
from mnesis_core.transcripts.values import InlineFile

MediaKind = type[ImagePart | AudioPart | DocumentPart]
_DATA_URL = re.compile(r"data:(?P<type>[^;,]{0,200})(?P<how>(?:;[^;,]{0,200})*),", re.IGNORECASE)
_INLINE = "sha256:"  # begins the source of a part whose bytes come with it, until they are a file of the session


@dataclass(frozen=True, slots=True, kw_only=True)
class Media:
    part: ImagePart | AudioPart | DocumentPart
    file: InlineFile | None = None


def read_media(
    kind: MediaKind, *, encoded: str = "", address: str = "", data: bytes = b"", media_type: str = "", **known: Any
) -> Media | None:
    """Return what a block shows; ``None`` if it names neither bytes nor a place, or its bytes cannot be read.

    :param encoded: its bytes in Base64
    :param address: where it is, or a ``data:`` address that holds its bytes
    :param known: other values of the part
    """
    inside = _DATA_URL.match(address)
    if inside:
        held, address, media_type = address[inside.end() :], "", inside["type"] or media_type
        is_base64 = inside["how"].lower().endswith(";base64")
        encoded, data = (held, b"") if is_base64 else ("", unquote_to_bytes(held))
    if encoded:
        try:
            data = base64.b64decode("".join(encoded.split()), validate=True)
        except (binascii.Error, ValueError):
            return None
    if not data:
        return Media(part=kind(source=address, media_type=media_type, **known)) if address else None
    source = f"{_INLINE}{hashlib.sha256(data).hexdigest()}"
    part = kind(source=source, media_type=media_type, **known | {"size": len(data)})
    return Media(part=part, file=InlineFile(source=source, data=data, media_type=media_type, name=part.name))


def kind_of_media(media_type: str) -> MediaKind:
    return {"image": ImagePart, "audio": AudioPart}.get(media_type.partition("/")[0], DocumentPart)


def read_block(block: Any, **known: Any) -> Media | None:
    """Return what a content block of Anthropic's Messages shows; ``None`` for blocks of other kinds."""
    kinds: dict[str, MediaKind] = {"image": ImagePart, "document": DocumentPart}
    kind, source = kinds.get(text_in(block, "type")), mapping_in(block, "source")
    if kind is None:
        return None
    known |= {"name": one_line(text_in(block, "title"), 200), "media_type": text_in(source, "media_type")}
    match text_in(source, "type"):
        case "base64":
            return read_media(kind, encoded=text_in(source, "data"), **known)
        case "text":
            return read_media(kind, data=text_in(source, "data").encode("utf-8", "surrogatepass"), **known)
        case "url":
            return read_media(kind, address=text_in(source, "url"), **known)
        case "file":
            return read_media(kind, address=text_in(source, "file_id"), **known)
        case _:
            return None


def rest_of_block(block: dict[str, Any]) -> dict[str, Any]:
    """Return a block that ``read_block`` has read, without the bytes."""
    source = {name: value for name, value in block["source"].items() if name != "data"}
    return {**block, "source": source}


def without_bytes(value: Any, known: dict[str, str]) -> Any:
    """Return a JSON value in which the source of a file stands in the place of its bytes: ``known`` has it by their Base64."""
    if isinstance(value, str):
        return known.get(value, value)
    if isinstance(value, dict):
        return {key: without_bytes(item, known) for key, item in value.items()}
    return [without_bytes(item, known) for item in value] if isinstance(value, list) else value
