"""Exploring a file: its kind is found, and the module of that kind asked.

The kind is found by the first bytes where they are clear, else by the name, else by what it looks like: a program renamed to ``.txt`` is not text, and a ``.csv`` may be a spreadsheet.
"""

from __future__ import annotations

import importlib
import json
import re
import struct
from dataclasses import dataclass
from pathlib import PurePosixPath

from mnesis_core.files.source import HEAD_BYTES, SUMMARY_CHARACTERS, Findings, Source, Unreadable, encoding_of, shown

BINARY, TEXT = "binary", "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    module: str  # in ``kinds/``
    function: str = "explore"  # A module of several kinds has a function for each, as ``explore_toml``.
    suffixes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    magic: tuple[bytes, ...] = ()
    # Raise it when the module says something else of the same bytes, so that files are explored again.
    version: int = 1

    @property
    def explorer(self) -> str:
        """Return the explorer's name and version, as ``csv-1``: a stored exploration is valid for this one only."""
        name = self.module if self.function == "explore" else self.function.removeprefix("explore_")
        return f"{name}-{self.version}"


def _kind(
    name: str,
    suffixes: str,
    *,
    module: str = "",
    function: str = "",
    names: str = "",
    magic: tuple[bytes, ...] = (),
    version: int = 1,
) -> Kind:
    return Kind(
        name=name,
        module=module or name,
        function=function or "explore",
        suffixes=tuple(suffixes.split()),
        names=tuple(names.split()),
        magic=magic,
        version=version,
    )


