"""The prompt of a request to OpenAI or Google as their doubles count it, and the pictures in it, with what is refused of these.

* OpenAI, https://platform.openai.com/docs/guides/images-vision ("Image input requirements", "Calculating costs"): PNG, JPEG,
  WebP, and GIF that does not move; 500 pictures and 50 MB a request. A picture is scaled to fit 2,048 x 2,048, then to
  768 pixels on the short side, and costs 85 tokens and 170 for each tile of 512 x 512.
* Gemini, https://ai.google.dev/gemini-api/docs/image-understanding: PNG, JPEG, WebP, HEIC and HEIF; 3,600 pictures a request;
  20 MB a request with its text. https://ai.google.dev/gemini-api/docs/tokens: 258 tokens up to 384 x 384, else 258 for each
  tile of 768 x 768.

PDFs and audio are not counted.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from hashlib import sha256
from math import ceil
from typing import Any

from PIL import Image

CHARACTERS_PER_TOKEN = 4
MOST_OF_OPENAI, MOST_BYTES_OF_OPENAI = 500, 50_000_000
MOST_OF_GEMINI, MOST_BYTES_OF_GEMINI = 3_600, 20_000_000
KINDS_OF_OPENAI = {"PNG", "JPEG", "WEBP", "GIF"}
KINDS_OF_GEMINI = {"PNG", "JPEG", "WEBP"}  # and what Pillow does not read


class Refused(Exception):
    """The provider answers with 400."""

    def __init__(self, text: str, *, code: str = "invalid_value") -> None:
        super().__init__(text)
        self.code = code  # OpenAI's


@dataclass(frozen=True, slots=True)
class Picture:
    media_type: str  # what the request says
    data: bytes


@dataclass(frozen=True, slots=True)
class Prompt:
    text: str  # what a cache compares: digests stand for what is no text
    pictures: tuple[Picture, ...]
    bytes: int  # of the request
    tokens: int = 0


def openai_prompt(body: Mapping[str, Any]) -> Prompt:
    """Return the prompt of Chat Completions or of Responses.

    :raises Refused: OpenAI would not take its pictures.
    """
    names = ("model", "tools", "instructions", "messages", "input")
    prompt = _prompt(body, [body.get(name) for name in names])
    if prompt.bytes > MOST_BYTES_OF_OPENAI:
        raise Refused(f"The request has {prompt.bytes} bytes. Max is {MOST_BYTES_OF_OPENAI}.")
    if len(prompt.pictures) > MOST_OF_OPENAI:
        raise Refused(f"Too many images in request. Max is {MOST_OF_OPENAI}.", code="too_many_images")
    return _counted(prompt, KINDS_OF_OPENAI, _tokens_of_openai)


def gemini_prompt(body: Mapping[str, Any], model: str) -> Prompt:
    """:raises Refused: Google would not take its pictures."""
    system = body.get("systemInstruction") or body.get("system_instruction")
    prompt = _prompt(body, [model, system, body.get("tools"), body["contents"]])
    if prompt.bytes > MOST_BYTES_OF_GEMINI:
        raise Refused(f"Request payload size exceeds the limit: {MOST_BYTES_OF_GEMINI} bytes.")
    if len(prompt.pictures) > MOST_OF_GEMINI:
        raise Refused(f"Please use at most {MOST_OF_GEMINI} images in a request.")
    return _counted(prompt, KINDS_OF_GEMINI, _tokens_of_gemini)


def _prompt(body: Mapping[str, Any], parts: list[Any]) -> Prompt:
    pictures: list[Picture] = []
    text = "".join(json.dumps(_without_data(part, pictures)) for part in parts)
    size = len(json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass"))
    return Prompt(text, tuple(pictures), size)


def _without_data(value: Any, pictures: list[Picture]) -> Any:
    """Return a value with a digest in place of each picture, PDF and recording, and add its pictures to the list."""
    match value:
        case str() if value.startswith("data:"):
            head, _, encoded = value.partition(";base64,")
            return _digest(head.removeprefix("data:"), encoded, pictures)
        case {"mimeType": str(kind), "data": str(encoded)} | {"mime_type": str(kind), "data": str(encoded)}:
            return _digest(kind, encoded, pictures)
        case {"format": str(kind), "data": str(encoded)}:
            return _digest(f"audio/{kind}", encoded, pictures)
        case Mapping():
            return {name: _without_data(one, pictures) for name, one in value.items()}
        case list():
            return [_without_data(one, pictures) for one in value]
    return value


def _digest(media_type: str, encoded: str, pictures: list[Picture]) -> str:
    data = base64.b64decode(encoded, validate=True)
    if media_type.startswith("image/"):
        pictures.append(Picture(media_type, data))
    return sha256(data).hexdigest()


def _counted(prompt: Prompt, kinds: set[str], tokens_of: Callable[[int, int], int]) -> Prompt:
    tokens = len(prompt.text) // CHARACTERS_PER_TOKEN
    for picture in prompt.pictures:
        try:
            opened = Image.open(io.BytesIO(picture.data))
            opened.load()
        except (OSError, ValueError, SyntaxError):
            raise Refused("The image data you provided does not represent a valid image.") from None
        if opened.format not in kinds or getattr(opened, "n_frames", 1) > 1:
            raise Refused(f"You uploaded an unsupported image: {opened.format}.", code="invalid_image_format")
        if Image.MIME[opened.format] != picture.media_type:
            raise Refused(f"Image does not match the provided media type {picture.media_type}.")
        tokens += tokens_of(*opened.size)
    return Prompt(prompt.text, prompt.pictures, prompt.bytes, tokens)


def _tokens_of_openai(width: int, height: int) -> int:
    scale = min(1.0, 2_048 / max(width, height))
    scale = min(scale, 768 / min(width, height))
    return 85 + 170 * ceil(width * scale / 512) * ceil(height * scale / 512)


def _tokens_of_gemini(width: int, height: int) -> int:
    return 258 if max(width, height) <= 384 else 258 * ceil(width / 768) * ceil(height / 768)
