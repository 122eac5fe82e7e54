"""Pictures, PDFs and audio as models are sent them: which formats, how large, how they are counted, and the rendition of a file.

A rendition is made once and kept, so a past prompt never depends on Pillow making the same bytes again. ``render``
decodes other people's bytes; call it in the sandbox (``sandbox.render_alone``).

The limits and counts are the providers' own, as documented in November 2025:

* Anthropic, https://docs.anthropic.com/en/docs/build-with-claude/vision: width x height / 750 tokens; above 1,568 pixels
  on the long side or about 1,600 tokens a picture is scaled down there; 5 MB a picture; 2,000 pixels a side in a request
  with more than 20 pictures.
* OpenAI, https://platform.openai.com/docs/guides/images-vision: scaled to fit 2,048 x 2,048, then to 768 pixels on the
  short side; a base and so many for each tile of 512 x 512, by the model (85 and 170 for GPT-4o, and for those that are not
  listed). The small models count patches of 32 x 32: a picture is scaled to at most 1,536 of them, and each costs the
  model's multiplier.
* Gemini, https://ai.google.dev/gemini-api/docs/tokens: 258 tokens up to 384 x 384, else 258 for each tile of 768 x 768;
  20 MB a request with its text (https://ai.google.dev/gemini-api/docs/image-understanding), of which we leave 5 MB to the text:
  a million tokens.

A PDF is sent as it is, or not at all. Each of them reads it as the text and a picture of every page, and takes at least 100
pages: https://docs.anthropic.com/en/docs/build-with-claude/pdf-support (1,500 to 3,000 tokens of text a page, and the picture),
https://platform.openai.com/docs/guides/pdf-files, https://ai.google.dev/gemini-api/docs/document-processing (258 a page).
We count the text that is found in it, which Gemini does not bill, and the largest picture for each page.

Audio (WAV and MP3, which both take) is sent as it is, too: OpenAI counts 10 tokens a second
(https://platform.openai.com/docs/guides/realtime-costs), Gemini 32 (https://ai.google.dev/gemini-api/docs/audio). Claude takes none.

For every other provider OpenAI's rule is an estimate. Like every estimate, it is corrected by what the provider reports.
"""

from __future__ import annotations

import base64
import hashlib
import io
import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from math import ceil, floor, sqrt
from pathlib import Path
from typing import Any

from mnesis_core.errors import InvalidPicture, RemotePicture
from mnesis_core.files.detection import MARK_BYTES, SUFFIXES, media_type_of
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.messages import AudioPart, DocumentPart, ImagePart, ShownPart

# The media types that are shown, and their names in Pillow.
FORMATS = {"image/png": "PNG", "image/jpeg": "JPEG", "image/webp": "WEBP", "image/gif": "GIF"}
PDF = "application/pdf"
AUDIO_FORMATS = {"audio/wav": "wav", "audio/mpeg": "mp3"}  # The media types that are sent, and OpenAI's names for them.
PICTURE_KIND, PDF_KIND, AUDIO_KIND = "image", "pdf", "audio"  # the kinds of files that are shown, as in ``detection``
MOST_PAGES = 100  # of a PDF
MOST_PDF_BYTES = 15_000_000  # The least that a request may have is 32 MB, and Base64 adds a third.
MOST_AUDIO_BYTES = 15_000_000
MOST_SECONDS = 34_200  # of audio: nine and a half hours, which Gemini takes in one prompt
MOST_PAGE_BYTES = 1_048_576  # drawing instructions of a page, from which its text is counted
TOKENS_OF_UNREAD_PAGE = 3_000  # the text of a page that cannot be read here
RENDITION = "rendition"  # the file type of a rendition, which is a file of its session
MOST_PIXELS = 50_000_000  # Larger pictures are not decoded; this is the largest that the sandbox's memory takes safely.
MOST_RENDITION_BYTES = 5_000_000
JPEG_QUALITY, PNG_LEVEL = 85, 6
SHRINK = 0.75  # by which a side shrinks again while the bytes are too many
PATCH = 32  # pixels of a side
_DATA_URL = re.compile(r"data:([\w.+-]+/[\w.+-]+)?(?:;[\w.+-]+=[^;,]*)*;base64,", re.ASCII | re.IGNORECASE)
_ROTATED = 0x0112  # EXIF's orientation


