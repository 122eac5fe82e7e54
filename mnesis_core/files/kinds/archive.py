"""Archives and compressed files: what is in them, read from their lists or in a stream, and never unpacked."""

from __future__ import annotations

import bz2
import gzip
import lzma
import stat
import tarfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import IO, Any, Literal

from mnesis_core.files.detection import list_bytes
from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown

# Entries read of a tar archive.
MOST_ENTRIES = 20_000
# A longer name or extended header is refused: Python's patterns for them may take quadratic time.
MOST_HEADER = 8_192
MOST_STREAMED = 67_108_864
# zipfile reads the list of entries at once.
MOST_LIST_BYTES = 16_777_216
SHOWN_ENTRIES, LARGEST = 40, 5
# Text shrinks to a tenth; a file of one repeated byte to a thousandth.
SUSPICIOUS_RATIO = 200
_ENTRY_TYPES = (*tarfile.REGULAR_TYPES, tarfile.LNKTYPE, tarfile.SYMTYPE, tarfile.DIRTYPE)
_STEP = 1_048_576
_BEGINNING = 200
_STREAMS: tuple[tuple[bytes, str, Any], ...] = (
    (b"\x1f\x8b", "gzip", gzip.open),
    (b"BZh", "bzip2", bz2.open),
    (b"\xfd7zXZ\x00", "xz", lzma.open),
)
_ZIPS = {".whl": "Python package (wheel)", ".jar": "Java archive", ".epub": "book (EPUB)", ".apk": "Android program"}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    name: str
    size: int
    is_folder: bool = False
    is_encrypted: bool = False
    problem: str = ""


class _Enough(Exception):
    """``MOST_STREAMED`` bytes were decompressed."""


def explore(source: Source) -> Findings:
    head = source.head(512)
    if head.startswith(b"PK"):
        return _zip(source)
    with source.path.open("rb") as file:
        if head[257:262] == b"ustar":
            return _tar(source, "tar archive", file, "r:")
        packed = next(((name, reader) for mark, name, reader in _STREAMS if head.startswith(mark)), None)
        if packed is None:
            raise Unreadable("no archive of a known format: zip, tar, gzip, bzip2, xz")
        name, reader = packed
        with reader(file) as stream:
            return _stream(source, name, _Bounded(stream), file)


class _Bounded:
    """A decompressed stream that counts its bytes and is limited in length."""

    def __init__(self, stream: IO[bytes]) -> None:
        self.stream, self.taken, self.beginning = stream, 0, b""

    def read(self, size: int = _STEP) -> bytes:
        """Return the next bytes.

        :raises _Enough: ``MOST_STREAMED`` bytes were read
        :raises Unreadable: the stream is broken
        """
        if self.taken >= MOST_STREAMED:
            raise _Enough
        try:
            data = self.stream.read(min(size, _STEP))
        except (OSError, EOFError, lzma.LZMAError, zlib.error, ValueError) as error:
            raise Unreadable(f"broken after {self.taken:,} unpacked bytes: {shown(str(error))}") from None
        self.taken += len(data)
        self.beginning = self.beginning or data[:512]
        return data


def _stream(source: Source, name: str, stream: _Bounded, file: IO[bytes]) -> Findings:
    beginning = stream.read(512)
    if beginning[257:262] == b"ustar":
        return _tar(source, f"tar archive in {name}", _Rejoined(stream, beginning), "r|")
    covered, whole = "all of it", True
    try:
        while stream.read():
            pass
    except _Enough:
        covered, whole = f"the first {stream.taken:,} unpacked bytes", False
    said = f"{name}: {counted(source.size, 'byte')}, unpacked {'' if whole else 'more than '}{counted(stream.taken, 'byte')}"
    if b"\x00" in beginning:
        begins = f"It begins with the bytes {beginning[:16].hex(' ')}"
    else:
        begins = f"It begins: {shown(beginning.decode('utf-8', 'replace'), characters=_BEGINNING)}"
    return Findings(lines=(said, *_doubtful_ratio(stream.taken, file.tell()), begins), covered=covered)


class _Rejoined:
    """A stream with its first bytes, which were read already, put back."""

    def __init__(self, stream: _Bounded, beginning: bytes) -> None:
        self.stream, self.beginning = stream, beginning

    def read(self, size: int = _STEP) -> bytes:
        parts, missing = [self.beginning[:size]], size - len(self.beginning[:size])
        self.beginning = self.beginning[size:]
        while missing > 0 and (data := self.stream.read(missing)):
            parts.append(data)
            missing -= len(data)
        return b"".join(parts)


