"""Pictures: their format, size and what the camera wrote, from their headers; no picture is decoded."""

from __future__ import annotations

import warnings
from contextlib import suppress
from typing import Any

from PIL import ExifTags, Image, UnidentifiedImageError

from mnesis_core.errors import fill, gettext_noop
from mnesis_core.files.source import Findings, Source, Unreadable, counted, shown

MOST_PIXELS = 178_956_970  # Pillow refuses to decode larger pictures.
# Other formats' parsers are not needed; some of them start programs.
_FORMATS = ("PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "ICO", "AVIF")
_TAGS = {"Make": "camera", "Model": "model", "DateTime": "date", "Software": "software", "Artist": "artist"}


def explore(source: Source) -> Findings:
    Image.MAX_IMAGE_PIXELS = None  # The size is only said.
    try:
        with warnings.catch_warnings(), Image.open(source.path, formats=_FORMATS) as picture:
            warnings.simplefilter("ignore")
            lines = _lines(source, picture)
    except (UnidentifiedImageError, OSError, SyntaxError, ValueError) as error:
        message = str(error)
        if not message or str(source.path) in message:
            raise Unreadable(gettext_noop("no picture of a known format")) from None
        raise Unreadable(
            fill(gettext_noop("not readable as a picture: %(reason)s"), {"reason": shown(message)})
        ) from None
    return Findings(lines=lines, covered="its header; the picture itself was not looked at")


def _lines(source: Source, picture: Any) -> list[str]:
    width, height = picture.size
    names = {"1": "black and white", "L": "grey", "P": "palette", "RGB": "colour", "RGBA": "colour with transparency"}
    mode = names.get(picture.mode, picture.mode)
    lines = [f"{picture.format} picture, {width:,} x {height:,} pixels, {mode}, {counted(source.size, 'byte')}"]
    if width * height > MOST_PIXELS:
        lines.append("So many pixels that decoding it may take more memory than there is")
    if (frames := getattr(picture, "n_frames", 1)) > 1:
        lines.append(f"{counted(frames, 'frame')}: it moves, or has pages")
    with suppress(Exception):  # what a camera wrote may be broken without the picture being so
        lines += _metadata(picture)
    return lines


def _metadata(picture: Any) -> list[str]:
    exif = picture.getexif()
    tags = {ExifTags.TAGS.get(tag, ""): value for tag, value in exif.items()}
    lines = [f"Its {word}: {shown(str(tags[tag]))}" for tag, word in _TAGS.items() if tags.get(tag)]
    if taken := exif.get_ifd(ExifTags.IFD.Exif).get(ExifTags.Base.DateTimeOriginal):
        lines.append(f"Taken: {shown(str(taken))}")
    if exif.get_ifd(ExifTags.IFD.GPSInfo):
        lines.append("It says where it was taken")
    for key in ("Title", "Description", "comment"):
        if isinstance(value := picture.info.get(key), str | bytes) and value:
            text = value.decode("utf-8", "replace") if isinstance(value, bytes) else value
            lines.append(f"{key.capitalize()}: {shown(text)}")
    return lines
