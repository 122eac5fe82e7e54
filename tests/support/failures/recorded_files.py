"""What SQLite does to its files, written down in order: a file system of ours in the very SQLite that Python uses.

It is SQLite's own one with five functions in between, so nothing has to be installed or compiled for it. Layouts:
https://www.sqlite.org/c3ref/vfs.html and https://www.sqlite.org/c3ref/io_methods.html.
"""

from __future__ import annotations

import _sqlite3
import ctypes
import pickle
import threading
from ctypes import CFUNCTYPE, POINTER, Structure, c_int, c_int64, c_void_p, cast, pointer
from pathlib import Path
from typing import Any

SQLITE_FULL = 13
_FOREVER: list[Any] = []
"""What SQLite may call until the process ends."""


class _Methods(Structure):
    """``sqlite3_io_methods``, version 3: what one open file can do."""

    _fields_ = [
        ("version", c_int),
        *((name, c_void_p) for name in ("close", "read", "write", "truncate", "sync")),
        ("others", c_void_p * 13),
    ]


class _File(Structure):
    """``sqlite3_file``; what follows in memory is the file system's own."""

    _fields_ = [("methods", POINTER(_Methods))]


class _FileSystem(Structure):
    """``sqlite3_vfs``, version 3."""

    _fields_ = [
        *((name, c_int) for name in ("version", "file_size", "longest_path")),
        *((name, c_void_p) for name in ("next", "name", "data", "open", "delete")),
        ("others", c_void_p * 14),
    ]


# Names are addresses, not strings: SQLite looks at what stands behind them, and keeps them.
_OPEN = CFUNCTYPE(c_int, c_void_p, c_void_p, POINTER(_File), c_int, POINTER(c_int))
_DELETE = CFUNCTYPE(c_int, c_void_p, c_void_p, c_int)
_WRITE = CFUNCTYPE(c_int, POINTER(_File), c_void_p, c_int, c_int64)
_TRUNCATE = CFUNCTYPE(c_int, POINTER(_File), c_int64)
_SYNC = CFUNCTYPE(c_int, POINTER(_File), c_int)


class Recording:
    """What was done to the files, in order, and what was said in between. It can play a full disk, too.

    Entries: ``("write", file, offset, bytes)``, ``("truncate", file, size)``, ``("delete", file)``, ``("sync", file,
    number of entries before it began)`` and ``("word", whatever was said)``.
    """

    def __init__(self) -> None:
        self.entries: list[tuple[Any, ...]] = []
        self.room: int | None = None
        """Bytes by which all files may still grow; what needs more is refused as a full disk does. None: any."""
        self._lock = threading.Lock()
        self._names: dict[int, str] = {}
        self._sizes: dict[str, int] = {}
        self._methods: dict[int, _Methods] = {}

    def say(self, *word: Any) -> None:
        """Note what a client was told."""
        self._add("word", word)

    def save(self, path: Path) -> None:
        """Keep it for the replay."""
        path.write_bytes(pickle.dumps(self.entries))

    def start(self) -> None:
        """Stand between SQLite and its files, for every connection from now on."""
        # The module's own file also finds what it is linked with; without one, SQLite is part of Python itself.
        library = ctypes.CDLL(getattr(_sqlite3, "__file__", None))
        library.sqlite3_vfs_find.restype = POINTER(_FileSystem)
        below = library.sqlite3_vfs_find(None)
        between = _FileSystem.from_buffer_copy(below.contents)
        between.name = self._keep(ctypes.create_string_buffer(b"recorded"))
        between.open = self._keep(_OPEN(self._opening(_OPEN(between.open))))
        between.delete = self._keep(_DELETE(self._deleting(_DELETE(between.delete))))
        _FOREVER.append(between)
        if library.sqlite3_vfs_register(pointer(between), 1):
            raise RuntimeError("SQLite takes no file system of ours")

    def _opening(self, below: Any) -> Any:
        def open_file(system: int, name: int | None, file: Any, flags: int, flags_out: Any) -> int:
            status = int(below(system, name, file, flags, flags_out))
            if status == 0 and name:
                path = _path_at(name)
                self._names[ctypes.addressof(file.contents)] = path.name
                self._sizes[path.name] = path.stat().st_size
                file.contents.methods = pointer(self._between(file.contents.methods.contents))
            return status

        return open_file

    def _deleting(self, below: Any) -> Any:
        def delete_file(system: int, name: int, sync: int) -> int:
            self._add("delete", _path_at(name).name)
            return int(below(system, name, sync))

        return delete_file

    def _between(self, below: _Methods) -> _Methods:
        """The methods below with ours in between; the same for every file of one kind."""
        known = ctypes.addressof(below)
        if known not in self._methods:
            between = self._methods[known] = _Methods.from_buffer_copy(below)
            between.write = self._keep(_WRITE(self._writing(_WRITE(below.write))))
            between.truncate = self._keep(_TRUNCATE(self._truncating(_TRUNCATE(below.truncate))))
            between.sync = self._keep(_SYNC(self._syncing(_SYNC(below.sync))))
        return self._methods[known]

    def _writing(self, below: Any) -> Any:
        def write(file: Any, data: int, length: int, offset: int) -> int:
            if not self._grow(self._name(file), offset + length):
                return SQLITE_FULL
            self._add("write", self._name(file), offset, ctypes.string_at(data, length))
            return int(below(file, data, length, offset))

        return write

    def _truncating(self, below: Any) -> Any:
        def truncate(file: Any, size: int) -> int:
            self._add("truncate", self._name(file), size)
            return int(below(file, size))

        return truncate

    def _syncing(self, below: Any) -> Any:
        def sync(file: Any, flags: int) -> int:
            begun = len(self.entries)
            status = int(below(file, flags))
            if status == 0:
                self._add("sync", self._name(file), begun)
            return status

        return sync

    def _add(self, *entry: Any) -> None:
        with self._lock:
            self.entries.append(entry)

    def _grow(self, name: str, end: int) -> bool:
        """Whether there is room for a file that ends there."""
        more = max(0, end - self._sizes[name])
        if self.room is not None:
            if more > self.room:
                return False
            self.room -= more
        self._sizes[name] += more
        return True

    def _name(self, file: Any) -> str:
        return self._names[ctypes.addressof(file.contents)]

    def _keep(self, value: Any) -> int | None:
        """The address of something that must live as long as SQLite may use it."""
        _FOREVER.append(value)
        return cast(value, c_void_p).value


def _path_at(address: int) -> Path:
    return Path(ctypes.string_at(address).decode())
