"""Pictures: their format, size and what the camera wrote, from their headers; no picture is decoded."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

from PIL import ExifTags, Image, UnidentifiedImageError

from mnesis_core.files.source import Findings, Source, Unreadable, counted, shown

MOST_PIXELS = 178_956_970
"""Beyond it Pillow refuses to decode a picture; we only say so."""
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "ICO", "AVIF")
"""Other formats' parsers are not needed; some of them start programs."""
_TAGS = {"Make": "camera", "Model": "model", "DateTime": "date", "Software": "software", "Artist": "artist"}


def explore(source: Source) -> Findings:
    """Say what kind of picture it is, how large, and when and with what it was taken.

    :raises Unreadable: it is no picture of a known format
    """
    Image.MAX_IMAGE_PIXELS = None  # The size is only said.
    try:
        with warnings.catch_warnings(), Image.open(source.path, formats=_FORMATS) as picture:
            warnings.simplefilter("ignore")
            lines = _told(source, picture)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        raise Unreadable(_without_path(source, str(error))) from None
    return Findings(lines=lines, covered="its header; the picture itself was not looked at")


def _told(source: Source, picture: Any) -> list[str]:
    width, height = picture.size
    lines = [
        f"{picture.format} picture, {width:,} x {height:,} pixels, {_mode(picture.mode)}, {counted(source.size, 'byte')}"
    ]
    if width * height > MOST_PIXELS:
        lines.append("So many pixels that decoding it may take more memory than there is")
    if (frames := getattr(picture, "n_frames", 1)) > 1:
        lines.append(f"{counted(frames, 'frame')}: it moves, or has pages")
    with suppress(Exception):  # what a camera wrote may be broken without the picture being so
        lines += _written(picture)
    return lines


def _mode(mode: str) -> str:
    names = {"1": "black and white", "L": "grey", "P": "palette", "RGB": "colour", "RGBA": "colour with transparency"}
    return names.get(mode, mode)


def _written(picture: Any) -> list[str]:
    """What stands beside the pixels: camera, date, place, comment."""
    exif = picture.getexif()
    tags = {ExifTags.TAGS.get(tag, ""): value for tag, value in exif.items()}
    lines = [f"Its {word}: {shown(str(tags[tag]))}" for tag, word in _TAGS.items() if tags.get(tag)]
    if taken := exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal):
        lines.append(f"Taken: {shown(str(taken))}")
    if exif.get_ifd(ExifTags.IFD.GPSInfo):
        lines.append("It says where it was taken")
    for key in ("Title", "Description", "comment"):
        if isinstance(value := picture.info.get(key), str | bytes) and value:
            lines.append(
                f"{key.capitalize()}: {shown(value.decode('utf-8', 'replace') if isinstance(value, bytes) else value)}"
            )
    return lines


def _without_path(source: Source, message: str) -> str:
    if not message or str(source.path) in message:
        return "no picture of a known format"
    return f"not readable as a picture: {shown(message)}"
