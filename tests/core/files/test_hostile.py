"""Whatever a file holds, of whatever kind its name says it is: a short description comes, on lines of its own."""

from __future__ import annotations

import pkgutil

import pytest

from mnesis_core.files import kinds
from mnesis_core.files.detection import KINDS, Kind, explore
from mnesis_core.files.source import SUMMARY_CHARACTERS
from tests.core.files.conftest import MakeSource

PREFIX = f"{kinds.__name__}."
MODULES = {module.name.removeprefix(PREFIX) for module in pkgutil.walk_packages(kinds.__path__, PREFIX)}
HOSTILE = {
    "empty": b"",
    "one byte": b"\x80",
    "zeros": b"\x00" * 100_000,
    "no UTF-8": b"\xed\xa0\x80\xff\xc0name,\xfe\n" * 1_000,
    "UTF-16": '{"name": "<a>Grüße</a>"}\n'.encode("utf-16"),
    "half of UTF-16": b"\xff\xfea",
    "marks that turn": '"a\u202eb\u2066": {"\x1b[31m\x07": 1}\n'.encode() * 100,
    "lone surrogates": rb'{"\ud800": "\udfff"}',
    "open brackets": b"[" * 200_000,
    "open objects": b'{"a":' * 200_000,
    "open elements": b"<a>" * 200_000,
    "open parentheses": b"(" * 200_000,
    "open quotes": b'a,"' + b"x\n" * 200_000,
    "backslashes": b'"' + b"\\" * 300_001,
    "one long line": b"a, " * 400_000,
    "no spaces": b"a" * 1_000_000,
    "empty lines": b"\n" * 300_000,
    "a name of 100,000 characters": b'{"' + b"n" * 100_000 + b'": 1}',
}


SLOW = ("code", "python")
"""Parsers of languages take minutes for some of these; only the process of its own (``alone``) ends them."""


def made_for(kind: Kind, data: bytes) -> bytes:
    """Data that begins as a file of the kind does, so that its own parser gets it."""
    return (kind.magic[0] if kind.magic else b"") + (data[:2_000] if kind.module in SLOW else data)


@pytest.mark.slow
@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind.module in MODULES], ids=lambda kind: kind.name)
def test_every_kind_describes_any_bytes(source: MakeSource, kind: Kind, subtests: pytest.Subtests) -> None:
    for name, data in HOSTILE.items():
        with subtests.test(name):
            found = explore(source(f"file{kind.suffixes[0]}", made_for(kind, data)))
            assert found.summary
            assert len(found.summary) <= SUMMARY_CHARACTERS + 100
            assert "\x00" not in found.summary
            assert found.summary.replace("\n", "").isprintable()
            assert found.covered.isprintable()
            assert found.problem.isprintable()
