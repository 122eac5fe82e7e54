"""Archives: what is in them, without unpacking them, whatever they claim."""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zipfile

import pytest

from mnesis_core.files.detection import detect
from mnesis_core.files.kinds import archive
from mnesis_core.files.kinds.archive import explore
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource


def zipped(files: dict[str, bytes]) -> bytes:
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as written:
        for name, data in files.items():
            written.writestr(name, data)
    return target.getvalue()


def tarred(files: dict[str, bytes], *more: tarfile.TarInfo) -> bytes:
    target = io.BytesIO()
    with tarfile.open(fileobj=target, mode="w") as written:
        for name, data in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(data)
            written.addfile(info, io.BytesIO(data))
        for info in more:
            written.addfile(info)
    return target.getvalue()


def test_a_zip_archive_lists_its_files_with_sizes(source: MakeSource) -> None:
    data = zipped({"a/": b"", "a/b.txt": b"x" * 10, "c": b"1"})
    findings = explore(source("a.zip", data))
    assert list(findings.lines) == [
        f"zip archive: 2 files in {len(data)} bytes, unpacked 11 bytes",
        "Kinds: 1 .txt, 1 without an ending",
        "a/b.txt: 10 bytes",
        "c: 1 byte",
    ]
    assert findings.covered == "its list of entries"


def test_a_zip_bomb_is_told_and_not_unpacked(source: MakeSource) -> None:
    lines = explore(source("a.zip", zipped({"zeros": bytes(30_000_000)}))).lines
    assert "it may be meant to fill a disk" in lines[1]


def test_names_that_leave_the_folder_and_links_are_reported(source: MakeSource) -> None:
    link = zipfile.ZipInfo("link")
    link.external_attr = 0o120777 << 16
    target = io.BytesIO()
    with zipfile.ZipFile(target, "w") as written:
        written.writestr("../up", b"")
        written.writestr("/etc/passwd", b"")
        written.writestr("C:\\x", b"")
        written.writestr("fine..txt", b"")
        written.writestr(link, b"/etc")
    lines = explore(source("a.zip", target.getvalue())).lines
    assert lines[1] == (
        "Not safe to unpack as it is: ../up (leaves its folder), /etc/passwd (an absolute path), "
        "C:\\x (an absolute path), link (a link)"
    )


def test_an_encrypted_zip_says_so(source: MakeSource) -> None:
    data = bytearray(zipped({"secret": b"x"}))
    data[data.index(b"PK\x01\x02") + 8] |= 1
    assert "1 file in it can only be read with a password" in explore(source("a.zip", bytes(data))).lines


@pytest.mark.parametrize(
    ("name", "pack"),
    [("tar archive", bytes), ("tar archive in gzip", gzip.compress), ("tar archive in xz", lzma.compress)],
)
def test_a_tar_archive_is_listed_through_its_compression(source: MakeSource, name: str, pack: type) -> None:
    link = tarfile.TarInfo("link")
    link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
    made = source("a.tar", pack(tarred({"a.py": b"x" * 2000, "../b.py": b"y"}, link)))
    assert detect(made).name == "archive"
    lines = explore(made).lines
    assert lines[0].startswith(f"{name}: 3 files in ")
    assert lines[1] == "Not safe to unpack as it is: ../b.py (leaves its folder), link (a link to /etc/passwd)"
    assert lines[3] == "a.py: 2,000 bytes"


def test_of_many_files_the_top_and_the_largest_are_told(source: MakeSource) -> None:
    data = zipped({f"folder/{at}.txt": b"" for at in range(60)} | {"z/large": b"x" * 50})
    lines = explore(source("a.zip", data)).lines
    assert lines[2] == "Folders and files at its top: folder, z"
    assert lines[3].startswith("Largest: z/large (50), ")
    assert lines[-1] == "and 21 more files"


@pytest.mark.parametrize("claimed", [200_000, 10**10])
def test_a_header_of_a_tar_archive_that_claims_very_much_is_not_read(source: MakeSource, claimed: int) -> None:
    header = tarfile.TarInfo("a")
    header.type, header.size = tarfile.XHDTYPE, claimed
    with pytest.raises(Unreadable, match="longer than 8,192 bytes"):
        explore(source("a.tar", header.tobuf(tarfile.GNU_FORMAT) + b"1" * 200_000))


def test_a_truncated_tar_archive_lists_what_comes_before(source: MakeSource) -> None:
    data = gzip.compress(tarred({"a": b"", "b": bytes(range(256)) * 400}))
    findings = explore(source("a.tgz", data[:-40]))
    assert "a: 0 bytes" in findings.lines
    assert findings.covered.startswith("the entries before it breaks")


@pytest.mark.parametrize(("name", "pack"), [("gzip", gzip.compress), ("bzip2", bz2.compress), ("xz", lzma.compress)])
def test_a_compressed_file_is_measured_and_shows_its_beginning(source: MakeSource, name: str, pack: type) -> None:
    data = pack(b"hello\nworld\n" * 10)
    findings = explore(source("a", data))
    assert list(findings.lines) == [f"{name}: {len(data)} bytes, unpacked 120 bytes", findings.lines[1]]
    assert findings.lines[1].startswith("It begins: hello world hello")


def test_a_stream_is_unpacked_no_further_than_its_bound(source: MakeSource, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "MOST_STREAMED", 3_000_000)
    findings = explore(source("a.gz", gzip.compress(bytes(9_000_000))))
    assert findings.covered.startswith("the first 3,")
    assert "unpacked more than 3," in findings.lines[0]
    assert "it may be meant to fill a disk" in findings.lines[1]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"text",
        b"PK\x03\x04",
        b"PK\x05\x06" + bytes(5),
        b"\x1f\x8b\x08",
        b"BZh9",
        gzip.compress(b"x" * 99, mtime=0)[:-9],
    ],
)
def test_what_is_no_archive_or_broken_says_so(source: MakeSource, data: bytes) -> None:
    with pytest.raises(Unreadable, match=r"no archive|no readable|broken after"):
        explore(source("a.zip", data))