@dataclass(frozen=True, slots=True, kw_only=True)
class PictureRule:
    """What one family of providers takes, and how it counts."""

    name: str  # Kept with each rendition: another rule needs another name.
    longest: int  # pixels of the long side
    shortest: int = 0  # the most pixels of the short side; 0 for any
    pixels: int = 0  # the most pixels; 0 for any
    patches: int = 0  # the most squares of ``PATCH`` pixels a side; 0 for any
    most_bytes: int
    together: int = 15_000_000  # bytes of all pictures of one prompt, with PDFs and audio, before they become Base64
    page_tokens: int  # the picture of a PDF's page
    second_tokens: int = 10  # of audio
    media_types: frozenset[str] = frozenset(FORMATS)
    tokens: Callable[[int, int], int]


ANTHROPIC = PictureRule(
    name="anthropic-1",
    longest=1568,
    pixels=1_200_000,
    most_bytes=3_500_000,
    page_tokens=1_600,
    tokens=lambda width, height: ceil(width * height / 750),
)
OPENAI = PictureRule(
    name="openai-1",
    longest=2048,
    shortest=768,
    most_bytes=3_500_000,
    page_tokens=1_105,
    tokens=lambda width, height: 85 + 170 * ceil(width / 512) * ceil(height / 512),
)


def _tile_rule(name: str, base: int, tile: int) -> PictureRule:
    def tokens(width: int, height: int) -> int:
        return base + tile * ceil(width / 512) * ceil(height / 512)

    return replace(OPENAI, name=name, page_tokens=base + 6 * tile, tokens=tokens)


def _patch_rule(name: str, multiplier: float) -> PictureRule:
    def tokens(width: int, height: int) -> int:
        return ceil(ceil(width / PATCH) * ceil(height / PATCH) * multiplier)

    return replace(OPENAI, name=name, shortest=0, patches=1_536, page_tokens=ceil(1_536 * multiplier), tokens=tokens)


# "Calculating costs" of OpenAI's page; ``gpt-5-mini`` has the multiplier of ``gpt-4.1-mini``, and so on.
OPENAI_MINI = _patch_rule("openai-mini-1", 1.62)
OPENAI_NANO = _patch_rule("openai-nano-1", 2.46)
OPENAI_O4_MINI = _patch_rule("openai-o4-mini-1", 1.72)
OPENAI_5 = _tile_rule("openai-5-1", 70, 140)
OPENAI_4O_MINI = _tile_rule("openai-4o-mini-1", 2_833, 5_667)
OPENAI_O = _tile_rule("openai-o-1", 75, 150)
# By the beginning of a model's name; the first that fits counts.
_OPENAI = {
    "gpt-4.1-mini": OPENAI_MINI,
    "gpt-5-mini": OPENAI_MINI,
    "gpt-4.1-nano": OPENAI_NANO,
    "gpt-5-nano": OPENAI_NANO,
    "o4-mini": OPENAI_O4_MINI,
    "gpt-5": OPENAI_5,
    "gpt-4o-mini": OPENAI_4O_MINI,
    "o1": OPENAI_O,
    "o3": OPENAI_O,
    "computer-use-preview": _tile_rule("openai-computer-use-1", 65, 129),
}
GEMINI = PictureRule(
    name="gemini-1",
    longest=3072,
    most_bytes=3_500_000,
    together=11_000_000,
    page_tokens=258,
    second_tokens=32,
    media_types=frozenset(FORMATS) - {"image/gif"},
    tokens=lambda width, height: 258 * (ceil(width / 768) * ceil(height / 768) if max(width, height) > 384 else 1),
)
PORTRAIT = PictureRule(
    name="portrait-1",
    longest=256,  # enough for 4.5 rem on a screen of three pixels for one
    most_bytes=200_000,
    page_tokens=0,
    media_types=frozenset(),  # None is kept as it came: what else is in the bytes, such as where it was taken, is left out.
    tokens=lambda width, height: 0,
)
"""What pages show beside a name; no model is sent it."""
RULES = {rule.name: rule for rule in (ANTHROPIC, OPENAI, *_OPENAI.values(), GEMINI, PORTRAIT)}


