"""Bytes of no known kind: what their mark says that they are."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from mnesis_core.files.kinds.binary import explore, recognised
from tests.core.files.conftest import MakeSource


@pytest.mark.parametrize(
    ("head", "said"),
    [
        (b"\x7fELF\x02\x01\x01" + bytes(9) + b"\x02\x00\x3e\x00", "program (ELF, 64 bit, x86-64)"),
        (b"\x7fELF\x01\x02\x01" + bytes(9) + b"\x00\x01\x00\x28", "object file (ELF, 32 bit, ARM)"),
        (b"MZ" + bytes(58) + b"\x40\0\0\0PE\0\0\x64\x86" + bytes(16) + b"\x00\x20", "library (Windows, x86-64)"),
        (b"MZ", "program (DOS)"),
        (b"\xca\xfe\xba\xbe\x00\x00\x00\x3d", "Java class (Java 17)"),
        (b"\xca\xfe\xba\xbe\x00\x00\x00\x02", "programs or libraries (Mach-O, macOS)"),
        (b"\xcf\xfa\xed\xfe", "program or library (Mach-O, macOS, 64 bit)"),
        (b"OTTO", "font (OpenType)"),
        (b"\x00\x00\x00\x18ftypisom", "video or audio (MP4)"),
        (b"\x00\x01\x02\x03", ""),
        (b"", ""),
    ],
)
def test_a_mark_is_recognised(head: bytes, said: str) -> None:
    assert recognised(head) == said


def test_what_it_is_comes_first_and_then_what_can_be_read(source: MakeSource) -> None:
    findings = explore(source("a.bin", b"OTTO\x00\x01readable words\x00\x01ab\x00"))
    assert list(findings.lines) == [
        "It is: font (OpenType)",
        "25 bytes",
        "It begins with the bytes 4f 54 54 4f 00 01 72 65 61 64 61 62 6c 65 20 77",
        "Readable in it: readable words",
    ]


def test_a_program_of_this_machine_is_one(source: MakeSource) -> None:
    head = Path(sys.executable).read_bytes()[:4096]
    assert "program" in recognised(head)
