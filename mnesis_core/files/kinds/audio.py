"""Audio: its format, how long it is and what it is called, from its headers; nothing is played."""

from __future__ import annotations

from tinytag import TinyTag, TinyTagException

from mnesis_core.errors import fill, gettext_noop
from mnesis_core.files.source import Findings, Source, Unreadable, counted, shown

_TAGS = {"title": "Title", "artist": "Artist", "album": "Album", "year": "Year", "comment": "Comment"}


def explore(source: Source) -> Findings:
    try:
        found = TinyTag.get(source.path)
    except (TinyTagException, OSError, ValueError, KeyError, IndexError, OverflowError) as error:
        raise Unreadable(
            fill(
                gettext_noop("not readable as audio: %(reason)s"),
                {"reason": shown(str(error).replace(str(source.path), "the file"))},
            )
        ) from None
    if not found.duration:
        raise Unreadable(gettext_noop("no audio of a known format"))
    lines = [f"Audio, {found.duration:,.1f} seconds, {counted(source.size, 'byte')}"]
    if found.samplerate and found.channels:
        lines.append(f"{found.samplerate:,} samples a second, {counted(found.channels, 'channel')}")
    lines += [f"{word}: {shown(value)}" for name, word in _TAGS.items() if (value := getattr(found, name))]
    return Findings(lines=lines, covered="its headers; nobody listened to it")