def kind_of(media_type: str) -> str:
    """Return the kind of file that is shown under a media type; empty if none is."""
    if media_type == PDF:
        return PDF_KIND
    if media_type in AUDIO_FORMATS:
        return AUDIO_KIND
    return PICTURE_KIND if media_type in FORMATS else ""


def rule_for(litellm_model: str) -> PictureRule:
    """Return the rule of the family that a model belongs to, regardless of its host."""
    name = litellm_model.lower()
    if "claude" in name or name.startswith("anthropic/"):
        return ANTHROPIC
    if "gemini" in name:
        return GEMINI
    name = name.rpartition("/")[2]
    return next((rule for start, rule in _OPENAI.items() if name.startswith(start)), OPENAI)


def fitted(width: int, height: int, rule: PictureRule) -> tuple[int, int]:
    """Return the size at which a picture is sent: never larger than it is, and at least one pixel a side."""
    scale = min(1.0, rule.longest / max(width, height))
    if rule.shortest:
        scale = min(scale, rule.shortest / min(width, height))
    if rule.pixels:
        scale = min(scale, sqrt(rule.pixels / (width * height)))
    if rule.patches and ceil(width / PATCH) * ceil(height / PATCH) > rule.patches:
        scale = min(scale, _scale_to_patches(width / PATCH, height / PATCH, rule.patches))
    return (width, height) if scale == 1.0 else (max(1, round(width * scale)), max(1, round(height * scale)))


def _scale_to_patches(across: float, down: float, most: int) -> float:
    """Return OpenAI's scale: that at which the areas are equal, and then down to a whole number of patches a side."""
    scale = sqrt(most / (across * down))
    whole = (max(1, floor(side * scale)) / (side * scale) for side in (across, down))
    return scale * min(whole)


@dataclass(frozen=True, slots=True, kw_only=True)
class Rendition:
    """A picture as it is sent. Of a PDF and of audio, which are sent as they are, how long they are and what they count."""

    media_type: str
    width: int = 0
    height: int = 0
    pages: int = 0
    seconds: int = 0
    tokens: int = 0
    data: bytes = b""

    @property
    def is_whole(self) -> bool:
        """Whether the file itself is sent."""
        return bool(self.pages or self.seconds)


def render(path: Path, rule: PictureRule) -> Rendition:
    """Return a picture as it is sent under a rule: the file's own bytes where they fit, else its first frame, upright.

    :raises ValueError: it is no picture of these formats, no PDF and no audio, is too large, or is broken.
    """
    with path.open("rb") as file:
        media_type = media_type_of(file.read(MARK_BYTES), "")
    if media_type == PDF:
        return _counted_pdf(path, rule)
    if media_type in AUDIO_FORMATS:
        return _counted_audio(path, media_type, rule)
    from PIL import Image, ImageOps  # loaded in the sandbox only

    Image.MAX_IMAGE_PIXELS = None  # The check below has a bound of its own.
    try:
        with Image.open(path, formats=tuple(FORMATS.values())) as picture:
            width, height = picture.size
            if width * height > MOST_PIXELS:
                raise ValueError(f"{width:,} x {height:,} pixels are more than are decoded")
            media_type = next(kind for kind, name in FORMATS.items() if name == picture.format)
            is_plain = picture.mode in ("1", "L", "LA", "P", "RGB", "RGBA") and getattr(picture, "n_frames", 1) == 1
            is_upright = picture.getexif().get(_ROTATED, 1) == 1
            size = fitted(width, height, rule)
            picture.load()  # Also what is sent as it is must be whole.
            data = path.read_bytes()
            fits = size == (width, height) and len(data) <= rule.most_bytes and media_type in rule.media_types
            if fits and is_plain and is_upright:
                return Rendition(media_type=media_type, width=width, height=height, data=data)
            has_alpha = "A" in picture.getbands() or "transparency" in picture.info
            upright = ImageOps.exif_transpose(picture.convert("RGBA" if has_alpha else "RGB"))
    except (OSError, SyntaxError, EOFError, KeyError, TypeError, Image.DecompressionBombError) as error:
        raise ValueError(f"not readable as a picture: {str(error).replace(str(path), 'the file')[:200]}") from None
    return _written(upright, rule, is_photograph=media_type == "image/jpeg")