def _zip(source: Source) -> Findings:
    # Only the list of entries is read: the sizes are what it claims.
    if list_bytes(source) < 0:
        raise Unreadable("no readable zip archive: its end is missing, it may be cut off")
    if list_bytes(source) > MOST_LIST_BYTES:
        raise Unreadable(f"its list of entries is larger than {MOST_LIST_BYTES:,} bytes")
    try:
        with zipfile.ZipFile(source.path) as archive:
            every = archive.infolist()
            comment = archive.comment.decode("utf-8", "replace")
    except (zipfile.BadZipFile, NotImplementedError, ValueError, UnicodeDecodeError) as error:
        raise Unreadable(f"no readable zip archive: {shown(str(error))}") from None
    entries = [
        _Entry(
            name=info.orig_filename or info.filename,
            size=info.file_size,
            is_folder=info.is_dir(),
            is_encrypted=bool(info.flag_bits & 1),
            problem=_problem(info.filename, is_link=stat.S_ISLNK(info.external_attr >> 16)),
        )
        for info in every
    ]
    lines = _lines(_ZIPS.get(source.suffix, "zip archive"), entries, source.size)
    return Findings(lines=[*lines, f"Comment: {shown(comment)}"] if comment else lines, covered="its list of entries")


class _Header(tarfile.TarInfo):
    # tarfile would read a long header whole into memory, however large it claims to be.
    def _proc_member(self, archive: tarfile.TarFile) -> tarfile.TarInfo:
        if self.type not in _ENTRY_TYPES and self.size > MOST_HEADER:
            raise tarfile.ReadError(f"a header is longer than {MOST_HEADER:,} bytes")
        return super()._proc_member(archive)  # type: ignore[misc,no-any-return]


def _tar(source: Source, title: str, file: Any, mode: Literal["r:", "r|"]) -> Findings:
    entries: list[_Entry] = []
    covered = "its list of entries"
    try:
        with tarfile.open(fileobj=file, mode=mode, tarinfo=_Header) as archive:
            entries.extend(_tar_entries(archive))
    except _Enough:
        covered = f"the entries in the first {MOST_STREAMED:,} unpacked bytes"
    except (tarfile.TarError, Unreadable, ValueError) as error:
        if not entries:
            raise Unreadable(f"no readable {title}: {shown(str(error))}") from None
        covered = f"the entries before it breaks: {shown(str(error))}"
    if len(entries) >= MOST_ENTRIES:
        covered = f"the first {MOST_ENTRIES:,} entries"
    return Findings(lines=_lines(title, entries, source.size), covered=covered)


def _tar_entries(archive: tarfile.TarFile) -> Iterator[_Entry]:
    for count, info in enumerate(archive, start=1):
        problem = _problem(info.name, is_link=info.issym() or info.islnk(), target=info.linkname)
        if info.ischr() or info.isblk() or info.isfifo():
            problem = "a device"
        yield _Entry(name=info.name, size=info.size, is_folder=info.isdir(), problem=problem)
        if count >= MOST_ENTRIES:
            return


def _problem(name: str, *, is_link: bool, target: str = "") -> str:
    if is_link:
        return f"a link to {shown(target)}" if target else "a link"
    if name.startswith(("/", "\\")) or name[1:2] == ":":
        return "an absolute path"
    return "leaves its folder" if ".." in name.replace("\\", "/").split("/") else ""


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
    if len(files) > SHOWN_ENTRIES:
        largest = sorted(files, key=lambda one: -one.size)[:LARGEST]
        lines.append(
            f"Folders and files at its top: {listed(dict.fromkeys(one.name.split('/')[0] for one in entries))}"
        )
        lines.append(f"Largest: {listed(f'{one.name} ({one.size:,})' for one in largest)}")
    lines += [f"{shown(one.name)}: {counted(one.size, 'byte')}" for one in files[:SHOWN_ENTRIES]]
    return lines if len(files) <= SHOWN_ENTRIES else [*lines, f"and {len(files) - SHOWN_ENTRIES:,} more files"]


def _doubtful_ratio(unpacked: int, packed: int) -> list[str]:
    if packed == 0 or unpacked // packed < SUSPICIOUS_RATIO:
        return []
    return [f"Unpacked it is {unpacked // packed:,} times as large: it may be meant to fill a disk"]
