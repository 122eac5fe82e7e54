"""Pictures: format, size and what the camera wrote, without decoding them."""

from __future__ import annotations

import io
import struct
import zlib

import pytest
from PIL import Image

from mnesis_core.files.detection import detect
from mnesis_core.files.kinds.image import explore
from mnesis_core.files.source import Unreadable
from tests.core.files.conftest import MakeSource


def drawn(kind: str, *, mode: str = "RGB", **options: object) -> bytes:
    target = io.BytesIO()
    Image.new(mode, (40, 30)).save(target, kind, **options)
    return target.getvalue()


@pytest.mark.parametrize("kind", ["PNG", "JPEG", "GIF", "BMP", "TIFF", "WEBP", "ICO", "AVIF"])
def test_every_format_is_detected_by_its_bytes_and_tells_its_size(source: MakeSource, kind: str) -> None:
    made = source("picture", drawn(kind))
    assert detect(made).name == "image"
    lines = explore(made).lines
    assert lines[0].startswith(f"{kind} picture, ")
    assert kind == "ICO" or "40 x 30 pixels" in lines[0]


def test_what_the_camera_wrote_is_told(source: MakeSource) -> None:
    exif = Image.Exif()
    exif[0x010F], exif[0x0110], exif[0x0132] = "Maker\nInjected: yes", "Model 1", "2024:01:02 03:04:05"
    assert list(explore(source("a.jpg", drawn("JPEG", exif=exif))).lines[1:]) == [
        "Its camera: Maker Injected: yes",
        "Its model: Model 1",
        "Its date: 2024:01:02 03:04:05",
    ]


def test_frames_are_counted(source: MakeSource) -> None:
    more = [Image.new("RGB", (40, 30), colour) for colour in ("red", "blue")]
    lines = explore(source("a.gif", drawn("GIF", save_all=True, append_images=more))).lines
    assert lines[1] == "3 frames: it moves, or has pages"


def test_a_picture_that_would_fill_the_memory_is_told_by_its_header(source: MakeSource) -> None:
    header = struct.pack(">IIBBBBB", 100_000, 100_000, 8, 2, 0, 0, 0)
    chunk = b"IHDR" + header
    data = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + chunk + struct.pack(">I", zlib.crc32(chunk))
    pixels = zlib.compress(bytes(1000))
    data += struct.pack(">I", len(pixels)) + b"IDAT" + pixels + struct.pack(">I", zlib.crc32(b"IDAT" + pixels))
    lines = explore(source("a.png", data)).lines
    assert "100,000 x 100,000 pixels" in lines[0]
    assert lines[1].startswith("So many pixels")


@pytest.mark.parametrize("data", [b"", b"text", drawn("PNG")[:20], drawn("JPEG")[:9], b"%!PS-Adobe-3.0 EPSF-3.0\n"])
def test_what_is_no_picture_says_so_and_not_where_it_lies(source: MakeSource, data: bytes) -> None:
    made = source("a.png", data)
    with pytest.raises(Unreadable, match="picture") as refused:
        explore(made)
    assert str(made.path) not in str(refused.value)
