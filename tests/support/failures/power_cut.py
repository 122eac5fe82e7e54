"""A disk that loses its power: what was synced is there, of everything else any sectors may be, or not.

Directories are taken to be synced: a file that was made is there and one that was deleted is not.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import Any

SECTOR = 512
KEPT = (0.0, 0.5, 0.95, 1.0)
"""How much of what was not synced a cut leaves; each cut takes one of these for each file."""


class Disk:
    """The files of a recording, played from its beginning."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self._durable = defaultdict(bytearray, {name: bytearray(content) for name, content in files.items()})
        self._loose: dict[str, list[tuple[int, tuple[Any, ...]]]] = defaultdict(list)
        self._played = 0

    def play(self, entry: tuple[Any, ...]) -> None:
        """The next entry of the recording."""
        kind, *rest = entry
        if kind in ("write", "truncate"):
            self._loose[rest[0]].append((self._played, entry))
        elif kind == "sync":
            self._sync(*rest)
        elif kind == "delete":
            self._durable.pop(rest[0], None)
            self._loose.pop(rest[0], None)
        self._played += 1

    def _sync(self, name: str, begun: int) -> None:
        for number, entry in self._loose[name]:
            if number < begun:
                _do(self._durable[name], entry)
        self._loose[name] = [(number, entry) for number, entry in self._loose[name] if number >= begun]

    def after_cut(self, chance: random.Random, directory: Path) -> None:
        """Write into an empty directory what the disk may hold when the power comes back."""
        for name in {*self._durable, *self._loose}:
            content, kept = bytearray(self._durable.get(name, b"")), chance.choice(KEPT)
            for _, entry in self._loose[name]:
                for piece in _sectors(entry):
                    if chance.random() < kept:
                        _do(content, piece)
            (directory / name).write_bytes(content)


def _sectors(entry: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if entry[0] == "truncate":
        yield entry
        return
    kind, name, offset, data = entry
    while data:
        length = SECTOR - offset % SECTOR
        yield kind, name, offset, data[:length]
        offset, data = offset + length, data[length:]


def _do(content: bytearray, entry: tuple[Any, ...]) -> None:
    if entry[0] == "truncate":
        del content[entry[2] :]
        return
    _, _, offset, data = entry
    content.extend(bytes(max(0, offset - len(content))))
    content[offset : offset + len(data)] = data
