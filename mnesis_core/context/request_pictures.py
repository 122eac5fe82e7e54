"""The pictures inside a message or a result that a client sent, in the forms of Anthropic's and OpenAI's protocols."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from mnesis_core.errors import InvalidPicture, RemotePicture
from mnesis_core.files.pictures import SentPicture, read_data_url

MOST_PICTURES = 20  # of one message that are shown
MOST_CHARACTERS = 34_000_000  # of one in Base64; larger ones are only downloaded, with the request
DEEPEST = 4  # A picture is in a message, or in the result of a tool in one.
LONGEST_CODED = 200  # characters of Base64 that are shown as such
_CODED = re.compile(r"(?:data:[^,]{0,100};base64,)?[A-Za-z0-9+/=\s]*")
_HOLDERS = ("data", "url", "image_url", "file_data")


def pictures_in(value: Any, depth: int = 0) -> Iterator[SentPicture]:
    """Yield pictures in order, told by their bytes. One at an address is left out, since nothing is fetched."""
    if isinstance(value, list) and depth < DEEPEST:
        for item in value:
            yield from pictures_in(item, depth + 1)
    elif isinstance(value, Mapping) and value.get("type") in ("image", "image_url", "input_image"):
        source, url = value.get("source"), value.get("image_url")
        url = url.get("url") if isinstance(url, Mapping) else url
        if isinstance(source, Mapping):
            url = f"data:;base64,{source.get('data', '')}" if source.get("type") == "base64" else ""
        if isinstance(url, str) and len(url) <= MOST_CHARACTERS:
            with suppress(InvalidPicture, RemotePicture):
                yield read_data_url(url, place="picture")
    elif isinstance(value, Mapping):
        for name in ("content", "output"):
            yield from pictures_in(value.get(name), depth + 1)


def without_bytes(value: Any, depth: int = 0) -> Any:
    """Return a part of a message with the number of characters in place of long Base64, where protocols have it."""
    if isinstance(value, list) and depth < 2 * DEEPEST:
        return [without_bytes(item, depth + 1) for item in value]
    if isinstance(value, Mapping) and depth < 2 * DEEPEST:
        return {
            name: _shortened(item) if name in _HOLDERS and isinstance(item, str) else without_bytes(item, depth + 1)
            for name, item in value.items()
        }
    return value


def _shortened(text: str) -> str:
    is_coded = len(text) > LONGEST_CODED and _CODED.fullmatch(text)
    return f"{text[:40]}… {len(text):,} characters" if is_coded else text
