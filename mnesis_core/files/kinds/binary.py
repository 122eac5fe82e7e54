"""Bytes of no known kind: what their first ones say that they are, how many, and what text is in their beginning."""

from __future__ import annotations

import re

from mnesis_core.files.source import HEAD_BYTES, Findings, Source, counted, listed

_WORDS = re.compile(rb"[\x20-\x7e]{6,200}")
# Offset, bytes, and what they mean; the first that fits.
_MAGIC: tuple[tuple[int, bytes, str], ...] = (
    (0, b"\xfe\xed\xfa", "program or library (Mach-O, macOS)"),
    (0, b"\xcf\xfa\xed\xfe", "program or library (Mach-O, macOS, 64 bit)"),
    (0, b"\xce\xfa\xed\xfe", "program or library (Mach-O, macOS, 32 bit)"),
    (0, b"\x00asm", "WebAssembly module"),
    (0, b"dex\n", "Android program (DEX)"),
    (0, b"BC\xc0\xde", "LLVM bitcode"),
    (0, b"!<arch>\n", "static library or Debian package (ar)"),
    (0, b"\x00\x01\x00\x00\x00", "font (TrueType)"),
    (0, b"OTTO", "font (OpenType)"),
    (0, b"ttcf", "collection of fonts (TrueType)"),
    (0, b"wOFF", "font (WOFF)"),
    (0, b"wOF2", "font (WOFF2)"),
    (0, b"MThd", "music (MIDI)"),
    (0, b"\x1aE\xdf\xa3", "video (Matroska or WebM)"),
    (0, b"FLV\x01", "video (Flash)"),
    (0, b"\x00\x00\x01\xba", "video (MPEG)"),
    (4, b"ftypheic", "picture (HEIC)"),
    (4, b"ftypqt", "video (QuickTime)"),
    (4, b"ftyp", "video or audio (MP4)"),
    (8, b"AVI ", "video (AVI)"),
    (8, b"AIFF", "audio (AIFF)"),
    (0, b"7z\xbc\xaf\x27\x1c", "archive (7z)"),
    (0, b"Rar!\x1a\x07", "archive (RAR)"),
    (0, b"\x28\xb5\x2f\xfd", "compressed data (Zstandard)"),
    (0, b"\x04\x22\x4d\x18", "compressed data (LZ4)"),
    (0, b"MSCF", "archive (Microsoft Cabinet)"),
    (0, b"\xed\xab\xee\xdb", "package (RPM)"),
    (0, b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1", "document of an office program, old or encrypted (OLE)"),
    (0, b"\x89HDF\r\n\x1a\n", "scientific data (HDF5)"),
    (0, b"\x93NUMPY", "array (NumPy)"),
    (0, b"ARROW1", "table (Arrow)"),
    (0, b"ORC", "table (ORC)"),
    (0, b"Obj\x01", "records (Avro)"),
    (0, b"GGUF", "weights of a language model (GGUF)"),
    (0, b"\xde\x12\x04\x95", "translations (gettext)"),
    (0, b"\x0a\x0d\x0d\x0a", "network capture (pcapng)"),
    (0, b"\xd4\xc3\xb2\xa1", "network capture (pcap)"),
    (0, b"-----BEGIN", "keys or certificates (PEM)"),
)
_ELF_KINDS = {1: "object file", 2: "program", 3: "library or program", 4: "memory of a crashed program"}
_MACHINES = {0x03: "x86", 0x28: "ARM", 0x3E: "x86-64", 0xB7: "ARM64", 0xF3: "RISC-V"}
_PE_MACHINES = {0x014C: "x86", 0x8664: "x86-64", 0xAA64: "ARM64"}
# Fat Mach-O files begin alike, but with a small number of programs where a class has its version, 45 or more.
_JAVA_CLASS, _FIRST_JAVA = b"\xca\xfe\xba\xbe", 44


def explore(source: Source) -> Findings:
    head = source.head()
    words = dict.fromkeys(match.decode("ascii").strip() for match in _WORDS.findall(head))
    known = recognised(head)
    return Findings(
        lines=(
            *([f"It is: {known}"] if known else []),
            counted(source.size, "byte"),
            f"It begins with the bytes {head[:16].hex(' ')}",
            f"Readable in it: {listed(word for word in words if word)}",
        ),
        covered=source.covered_by(HEAD_BYTES),
    )


def recognised(head: bytes) -> str:
    if head.startswith(b"\x7fELF") and len(head) >= 20:
        order = "big" if head[5] == 2 else "little"
        kind = int.from_bytes(head[16:18], order)  # type: ignore[arg-type]
        machine = int.from_bytes(head[18:20], order)  # type: ignore[arg-type]
        bits = {1: "32 bit", 2: "64 bit"}.get(head[4], "unknown size")
        return f"{_ELF_KINDS.get(kind, 'file')} (ELF, {bits}, {_MACHINES.get(machine, f'machine {machine}')})"
    if head.startswith(b"MZ"):
        at = int.from_bytes(head[60:64], "little")
        if head[at : at + 4] != b"PE\0\0":
            return "program (DOS)"
        machine = int.from_bytes(head[at + 4 : at + 6], "little")
        is_library = bool(int.from_bytes(head[at + 22 : at + 24], "little") & 0x2000)
        what = "library" if is_library else "program"
        return f"{what} (Windows, {_PE_MACHINES.get(machine, f'machine {machine}')})"
    if head.startswith(_JAVA_CLASS) and len(head) >= 8:
        version = int.from_bytes(head[6:8], "big")
        if version > _FIRST_JAVA:
            return f"Java class (Java {version - _FIRST_JAVA})"
        return "programs or libraries (Mach-O, macOS)"
    return next((said for at, mark, said in _MAGIC if head[at : at + len(mark)] == mark), "")
