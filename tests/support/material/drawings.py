"""Pictures to send: small, large, rotated, broken, and those that are none."""

from __future__ import annotations

import base64
import io
import struct
import wave
import zlib
from typing import Any

from PIL import Image
from pypdf import PdfWriter
from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

TURNED = 6  # EXIF: the camera was held upright


def drawing(width: int = 40, height: int = 30, *, kind: str = "PNG", mode: str = "RGB", **options: Any) -> bytes:
    """A picture with a gradient, so that no two sizes have the same bytes."""
    out = io.BytesIO()
    picture = Image.linear_gradient("L").resize((width, height)).convert(mode)
    picture.save(out, kind, **options)
    return out.getvalue()


def noise(width: int, height: int) -> bytes:
    """A PNG that cannot be compressed."""
    out = io.BytesIO()
    Image.effect_noise((width, height), 90).convert("RGB").save(out, "PNG")
    return out.getvalue()


def turned(width: int, height: int) -> bytes:
    """A photograph that has to be turned to be upright."""
    exif = Image.Exif()
    exif[0x0112] = TURNED
    return drawing(width, height, kind="JPEG", exif=exif)


def moving(width: int = 40, height: int = 30) -> bytes:
    """A GIF of two frames."""
    out = io.BytesIO()
    frames = [Image.new("RGB", (width, height), colour) for colour in ("red", "blue")]
    frames[0].save(out, "GIF", save_all=True, append_images=frames[1:])
    return out.getvalue()


def bomb(width: int = 50_000, height: int = 50_000) -> bytes:
    """A small PNG that says that it has billions of pixels."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = zlib.compress(bytes(100_000))
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", rows) + chunk(b"IEND", b"")


def document(*texts: str, password: str = "") -> bytes:
    """A PDF with a page for each text."""
    writer = PdfWriter()
    font = DictionaryObject({NameObject("/Type"): NameObject("/Font"), NameObject("/Subtype"): NameObject("/Type1")})
    font[NameObject("/BaseFont")] = NameObject("/Helvetica")
    fonts = DictionaryObject({NameObject("/Font"): DictionaryObject({NameObject("/F"): font})})
    for text in texts:
        page = writer.add_blank_page(200, 200)
        page[NameObject("/Resources")] = fonts
        content = DecodedStreamObject()
        content.set_data(f"BT /F 12 Tf 10 100 Td ({text}) Tj ET".encode())
        page[NameObject("/Contents")] = writer._add_object(content)
    if password:
        writer.encrypt(password, algorithm="RC4-128")
    out = io.BytesIO()
    writer.write(out)
    return out.getvalue()


def recording(seconds: float = 2.0) -> bytes:
    """A WAV of silence."""
    out = io.BytesIO()
    with wave.open(out, "wb") as file:
        file.setparams((1, 2, 8_000, 0, "NONE", ""))
        file.writeframes(bytes(2 * int(8_000 * seconds)))
    return out.getvalue()


def mp3(frames: int = 100) -> bytes:
    """An MP3 of silence, 26 milliseconds a frame: MPEG 1, layer 3, 128 kbit/s, 44,100 Hz."""
    return (b"\xff\xfb\x90\x00" + bytes(413)) * frames


def audio_part(data: bytes) -> Any:
    """The part of a recording in OpenAI's protocol."""
    return {"type": "input_audio", "input_audio": {"data": base64.b64encode(data).decode(), "format": "wav"}}


def file_part(data: bytes, media_type: str = "application/pdf") -> Any:
    """The part of a PDF in OpenAI's protocol."""
    return {"type": "file", "file": {"filename": "a.pdf", "file_data": data_url(data, media_type)}}


def data_url(data: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(data).decode()}"


def image_part(data: bytes, media_type: str = "image/png") -> Any:
    """The part of a message in OpenAI's protocol."""
    return {"type": "image_url", "image_url": {"url": data_url(data, media_type)}}


def sent_pictures(body: dict[str, Any]) -> list[bytes]:
    """The pictures in a request of Chat Completions, in order."""
    contents = [said["content"] for said in body["messages"] if isinstance(said.get("content"), list)]
    parts = [part for content in contents for part in content if part["type"] == "image_url"]
    return [base64.b64decode(part["image_url"]["url"].partition(",")[2]) for part in parts]
