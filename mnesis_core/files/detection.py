"""The kind of a file: by its first bytes where they are clear, else by its name, else by what it looks like.

Bytes come first: a program renamed to ``.txt`` is not text, and a ``.csv`` may be a spreadsheet.
"""

from __future__ import annotations

import json
import re
import struct
from dataclasses import dataclass
from pathlib import PurePosixPath

from mnesis_core.files.source import HEAD_BYTES, Source, encoding_of

BINARY, TEXT = "binary", "text"


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    name: str
    module: str
    suffixes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    magic: tuple[bytes, ...] = ()
    # Raise it when the module says something else of the same bytes, so that files are explored again.
    version: int = 1

    @property
    def explorer(self) -> str:
        """Return the explorer's name and version, as ``csv-1``: a stored exploration is valid for this one only."""
        return f"{self.module.rpartition('.')[2]}-{self.version}"


def _code(name: str, *suffixes: str, names: tuple[str, ...] = ()) -> Kind:
    return Kind(name=name, module="code", suffixes=suffixes, names=names)


# In the order in which they are tried.
KINDS: tuple[Kind, ...] = (
    Kind(name="sqlite", module="sqlite", suffixes=(".sqlite", ".sqlite3", ".db"), magic=(b"SQLite format 3\x00",)),
    Kind(name="parquet", module="parquet", suffixes=(".parquet",), magic=(b"PAR1",)),
    Kind(name="pdf", module="pdf", suffixes=(".pdf",), magic=(b"%PDF-",)),
    Kind(
        name="image",
        module="image",
        suffixes=(".png", ".jpg", ".jpeg", ".gif", ".bmp", ".tif", ".tiff", ".webp", ".ico", ".avif"),
        magic=(b"\x89PNG\r\n\x1a\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\x00", b"MM\x00*"),
    ),
    Kind(name="docx", module="office.docx", suffixes=(".docx",)),
    Kind(name="xlsx", module="office.xlsx", suffixes=(".xlsx", ".xlsm")),
    Kind(name="pptx", module="office.pptx", suffixes=(".pptx",)),
    Kind(
        name="archive",
        module="archive",
        suffixes=(".zip", ".tar", ".gz", ".tgz", ".bz2", ".tbz2", ".xz", ".txz", ".jar", ".whl"),
        magic=(b"PK\x03\x04", b"PK\x05\x06", b"\x1f\x8b", b"BZh", b"\xfd7zXZ\x00"),
    ),
    Kind(name="python", module="python", suffixes=(".py", ".pyi")),
    _code("javascript", ".js", ".mjs", ".cjs", ".jsx"),
    _code("typescript", ".ts", ".mts", ".cts"),
    _code("tsx", ".tsx"),
    _code("rust", ".rs"),
    _code("go", ".go"),
    _code("java", ".java"),
    _code("c", ".c", ".h"),
    _code("cpp", ".cc", ".cpp", ".cxx", ".hh", ".hpp", ".hxx"),
    _code("csharp", ".cs"),
    _code("ruby", ".rb", names=("gemfile", "rakefile")),
    _code("php", ".php"),
    _code("shell", ".sh", ".bash", names=(".bashrc", ".profile")),
    Kind(name="notebook", module="notebook", suffixes=(".ipynb",)),
    Kind(name="json", module="json", suffixes=(".json", ".jsonc", ".geojson", ".topojson", ".webmanifest", ".har")),
    Kind(name="jsonl", module="json_lines", suffixes=(".jsonl", ".ndjson", ".jsonlines")),
    Kind(name="yaml", module="yaml", suffixes=(".yaml", ".yml")),
    Kind(name="toml", module="toml", suffixes=(".toml",)),
    Kind(
        name="xml",
        module="markup.xml",
        suffixes=(".xml", ".svg", ".xsd", ".xsl", ".xslt", ".rss", ".atom", ".kml", ".gpx", ".plist", ".wsdl"),
        magic=(b"<?xml",),
    ),
    Kind(name="html", module="markup.html", suffixes=(".html", ".htm", ".xhtml")),
    Kind(name="csv", module="csv", suffixes=(".csv",)),
    Kind(name="tsv", module="csv", suffixes=(".tsv", ".tab")),
    Kind(name="sql", module="sql", suffixes=(".sql",)),
    Kind(name="markdown", module="markup.markdown", suffixes=(".md", ".markdown", ".mdx")),
    Kind(name="email", module="email", suffixes=(".eml",)),
    Kind(name="log", module="log", suffixes=(".log",), names=("syslog", "messages", "dmesg")),
    Kind(name=TEXT, module="text", suffixes=(".txt", ".rst", ".text")),
    Kind(name=BINARY, module="binary", suffixes=(".bin", ".dat", ".exe", ".so", ".o")),
)
BY_NAME = {kind.name: kind for kind in KINDS}
_BY_SUFFIX = {suffix: kind for kind in reversed(KINDS) for suffix in kind.suffixes}
_BY_FILE_NAME = {name: kind for kind in reversed(KINDS) for name in kind.names}
_OFFICE = {b"word/": "docx", b"xl/": "xlsx", b"ppt/": "pptx"}
_SHEBANGS = (("python", "python"), ("node", "javascript"), ("ruby", "ruby"), ("php", "php"), ("sh", "shell"))
_BINARY_SUFFIXES = {"sqlite", "parquet", "pdf", "image", "docx", "xlsx", "pptx", "archive", BINARY}
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
_HEADER = re.compile(r"^(From|To|Subject|Date|Received|Return-Path|Message-ID|MIME-Version): ", re.I)


