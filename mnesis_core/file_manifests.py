"""File manifests: files that list the ids which a summary's footer has no room for. One may list others."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from mnesis_core.footers import ManifestName, Named, is_plain, named_by

FOLDER = ".mnesis/manifests/"
"""What their paths begin with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileManifest:
    """A manifest that is to be kept as a file."""

    name: ManifestName
    text: str


def file_manifest(manifest_id: str, named: Named) -> FileManifest:
    """A manifest of the files and manifests in ``named``: an entry a line, as a footer has them.

    What has no place in a line stands there as JSON.
    """
    lines = [*map(_line, dict.fromkeys(named.files)), *map(str, named.manifests)]
    return FileManifest(
        name=ManifestName(id=manifest_id, count=len(lines)), text="".join(f"{line}\n" for line in lines)
    )


def read_file_manifest(text: str) -> Named:
    """The files and manifests that a manifest lists. It may come from an import, and be anything."""
    lines = text.split("\n")
    named = named_by(line for line in lines if not line.startswith('"'))
    foreign = [_unquoted(line) for line in lines if line.startswith('"')]
    return replace(named, files=tuple(dict.fromkeys((*named.files, *foreign))))


def manifest_path(summary_id: str) -> str:
    """Where the manifest of a summary is kept."""
    return f"{FOLDER}{summary_id}.txt"


def is_file_manifest(path: str) -> bool:
    """Whether a file at this path is one."""
    return path.startswith(FOLDER)


def _line(file_id: str) -> str:
    return file_id if is_plain(file_id) else json.dumps(file_id)


def _unquoted(line: str) -> str:
    try:
        return str(json.loads(line))
    except ValueError:
        return line