def _counted_audio(path: Path, media_type: str, rule: PictureRule) -> Rendition:
    from tinytag import TinyTag, TinyTagException

    if path.stat().st_size > MOST_AUDIO_BYTES:
        raise ValueError(f"more than {MOST_AUDIO_BYTES:,} bytes of audio are not sent")
    try:
        seconds = ceil(TinyTag.get(path, tags=False).duration or 0)
    except (TinyTagException, OSError, KeyError, IndexError, OverflowError) as error:
        raise ValueError(f"not readable as audio: {str(error).replace(str(path), 'the file')[:200]}") from None
    if not 0 < seconds <= MOST_SECONDS:
        raise ValueError("its headers do not say how long it is" if seconds <= 0 else f"it lasts {seconds:,} seconds")
    return Rendition(media_type=media_type, seconds=seconds, tokens=seconds * rule.second_tokens)


def _counted_pdf(path: Path, rule: PictureRule) -> Rendition:
    from pypdf import PdfReader
    from pypdf.errors import PyPdfError

    logging.getLogger("pypdf").setLevel(logging.CRITICAL)
    if path.stat().st_size > MOST_PDF_BYTES:
        raise ValueError(f"more than {MOST_PDF_BYTES:,} bytes of a PDF are not sent")
    try:
        reader = PdfReader(path, strict=False)
        if reader.is_encrypted:
            raise ValueError("it is encrypted")
        pages = len(reader.pages)
        if not 0 < pages <= MOST_PAGES:
            raise ValueError(f"it has {pages:,} pages, and {MOST_PAGES} are sent at most")
        tokens = sum(rule.page_tokens + _tokens_of_page(page) for page in reader.pages)
    except (PyPdfError, OSError, KeyError, TypeError, AttributeError, IndexError, RecursionError) as error:
        raise ValueError(f"not readable as PDF: {str(error).replace(str(path), 'the file')[:200]}") from None
    return Rendition(media_type=PDF, pages=pages, tokens=tokens)


def _tokens_of_page(page: Any) -> int:
    try:
        content = page.get_contents()
        if content is None:
            return 0
        if len(content.get_data()) <= MOST_PAGE_BYTES:
            return estimate_text(page.extract_text())
    except Exception:  # pypdf meets what others wrote with errors of every kind.
        return TOKENS_OF_UNREAD_PAGE
    return TOKENS_OF_UNREAD_PAGE


def _written(picture: Any, rule: PictureRule, *, is_photograph: bool) -> Rendition:
    from PIL import Image

    width, height = fitted(picture.width, picture.height, rule)
    while True:
        small = picture.resize((width, height), Image.Resampling.LANCZOS, reducing_gap=2.0)
        for media_type in ("image/jpeg",) if is_photograph else ("image/png", "image/jpeg"):
            data = _encoded(small, media_type)
            if len(data) <= rule.most_bytes:
                return Rendition(media_type=media_type, width=width, height=height, data=data)
        width, height = max(1, int(width * SHRINK)), max(1, int(height * SHRINK))


def _encoded(picture: Any, media_type: str) -> bytes:
    from PIL import Image

    out = io.BytesIO()
    if media_type == "image/png":
        picture.save(out, "PNG", compress_level=PNG_LEVEL, optimize=False)
        return out.getvalue()
    if picture.mode == "RGBA":
        white = Image.new("RGBA", picture.size, "white")
        picture = Image.alpha_composite(white, picture)
    picture.convert("RGB").save(out, "JPEG", quality=JPEG_QUALITY, subsampling=2, optimize=False, progressive=False)
    return out.getvalue()


# Pictures inside a request, and inside what a tool answers


@dataclass(frozen=True, slots=True, kw_only=True)
class SentPicture:
    """A picture, a PDF or audio that came inside a request or an answer, in place of a file of the session."""

    name: str
    media_type: str
    data: bytes = field(repr=False, default=b"")
    file_id: str = ""  # of a file that is kept already; then there is no data
    size: int = 0  # bytes of that file
    # Where it was sent as an address: until it is fetched there is no data, and its name is the address. ``media_type`` is
    # ``PDF`` for a document meanwhile, otherwise empty.
    url: str = ""
    place: str = ""  # where in the request it is


