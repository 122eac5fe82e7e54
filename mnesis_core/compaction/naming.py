"""Which files a summary names itself, and which in a manifest: no id is lost, and none is in the way of the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from mnesis_core.file_manifests import FileManifest, file_manifest
from mnesis_core.footers import Named, is_plain, with_footer
from mnesis_core.tokens import estimate_text

MOST_TOKENS = 400
"""Of all file ids under one summary: some twenty of ours. More would be sent with every call and read in none."""
SHARE_OF_TARGET = 8
"""A footer of files takes at most one part in so many of the budget's low mark: half of what the summary may."""
SHARE_OF_SOURCE = 2
"""Likewise of the summary's own room, or nothing were gained."""
SHARE_OF_EXCERPT = 4
"""Likewise of a level 3 excerpt, which has few tokens to quote with."""
NEWEST = 8
"""Files that are named beside a manifest, as far as there is room: what was spoken of last is asked for first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Naming:
    """What stands in a footer, and the manifest that holds what does not."""

    named: Named
    manifest: FileManifest | None = None


def name_files(named: Named, room: int, manifest_id: str) -> Naming:
    """Name all files, if that takes no more than ``room`` tokens; else the newest, and all in a manifest of this id.

    The manifest is named however small ``room`` is.
    """
    is_short = len(named.file_entries) <= 1 or _tokens(named) <= room
    if is_short and all(map(is_plain, named.files)):
        return Naming(named=named)
    manifest = file_manifest(manifest_id, named)
    listed = Named(summaries=named.summaries, manifests=(manifest.name,))
    return Naming(named=replace(listed, files=_newest(listed, named.files, room)), manifest=manifest)


def _newest(listed: Named, files: Sequence[str], room: int) -> tuple[str, ...]:
    newest = [file_id for file_id in dict.fromkeys(files) if is_plain(file_id)][-NEWEST:]
    while newest and _tokens(replace(listed, files=tuple(newest))) > room:
        newest = newest[1:]
    return tuple(newest)


def _tokens(named: Named) -> int:
    return estimate_text(with_footer("", Named(files=named.files, manifests=named.manifests)))
