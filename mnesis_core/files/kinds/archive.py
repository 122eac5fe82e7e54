"""Archives and compressed files: what is in them, read from their lists or in a stream, and never unpacked to disk. Documents of
office programs are zip archives too, and are checked here before their own modules read them.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import IO, Any, Literal

from mnesis_core.errors import InvalidRequest, Phrase, RequestTooLarge, fill, gettext_noop
from mnesis_core.files.detection import zip_list
from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown

MOST_ENTRIES = 20_000  # Entries read of a tar archive.
MOST_HEADER = 8_192  # A longer name or extended header is refused: Python's patterns for them may take quadratic time.
MOST_STREAMED = 67_108_864
MOST_LIST_BYTES = 16_777_216  # zipfile reads the list of entries at once.
SHOWN_ENTRIES, LARGEST = 40, 5
SUSPICIOUS_RATIO = 200  # Text shrinks to a tenth; a file of one repeated byte to a thousandth.
_ENTRY_TYPES = (*tarfile.REGULAR_TYPES, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE)
_STEP = 1_048_576
_BEGINNING = 200
_STREAMS: tuple[tuple[bytes, str, Any], ...] = (
    (b"\x1f\x8b", "gzip", gzip.open),
    (b"BZh", "bzip2", bz2.open),
    (b"\xfd7zXZ\x00", "xz", lzma.open),
)
_ZIPS = {".whl": "Python package (wheel)", ".jar": "Java archive", ".epub": "book (EPUB)", ".apk": "Android program"}

# Unpacked bytes of one part of a document that is held whole; a tree of XML takes some ten times as much memory.
MOST_PART = 33_554_432
MOST_UNPACKED = 268_435_456
MOST_PARTS = 20_000
# What the libraries raise over parts of documents that are not what they should be.
READ_ERRORS = (
    *(zipfile.BadZipFile, zlib.error, OSError, ValueError, KeyError, TypeError, AttributeError, IndexError),
    *(SyntaxError, NotImplementedError),
)
_MEMBER_ERRORS = (*READ_ERRORS, EOFError, RuntimeError, lzma.LZMAError)
_OLD_DOCUMENT = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    name: str
    size: int
    is_folder: bool = False
    is_encrypted: bool = False
    problem: str = ""


class _Enough(Exception):
    """``MOST_STREAMED`` bytes were decompressed."""


class _Bounded:
    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.taken = stream, 0

    def read(self, size: int = _STEP) -> bytes:
        """:raises _Enough: ``MOST_STREAMED`` bytes were read
        :raises Unreadable: the stream is broken
        """
        if self.taken >= MOST_STREAMED:
            raise _Enough
        try:
            data = self.stream.read(min(size, _STEP))
        except (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError) as error:
            raise Unreadable(
                fill(
                    gettext_noop("broken after %(taken)s unpacked bytes: %(reason)s"),
                    {"taken": self.taken, "reason": shown(str(error))},
                )
            ) from None
        self.taken += len(data)
        return data


class _Rejoined:
    def __init__(self, stream: _Bounded, beginning: bytes) -> None:
        self.stream, self.beginning = stream, beginning

    def read(self, size: int = _STEP) -> bytes:
        # tarfile asks again when it is given less than it asked for.
        data, self.beginning = self.beginning[:size], self.beginning[size:]
        return data or self.stream.read(size)


class _Header(tarfile.TarInfo):
    # tarfile would read a long header whole into memory, however large it claims to be.
    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type not in _ENTRY_TYPES and self.size > MOST_HEADER:
            raise tarfile.ReadError(f"a header is longer than {MOST_HEADER:,} bytes")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


def explore(source: Source) -> Findings:
    head = source.head(512)
    if head.startswith(b"PK"):
        # The sizes are what the list of entries claims.
        too_long = f"its list of entries is larger than {MOST_LIST_BYTES:,} bytes"
        infos, comment = _zip_entries(source, MOST_LIST_BYTES, too_long)
        entries = [
            _Entry(
                name=info.orig_filename or info.filename,
                size=info.file_size,
                is_folder=info.is_dir(),
                is_encrypted=bool(info.flag_bits & 1),
                problem=_problem(info.filename, is_link=stat.S_ISLNK(info.external_attr >> 16)),
            )
            for info in infos
        ]
        lines = _lines(_ZIPS.get(source.suffix, "zip archive"), entries, source.size)
        if comment:
            lines.append(f"Comment: {shown(comment.decode('utf-8', 'replace'))}")
        return Findings(lines=lines, covered="its list of entries")
    with source.path.open("rb") as file:
        if head[257:262] == b"ustar":
            return _tar(source, "tar archive", file, "r:")
        for mark, name, reader in _STREAMS:
            if head.startswith(mark):
                with reader(file) as stream:
                    return _stream(source, name, _Bounded(stream), file)
    raise Unreadable(gettext_noop("no archive of a known format: zip, tar, gzip, bzip2, xz"))


def _zip_entries(source: Source, most_bytes: int, too_long: str) -> tuple[list[zipfile.ZipInfo], bytes]:
    """Return the entries and the comment of a zip archive.

    :raises Unreadable: its list of entries cannot be read, or is longer than ``most_bytes`` (``too_long``)
    """
    _, length = zip_list(source)
    if length < 0:
        raise Unreadable(gettext_noop("no readable zip archive: its end is missing, it may be cut off"))
    if length > most_bytes:
        raise Unreadable(too_long)
    try:
        with zipfile.ZipFile(source.path) as archive:
            return archive.infolist(), archive.comment
    except (zipfile.BadZipFile, NotImplementedError, ValueError) as error:
        raise Unreadable(
            fill(gettext_noop("no readable zip archive: %(reason)s"), {"reason": shown(str(error))})
        ) from None


class ZipMembers:
    """The files in a zip archive, each unpacked while it is read and none written to disk, so that no name leads anywhere.

    :param most_bytes: that may be unpacked, of all files together
    :raises InvalidRequest: it is no readable archive, lists too much, or names a file twice or in a way that is not safe
    """

    def __init__(self, path: Path, *, most_bytes: int) -> None:
        source = Source(path=path, name=path.name, size=path.stat().st_size)
        too_long = f"the list of its entries is larger than {MOST_LIST_BYTES:,} bytes"
        try:
            infos, _ = _zip_entries(source, MOST_LIST_BYTES, too_long)
        except Unreadable as error:
            raise InvalidRequest(str(error), field="file") from None
        self._path, self._infos = path, dict[str, zipfile.ZipInfo]()
        self.most_bytes = self.room = most_bytes
        for info in infos:
            name = info.orig_filename or info.filename
            if info.is_dir():
                continue
            if problem := _problem(name, is_link=stat.S_ISLNK(info.external_attr >> 16)):
                raise InvalidRequest(
                    gettext_noop("%(name)s in the zip archive is %(reason)s"),
                    {"name": shown(name), "reason": problem},
                    field="file",
                )
            if name in self._infos:
                raise InvalidRequest(
                    gettext_noop("%(name)s is in the zip archive twice"), {"name": shown(name)}, field="file"
                )
            self._infos[name] = info

    @property
    def names(self) -> list[str]:
        return sorted(self._infos)

    def open(self, name: str) -> io.BufferedReader:
        """Open a file. Reading it raises what is said here, too.

        :raises InvalidRequest: it is encrypted or damaged, or packed in a way that is not known here
        :raises RequestTooLarge: more than ``most_bytes`` of the archive would be unpacked
        """
        info = self._infos[name]
        if info.flag_bits & 1:
            raise InvalidRequest(
                gettext_noop("%(name)s in the zip archive is encrypted"), {"name": shown(name)}, field="file"
            )
        try:
            return io.BufferedReader(_Member(self, zipfile.ZipFile(self._path).open(info)), _STEP)
        except _MEMBER_ERRORS as error:
            raise _unreadable(name, error) from None


class _Member(io.RawIOBase):
    def __init__(self, archive: ZipMembers, file: IO[bytes]) -> None:
        self._archive, self._file = archive, file

    def readable(self) -> bool:
        return True

    def close(self) -> None:
        self._file.close()
        super().close()

    def readinto(self, buffer: Any) -> int:
        try:
            data = self._file.read(len(buffer))
        except _MEMBER_ERRORS as error:
            raise _unreadable(self._file.name, error) from None
        self._archive.room -= len(data)
        if self._archive.room < 0:
            most = self._archive.most_bytes
            raise RequestTooLarge(
                gettext_noop("The zip archive holds more than the %(most)s bytes that an import may have."),
                {"most": most},
            )
        buffer[: len(data)] = data
        return len(data)


def _unreadable(name: str, error: Exception) -> InvalidRequest:
    return InvalidRequest(
        gettext_noop("%(name)s in the zip archive cannot be read: %(reason)s"),
        {"name": shown(name), "reason": shown(str(error))},
        field="file",
    )


def _stream(source: Source, name: str, stream: _Bounded, file: IO[bytes]) -> Findings:
    beginning = stream.read(512)
    if beginning[257:262] == b"ustar":
        return _tar(source, f"tar archive in {name}", _Rejoined(stream, beginning), "r|")
    covered, more_than = "all of it", ""
    try:
        while stream.read():
            pass
    except _Enough:
        covered, more_than = f"the first {stream.taken:,} unpacked bytes", "more than "
    if b"\x00" in beginning:
        begins = f"It begins with the bytes {beginning[:16].hex(' ')}"
    else:
        begins = f"It begins: {shown(beginning.decode('utf-8', 'replace'), characters=_BEGINNING)}"
    sizes = f"{name}: {counted(source.size, 'byte')}, unpacked {more_than}{counted(stream.taken, 'byte')}"
    return Findings(lines=(sizes, *_doubtful_ratio(stream.taken, file.tell()), begins), covered=covered)


def _tar(source: Source, title: str, file: Any, mode: Literal["r:", "r|"]) -> Findings:
    entries: list[_Entry] = []
    covered = "its list of entries"
    try:
        with tarfile.open(fileobj=file, mode=mode, tarinfo=_Header) as archive:
            for info in archive:
                problem = _problem(info.name, is_link=info.issym() or info.islnk(), target=info.linkname)
                if info.ischr() or info.isblk() or info.isfifo():
                    problem = "a device"
                entries.append(_Entry(name=info.name, size=info.size, is_folder=info.isdir(), problem=problem))
                if len(entries) >= MOST_ENTRIES:
                    break
    except _Enough:
        covered = f"the entries in the first {MOST_STREAMED:,} unpacked bytes"
    except (tarfile.TarError, Unreadable, ValueError) as error:
        if not entries:
            raise Unreadable(
                fill(
                    gettext_noop("no readable %(title)s: %(reason)s"),
                    {"title": title, "reason": shown(str(error))},
                )
            ) from None
        covered = f"the entries before it breaks: {shown(str(error))}"
    if len(entries) >= MOST_ENTRIES:
        covered = f"the first {MOST_ENTRIES:,} entries"
    return Findings(lines=_lines(title, entries, source.size), covered=covered)


def _problem(name: str, *, is_link: bool, target: str = "") -> str:
    if is_link:
        if target:
            return Phrase(gettext_noop("a link to %(target)s"), {"target": shown(target)})
        return Phrase(gettext_noop("a link"))
    if name.startswith(("/", "\\")) or name[1:2] == ":":
        return Phrase(gettext_noop("an absolute path"))
    return Phrase(gettext_noop("leaves its folder")) if ".." in name.replace("\\", "/").split("/") else ""


def _lines(title: str, entries: list[_Entry], packed: int) -> list[str]:
    files = [one for one in entries if not one.is_folder]
    total = sum(one.size for one in files)
    lines = [
        f"{title}: {counted(len(files), 'file')} in {counted(packed, 'byte')}, unpacked {counted(total, 'byte')}",
        *_doubtful_ratio(total, packed),
    ]
    if doubtful := [f"{shown(one.name)} ({one.problem})" for one in entries if one.problem]:
        lines.append(f"Not safe to unpack as it is: {listed(doubtful, most=10)}")
    if encrypted := sum(one.is_encrypted for one in files):
        lines.append(f"{counted(encrypted, 'file')} in it can only be read with a password")
    endings = Counter(PurePosixPath(one.name).suffix.lower() or "without an ending" for one in files)
    kinds = listed((f"{number:,} {ending}" for ending, number in endings.most_common()), most=10)
    lines.append(f"Kinds: {kinds}")
    shown_files = [f"{shown(one.name)}: {counted(one.size, 'byte')}" for one in files[:SHOWN_ENTRIES]]
    if len(files) <= SHOWN_ENTRIES:
        return [*lines, *shown_files]
    largest = sorted(files, key=lambda one: -one.size)[:LARGEST]
    return [
        *lines,
        f"Folders and files at its top: {listed(dict.fromkeys(one.name.split('/')[0] for one in entries))}",
        f"Largest: {listed(f'{one.name} ({one.size:,})' for one in largest)}",
        *shown_files,
        f"and {len(files) - SHOWN_ENTRIES:,} more files",
    ]


def _doubtful_ratio(unpacked: int, packed: int) -> list[str]:
    if packed == 0 or unpacked // packed < SUSPICIOUS_RATIO:
        return []
    return [f"Unpacked it is {unpacked // packed:,} times as large: it may be meant to fill a disk"]


def check_parts(source: Source, needed: str, *, streamed: tuple[str, ...] = ()) -> None:
    """Check the sizes of a document's parts before any is read; none is read beyond the size claimed for it.

    :param needed: the prefix of a part's name that every document of this kind has
    :param streamed: prefixes of the names of parts that are read as a stream
    :raises Unreadable: it is no such document, encrypted, or too large
    """
    if source.head(8) == _OLD_DOCUMENT:
        raise Unreadable(gettext_noop("it is encrypted with a password, or of an office program before 2007"))
    too_many = f"it has more than {MOST_PARTS:,} parts"
    parts, _ = _zip_entries(source, MOST_PARTS * 200, too_many)
    if not any(part.filename.startswith(needed) for part in parts):
        raise Unreadable(fill(gettext_noop("it has no %(needed)s"), {"needed": needed}))
    if len(parts) > MOST_PARTS:
        raise Unreadable(too_many)
    held = [part for part in parts if not part.filename.startswith(streamed)]
    if sum(part.file_size for part in held) > MOST_UNPACKED:
        raise Unreadable(fill(gettext_noop("unpacked it is larger than %(most)s bytes"), {"most": MOST_UNPACKED}))
    if any(part.file_size > MOST_PART for part in held if part.filename.endswith((".xml", ".rels", ".vml"))):
        raise Unreadable(fill(gettext_noop("one of its parts is larger than %(most)s bytes"), {"most": MOST_PART}))


def properties_of(properties: Any) -> Iterator[str]:
    words = {"title": "Title", "author": "Author", "creator": "Author", "modified": "Last changed"}
    for attribute, word in words.items():
        if (value := str(getattr(properties, attribute, None) or "")).strip():
            yield f"{word}: {shown(value, characters=160)}"