@dataclass(frozen=True, slots=True, kw_only=True)
class Shown:
    """What a tool answers that is more than text. The text says where each picture stood, by its name."""

    text: str
    pictures: tuple[SentPicture, ...]


def picture_of(data: bytes) -> SentPicture | None:
    """Return the picture, the PDF or the audio that bytes are, told by the bytes alone; ``None`` for other formats."""
    media_type = media_type_of(data[:MARK_BYTES], "")
    word = {PICTURE_KIND: "picture", PDF_KIND: "document", AUDIO_KIND: "audio"}.get(kind_of(media_type))
    if word is None:
        return None
    name = f"{word}-{hashlib.sha256(data).hexdigest()[:12]}{SUFFIXES[media_type]}"
    return SentPicture(media_type=media_type, data=data, name=name)


def part_of_sent(sent: SentPicture, **about: Any) -> ShownPart:
    """Return the part that stands for what was sent; ``about`` are its other fields."""
    kinds: dict[str, type[ShownPart]] = {PDF_KIND: DocumentPart, AUDIO_KIND: AudioPart}
    return kinds.get(kind_of(sent.media_type), ImagePart)(media_type=sent.media_type, **about)


def read_picture(url: Any, *, place: str, is_document: bool = False) -> SentPicture:
    """Return the picture, or the PDF, of a ``data:`` URL, or one that is still to be fetched from its address.

    :raises InvalidPicture: as ``read_data_url``
    """
    if isinstance(url, str) and url[:8].lower().startswith(("http:", "https:")):
        return SentPicture(name=url, media_type=PDF if is_document else "", url=url, place=place)
    return read_data_url(url, place=place, is_document=is_document)


def read_fetched(data: bytes, sent: SentPicture) -> SentPicture:
    """Return what was sent as an address with the bytes that were found there, told by them alone.

    :raises InvalidPicture: they are of another format.
    """
    found = _of_kind(picture_of(data), place=sent.place, is_document=sent.media_type == PDF)
    return replace(found, url=sent.url, place=sent.place)


def read_data_url(url: Any, *, place: str, is_document: bool = False) -> SentPicture:
    """Return the picture, or the PDF, of a ``data:`` URL, told by its bytes and not by what the URL says of them.

    :raises RemotePicture: it is the address of a picture elsewhere.
    :raises InvalidPicture: it is no Base64, or none of the formats.
    """
    word, media_type = ("a PDF", PDF) if is_document else ("a picture", "image/png")
    if not isinstance(url, str) or not url:
        raise InvalidPicture(f"{word} needs a data: URL", field=place)
    if url[:8].lower().startswith(("http:", "https:", "//")):
        raise RemotePicture(field=place)
    found = _DATA_URL.match(url)
    if found is None:
        raise InvalidPicture(f"the URL of {word} must begin with data:{media_type};base64, or the like", field=place)
    sent = _sent_base64(url[found.end() :], what=f"the data: URL of {word}", place=place)
    return _of_kind(sent, place=place, is_document=is_document)


def _of_kind(sent: SentPicture | None, *, place: str, is_document: bool) -> SentPicture:
    known = "PDF" if is_document else "PNG, JPEG, WebP or GIF"
    if sent is None or sent.media_type not in ((PDF,) if is_document else FORMATS):
        raise InvalidPicture(f"the bytes are no {known}", field=place)
    return sent


def read_audio(audio: Any, *, place: str) -> SentPicture:
    """Return the audio of OpenAI's ``input_audio``, told by its bytes and not by its ``format``.

    :raises InvalidPicture: it is no Base64, or no WAV or MP3.
    """
    data = audio.get("data") if isinstance(audio, Mapping) else None
    if not isinstance(data, str) or not data:
        raise InvalidPicture("audio needs its bytes as Base64 in data", field=f"{place}.data")
    sent = _sent_base64(data, what="audio", place=f"{place}.data")
    if sent is None or sent.media_type not in AUDIO_FORMATS:
        raise InvalidPicture("the bytes are no WAV or MP3", field=f"{place}.data")
    return sent


def _sent_base64(text: str, *, what: str, place: str) -> SentPicture | None:
    try:
        data = base64.b64decode(re.sub(r"[ \t\r\n]", "", text), validate=True)
    except ValueError:
        raise InvalidPicture(f"{what} is not valid Base64", field=place) from None
    return picture_of(data)
