"""What the pages make of a file: its facts in words, its lines with colours, bytes as a table of hexadecimal digits."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from django.utils.html import escape
from django.utils.safestring import SafeString, mark_safe

from files_app.contents import find_size, read_content
from mnesis_core.exploration.detection import BY_NAME, is_text
from mnesis_core.file_lines import FileLine
from mnesis_core.record import FileReference
from sessions_app.colours import LONGEST_LINE, colour_lines
from sessions_app.rendering import format_count, show_invisible

LEXED = {
    **{
        kind: kind for kind in ("python", "javascript", "typescript", "tsx", "rust", "go", "java", "c", "cpp", "csharp")
    },
    **{kind: kind for kind in ("ruby", "php", "json", "yaml", "toml", "xml", "html", "sql", "markdown")},
    "shell": "bash",
    "jsonl": "json",
    "notebook": "json",
}
"""The kinds that have colours, and the lexer of each. A list, so that no name of a file picks any other."""
HEX_BYTES = 4_096
HEX_ROW = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownFile:
    """A file as lists and its page show it."""

    id: str
    session_id: str
    name: str
    """The last part of its path."""
    path: str
    kind: str
    size: str
    tokens: str
    file: FileReference

    @property
    def has_folder(self) -> bool:
        """Whether its path says more than its name."""
        return self.path != self.name

    @property
    def problem(self) -> str:
        """Why it was not explored as what it is; empty where it was."""
        return show_invisible(str((self.file.exploration or {}).get("problem") or ""))

    @property
    def covered(self) -> str:
        """How much of it was looked at."""
        return show_invisible(str((self.file.exploration or {}).get("covered") or ""))

    @property
    def summary(self) -> str:
        """What it holds, as far as somebody knows."""
        return show_invisible(self.file.exploration_summary)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownLine:
    """One line of a text, ready to be shown."""

    number: int
    html: SafeString
    is_cut: bool


def shown_file(file: FileReference) -> ShownFile:
    """A file with its facts as words."""
    path = show_invisible(file.path)
    size = find_size(file.content_id) if file.size is None else file.size
    return ShownFile(
        id=file.id,
        session_id=file.session_id,
        name=path.rstrip("/").rpartition("/")[2] or path or file.id,
        path=path,
        kind="" if file.file_type == "unknown" else show_invisible(file.file_type),
        size="" if size is None else format_size(size),
        tokens=format_count(file.token_count),
        file=file,
    )


def format_size(size: int) -> str:
    """Bytes for people: ``842 B``, ``12.4 KB``, ``1.2 MB`` (of a thousand)."""
    for unit, least in (("GB", 1_000_000_000), ("MB", 1_000_000), ("KB", 1_000)):
        if size >= least:
            number = size / least
            return (f"{number:.1f}".removesuffix(".0") if number < 99.95 else f"{number:.0f}") + f" {unit}"
    return f"{size} B"


def may_be_text(file: FileReference) -> bool:
    """Whether its content is to be shown by lines, as far as its kind says."""
    return file.file_type not in BY_NAME or is_text(file.file_type)


def leading_lines(file_type: str) -> int:
    """How many lines before a stretch are read along, so that a comment or text that began there has its colour."""
    return 100 if file_type in LEXED else 0


def shown_lines(lines: Sequence[FileLine], *, file_type: str, leading: int = 0) -> list[ShownLine]:
    """Lines with colours; the first ``leading`` of them only say where the others stand."""
    colours = _coloured(lines, file_type) or [escape(show_invisible(line.text)) for line in lines]
    shown = [
        ShownLine(number=line.number, html=html, is_cut=line.is_cut) for line, html in zip(lines, colours, strict=True)
    ]
    return shown[leading:]


def _coloured(lines: Sequence[FileLine], file_type: str) -> list[SafeString] | None:
    if file_type not in LEXED or any(len(line.text) > LONGEST_LINE for line in lines):
        return None
    html = colour_lines("\n".join(show_invisible(line.text) for line in lines), LEXED[file_type])
    return [mark_safe(line) for line in html] if len(html) == len(lines) else None  # noqa: S308 - escaped


def shown_bytes(content_id: str) -> str:
    """The beginning of a content as offsets, hexadecimal digits and ASCII characters."""
    return "\n".join(_hex_rows(read_content(content_id, 0, HEX_BYTES)))


def _hex_rows(data: bytes) -> Iterator[str]:
    for offset in range(0, len(data), HEX_ROW):
        row = data[offset : offset + HEX_ROW]
        left, right = (row[begin : begin + 8].hex(" ").ljust(23) for begin in (0, 8))
        letters = "".join(chr(byte) if 32 <= byte < 127 else "·" for byte in row)
        yield f"{offset:08x}  {left}  {right}  {letters}"
