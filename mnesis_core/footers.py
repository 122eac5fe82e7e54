"""The footer by which a summary names the files of its sources, and the summaries that it stands for.

It is the engine's work, never the model's (seed 000, LCM paper 2.2): what a model writes there is replaced.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

_START = "[LCM "
FILES = f"{_START}File IDs:"
SUMMARIES = f"{_START}Summary IDs:"
_PLAIN = re.compile(r"[\w.:@+%=~/|-]{1,64}", re.ASCII)
_LISTED = re.compile(r"(\d{1,15}) listed in (\S+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class ManifestName:
    """A file manifest as a footer names it."""

    id: str
    count: int
    """Entries: ids of files and of further manifests."""

    def __str__(self) -> str:
        return f"{self.count} listed in {self.id}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Named:
    """The ids that a summary has to name."""

    summaries: tuple[str, ...] = ()
    """What a condensed summary was made of, in order."""
    files: tuple[str, ...] = ()
    """Every file named in its source, beside those that stand in a manifest."""
    manifests: tuple[ManifestName, ...] = ()
    """The manifests that name the others."""

    @property
    def file_entries(self) -> tuple[str, ...]:
        """Files and manifests as they are written, each once."""
        return tuple(dict.fromkeys((*self.files, *map(str, self.manifests))))


NO_IDS = Named()


def is_plain(file_id: str) -> bool:
    """Whether an id can stand in a footer: an import may call a file anything."""
    return _PLAIN.fullmatch(file_id) is not None


def with_footer(text: str, named: Named) -> str:
    """The summary with its footer; one that was there is replaced, none is written for no ids."""
    lines = [
        f"{start} {', '.join(dict.fromkeys(ids))}]"
        for start, ids in ((SUMMARIES, named.summaries), (FILES, named.file_entries))
        if ids
    ]
    body = without_footer(text)
    return "\n\n".join((body, "\n".join(lines))) if lines else body


def files_in_footer(text: str) -> Named:
    """The files and manifests that a summary's footer names."""
    footer = text[len(without_footer(text)) :]
    return named_by(entry for line in _file_lines(footer) for entry in line.split(", "))


def named_by(entries: Iterable[str]) -> Named:
    """The files and manifests of entries as a footer has them."""
    files: dict[str, None] = {}
    manifests: dict[str, ManifestName] = {}
    for entry in entries:
        listed = _LISTED.fullmatch(entry)
        if listed:
            manifests[listed[2]] = ManifestName(id=listed[2], count=int(listed[1]))
        elif entry:
            files[entry] = None
    return Named(files=tuple(files), manifests=tuple(manifests.values()))


def _file_lines(footer: str) -> Iterator[str]:
    for line in footer.splitlines():
        if line.startswith(FILES):
            yield line.removeprefix(FILES).strip().removesuffix("]")


def without_footer(text: str) -> str:
    """The summary without its footer, in linear time."""
    end = len(text.rstrip())
    start = _footer_before(text, end)
    while start >= 0:
        end = start
        while end and text[end - 1].isspace():
            end -= 1
        start = _footer_before(text, end)
    return text[:end]


def _footer_before(text: str, end: int) -> int:
    """Where the footer begins that reaches up to ``end``; -1: there is none."""
    start = text.rfind(_START, 0, end)
    if start < 0 or not text.startswith((FILES, SUMMARIES), start, end):
        return -1
    return start if text.find("]", start, end) == end - 1 else -1