def detect(source: Source) -> Kind:
    head = source.head()
    by_name = _BY_FILE_NAME.get(PurePosixPath(source.name).name.lower()) or _BY_SUFFIX.get(source.suffix)
    if _ROTATED.search(source.name.lower()) and not is_binary(head) and _by_bytes(source, head) is None:
        return BY_NAME["log"]
    found = _by_bytes(source, head) or (None if by_name is None else _agreeing(by_name, head))
    return found or BY_NAME[BINARY if is_binary(head) else _looks_like(head)]


def kind_of_text(data: bytes) -> Kind:
    """Return the kind of a text without a name, by its beginning."""
    return BY_NAME[_looks_like(data[:HEAD_BYTES])]


def is_text(name: str) -> bool:
    return name not in _BINARY_SUFFIXES and name in BY_NAME


def plain_kind(source: Source) -> Kind:
    """Return text or binary, whatever the file's name says."""
    return BY_NAME[BINARY if is_binary(source.head()) else TEXT]


def _by_bytes(source: Source, head: bytes) -> Kind | None:
    if _is_image(head):
        return BY_NAME["image"]
    if head[257:262] == b"ustar":
        return BY_NAME["archive"]
    found = next((kind for kind in KINDS if head.startswith(kind.magic)), None)
    if found is BY_NAME["archive"] and head.startswith(b"PK"):
        return BY_NAME[_office_kind(source)]
    # A page or a drawing is XML too: its name says more.
    return None if found is BY_NAME["xml"] and source.suffix in _BY_SUFFIX else found


def _is_image(head: bytes) -> bool:
    # Some marks are not at the beginning, others so short that a text may begin with them.
    if head[:4] == b"RIFF":
        return head[8:12] == b"WEBP"
    if head[4:8] == b"ftyp":
        return head[8:12] in (b"avif", b"avis")
    return is_binary(head) and head.startswith((b"BM", b"\x00\x00\x01\x00"))


def _office_kind(source: Source) -> str:
    names = list_beginning(source, HEAD_BYTES)
    by_suffix = source.suffix.removeprefix(".")
    if not names and by_suffix in _OFFICE.values():
        return by_suffix
    if b"[Content_Types].xml" not in names:
        return "archive"
    return next((kind for folder, kind in _OFFICE.items() if folder in names), "archive")


def _agreeing(by_name: Kind, head: bytes) -> Kind | None:
    never_text = by_name.name in _BINARY_SUFFIXES
    if never_text and by_name.magic:
        return None
    return by_name if never_text or not is_binary(head) else None


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


# The list of entries at the end of a zip file is found without reading it, since it may be of any size.

# The end record with its longest comment.
_TAIL = 65_557
_END, _END_64 = b"PK\x05\x06", b"PK\x06\x06"


def list_bytes(source: Source) -> int:
    """Return the length that the list of a zip file's entries claims to have; -1 if there is none."""
    tail = _tail(source)
    at, at_64 = tail.rfind(_END), tail.rfind(_END_64)
    if at < 0 or len(tail) < at + 22:
        return -1
    if at_64 >= 0 and len(tail) >= at_64 + 48:
        return int(struct.unpack_from("<Q", tail, at_64 + 40)[0])
    return int(struct.unpack_from("<L", tail, at + 12)[0])


def list_beginning(source: Source, limit: int) -> bytes:
    """Return the first bytes of the list, which hold the first entries' names."""
    tail, length = _tail(source), list_bytes(source)
    at = tail.rfind(_END_64) if _END_64 in tail else tail.rfind(_END)
    start = source.size - len(tail) + at - length
    if length < 0 or start < 0:
        return b""
    with source.path.open("rb") as file:
        file.seek(start)
        return file.read(min(limit, length))


def _tail(source: Source) -> bytes:
    with source.path.open("rb") as file:
        file.seek(max(0, source.size - _TAIL))
        return file.read(_TAIL)