_MP3_FRAMES = (b"\xff\xfb", b"\xff\xfa", b"\xff\xf3", b"\xff\xf2")  # An MP3 may begin without a tag.
# In the order in which they are tried.
KINDS: tuple[Kind, ...] = (
    _kind("sqlite", ".sqlite .sqlite3 .db", module="sql", function="explore_sqlite", magic=(b"SQLite format 3\x00",)),
    _kind("parquet", ".parquet", magic=(b"PAR1",)),
    _kind("pdf", ".pdf", magic=(b"%PDF-",)),
    _kind(
        "image",
        ".png .jpg .jpeg .gif .bmp .tif .tiff .webp .ico .avif",
        magic=(b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\x00", b"MM\x00*"),
    ),
    _kind("audio", ".wav .mp3 .ogg .flac .m4a .aac .opus", magic=(b"ID3", *_MP3_FRAMES, b"OggS", b"fLaC")),
    _kind("docx", ".docx"),
    _kind("xlsx", ".xlsx .xlsm"),
    _kind("pptx", ".pptx"),
    _kind(
        "archive",
        ".zip .tar .gz .tgz .bz2 .tbz2 .xz .txz .jar .whl",
        magic=(b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00"),
    ),
    _kind("python", ".py .pyi"),
    _kind("javascript", ".js .mjs .cjs .jsx", module="code"),
    _kind("typescript", ".ts .mts .cts", module="code"),
    _kind("tsx", ".tsx", module="code"),
    _kind("rust", ".rs", module="code"),
    _kind("go", ".go", module="code"),
    _kind("java", ".java", module="code"),
    _kind("c", ".c .h", module="code"),
    _kind("cpp", ".cc .cpp .cxx .hh .hpp .hxx", module="code"),
    _kind("csharp", ".cs", module="code"),
    _kind("ruby", ".rb", module="code", names="gemfile rakefile"),
    _kind("php", ".php", module="code"),
    _kind("shell", ".sh .bash", module="code", names=".bashrc .profile"),
    _kind("notebook", ".ipynb", module="json", function="explore_notebook"),
    _kind("json", ".json .jsonc .geojson .topojson .webmanifest .har"),
    _kind("jsonl", ".jsonl .ndjson .jsonlines", module="json", function="explore_json_lines"),
    _kind("yaml", ".yaml .yml"),
    _kind("toml", ".toml", module="yaml", function="explore_toml"),
    _kind(
        "xml",
        ".xml .svg .xsd .xsl .xslt .rss .atom .kml .gpx .plist .wsdl",
        module="markup",
        function="explore_xml",
        magic=(b"<?xml",),
    ),
    _kind("html", ".html .htm .xhtml", module="markup", function="explore_html"),
    _kind("csv", ".csv"),
    _kind("tsv", ".tsv .tab", module="csv"),
    _kind("sql", ".sql"),
    _kind("markdown", ".md .markdown .mdx", module="markup", function="explore_markdown"),
    _kind("email", ".eml", module="text", function="explore_email"),
    _kind("log", ".log", module="text", function="explore_log", names="syslog messages dmesg"),
    _kind(TEXT, ".txt .rst .text"),
    _kind(BINARY, ".bin .dat .exe .so .o"),
)
BY_NAME = {kind.name: kind for kind in KINDS}
_BY_SUFFIX = {suffix: kind for kind in reversed(KINDS) for suffix in kind.suffixes}
_BY_FILE_NAME = {name: kind for kind in reversed(KINDS) for name in kind.names}
MARK_BYTES = 16  # by which a media type is told
_MEDIA_MARKS = (
    (b"\x89PNG\r\n\x1a\n", "image/png"),
    (b"\xff\xd8\xff", "image/jpeg"),
    (b"GIF87a", "image/gif"),
    (b"GIF89a", "image/gif"),
    (b"%PDF-", "application/pdf"),
    *((mark, "audio/mpeg") for mark in (b"ID3", *_MP3_FRAMES)),
    (b"OggS", "audio/ogg"),
    (b"fLaC", "audio/flac"),
)
_MEDIA_SUFFIXES = {
    **{".png": "image/png", ".jpg": "image/jpeg", ".jpeg": "image/jpeg", ".gif": "image/gif", ".svg": "image/svg+xml"},
    **{".webp": "image/webp", ".avif": "image/avif", ".bmp": "image/bmp", ".tif": "image/tiff", ".tiff": "image/tiff"},
    **{".mp3": "audio/mpeg", ".wav": "audio/wav", ".ogg": "audio/ogg", ".flac": "audio/flac", ".m4a": "audio/mp4"},
    **{
        ".pdf": "application/pdf",
        ".txt": "text/plain",
        ".md": "text/markdown",
        ".html": "text/html",
        ".csv": "text/csv",
    },
}
SUFFIXES = {media_type: suffix for suffix, media_type in reversed(_MEDIA_SUFFIXES.items())}
_OFFICE = ((b"word/", "docx"), (b"xl/", "xlsx"), (b"ppt/", "pptx"))
_SHEBANGS = (("python", "python"), ("node", "javascript"), ("ruby", "ruby"), ("php", "php"), ("sh", "shell"))
_NO_TEXT = {"sqlite", "parquet", "pdf", "image", "audio", "docx", "xlsx", "pptx", "archive", BINARY}
_TIME = re.compile(
    r"^\W?(\d{4}[-/]\d\d[-/]\d\d[T ]\d\d:\d\d|[A-Z][a-z]{2} [ \d]\d \d\d:\d\d:\d\d|\[ *\d+\.\d{6}\]"
    r"|\S{1,100} \S{1,100} \S{1,100} \[\d\d/[A-Z][a-z]{2}/\d{4}:)"
)
# More than a bracket: ``[INFO] started`` and ``[1] a book`` are not JSON.
_JSON = re.compile(
    r"\s*(\{\s*[\"}/]|\[\s*([\"{\[\]/]|(true|false|null|-?\d[\d.eE+-]*)\s*(,|\]\s*$)))",
)
_ROTATED = re.compile(r"\.log[.-][\d.-]+$")
_DUMP = re.compile(
    r"(-- (MySQL|MariaDB|PostgreSQL|phpMyAdmin|PostgreSQL database) |--\n-- PostgreSQL|PRAGMA foreign_keys=OFF;)"
)
_ZIP_TAIL = 65_557  # The end record of a zip file with its longest comment.
_ZIP_END, _ZIP_END_64 = b"PK\x05\x06", b"PK\x06\x06"
_HEADER = re.compile(r"^(From|To|Subject|Date|Received|Return-Path|Message-ID|MIME-Version): ", re.I)


def detect(source: Source) -> Kind:
    head = source.head()
    # Some marks of images are not at the beginning, others so short that a text may begin with them.
    if head[:4] == b"RIFF" or head[4:8] == b"ftyp":
        media = media_type_of(head, "").partition("/")[0]
        found = BY_NAME.get(media)
    else:
        is_image = head.startswith((b"BM", b"\x00\x00\x01\x00")) and is_binary(head)
        found = BY_NAME["image"] if is_image else None
    if found is not None:
        return found
    if head[257:262] == b"ustar":
        return BY_NAME["archive"]
    found = next((kind for kind in KINDS if head.startswith(kind.magic)), None)
    if found is BY_NAME["archive"] and head.startswith(b"PK"):
        start, length = zip_list(source)
        names = source.read(start, min(length, HEAD_BYTES)) if start >= 0 else b""
        if not names and source.suffix in (".docx", ".xlsx", ".pptx"):
            return BY_NAME[source.suffix[1:]]
        is_office = b"[Content_Types].xml" in names
        return next((BY_NAME[kind] for folder, kind in _OFFICE if is_office and folder in names), found)
    # A page or a drawing is XML too: its name says more.
    if found is not None and (found is not BY_NAME["xml"] or source.suffix not in _BY_SUFFIX):
        return found
    has_text = not is_binary(head)
    if has_text and _ROTATED.search(source.name.lower()):
        return BY_NAME["log"]
    by_name = _BY_FILE_NAME.get(PurePosixPath(source.name).name.lower()) or _BY_SUFFIX.get(source.suffix)
    # A file of a kind with magic bytes would begin with them.
    if by_name is not None and (has_text if is_text(by_name.name) else not by_name.magic):
        return by_name
    return BY_NAME[_looks_like(head) if has_text else BINARY]


def media_type_of(head: bytes, name: str) -> str:
    """Return the media type of a picture, a sound or a document, by its first bytes, else by its name."""
    found = next((kind for mark, kind in _MEDIA_MARKS if head.startswith(mark)), "")
    if head[:4] == b"RIFF":
        found = {b"WEBP": "image/webp", b"WAVE": "audio/wav"}.get(head[8:12], "")
    elif head[4:8] == b"ftyp":
        found = {b"avif": "image/avif", b"avis": "image/avif", b"M4A ": "audio/mp4"}.get(head[8:12], "video/mp4")
    return found or _MEDIA_SUFFIXES.get(PurePosixPath(name).suffix.lower(), "application/octet-stream")


def kind_of_text(data: bytes) -> Kind:
    return BY_NAME[_looks_like(data[:HEAD_BYTES])]


def is_text(name: str) -> bool:
    return name not in _NO_TEXT and name in BY_NAME


def plain_kind(source: Source) -> Kind:
    return BY_NAME[BINARY if is_binary(source.head()) else TEXT]


def is_binary(head: bytes) -> bool:
    # Only UTF-16 and UTF-32 texts hold NULs, and they begin with a mark.
    if head.startswith((b"\xff\xfe", b"\xfe\xff", b"\x00\x00\xfe\xff")):
        return False
    control = sum(head.count(byte) for byte in (0, 1, 2, 3, 4, 5, 6))
    return b"\x00" in head[:1024] or control * 100 > len(head)


def _looks_like(head: bytes) -> str:
    text = head.decode(encoding_of(head), "replace").lstrip("\ufeff")
    first, _, rest = text.partition("\n")
    if first.startswith("#!"):
        return next((kind for word, kind in _SHEBANGS if word in first), TEXT)
    if _JSON.match(text):
        try:
            json.loads(first)
        except (ValueError, RecursionError):
            return "json"
        return "jsonl" if rest.lstrip().startswith(("{", "[")) else "json"
    if re.match(r"\s*<(!doctype html|html)\b", text, re.I):
        return "html"
    if text.startswith("<?xml"):
        return "xml"
    if _DUMP.match(text):
        return "sql"
    if _HEADER.match(first) and _HEADER.match(rest):
        return "email"
    lines = text.splitlines()[:20]
    return "log" if sum(_TIME.match(line) is not None for line in lines) * 2 > len(lines) else TEXT


def zip_list(source: Source) -> tuple[int, int]:
    """Return where the list of a zip file's entries begins and how long it claims to be; -1 and -1 if there is none.

    The list may be of any size, so it is found by the record at the file's end, without being read.
    """
    before = max(0, source.size - _ZIP_TAIL)
    tail = source.read(before, _ZIP_TAIL)
    at, at_64 = tail.rfind(_ZIP_END), tail.rfind(_ZIP_END_64)
    if at < 0 or len(tail) < at + 22:
        return -1, -1
    if at_64 >= 0 and len(tail) >= at_64 + 48:
        [length] = struct.unpack_from("<Q", tail, at_64 + 40)
    else:
        [length] = struct.unpack_from("<L", tail, at + 12)
    return before + (at if at_64 < 0 else at_64) - length, length


PROBLEM_CHARACTERS = 300


@dataclass(frozen=True, slots=True, kw_only=True)
class Exploration:
    kind: str
    explorer: str  # the module's name and version, as ``csv-1``
    summary: str
    covered: str
    # Why the kind's own module could not read the file; the summary then describes its text or bytes.
    problem: str = ""


def explore(source: Source) -> Exploration:
    """Describe a file. One that its kind's module cannot read is described as text or bytes, with the reason."""
    kind = detect(source)
    try:
        return _exploration(kind, kind, source)
    except Unreadable as error:
        problem = _message(source, error)
    except MemoryError:
        problem = "it needs more memory than it may have"
    except RecursionError:
        problem = "it is nested too deeply"
    except Exception as error:  # a parser meets other people's bytes, and may raise anything
        problem = f"its parser gave up ({type(error).__name__}: {_message(source, error)})"
    return explore_plainly(source, kind, problem=problem)


def explore_plainly(source: Source, kind: Kind, *, problem: str) -> Exploration:
    return _exploration(kind, plain_kind(source), source, problem=problem)


def _message(source: Source, error: Exception) -> str:
    return shown(str(error).replace(str(source.path), source.name), characters=PROBLEM_CHARACTERS)


def _exploration(kind: Kind, read_as: Kind, source: Source, *, problem: str = "") -> Exploration:
    # Not at the top: loading the parsers of every kind would take a second and much of the memory that one may have.
    module = importlib.import_module(f"mnesis_core.files.kinds.{read_as.module}")
    findings: Findings = getattr(module, read_as.function)(source)
    lines = [f"Not read as {kind.name}: {problem}"] if problem else []
    return Exploration(
        kind=kind.name,
        explorer=kind.explorer,
        summary=fitting([*lines, *findings.lines]),
        covered=findings.covered,
        problem=problem,
    )


def fitting(lines: list[str]) -> str:
    kept: list[str] = []
    length = 0
    for line in lines:
        length += len(line) + 1
        if length > SUMMARY_CHARACTERS:
            return "\n".join([*kept, f"({len(lines) - len(kept):,} more lines are left out)"])
        kept.append(line)
    return "\n".join(kept)
