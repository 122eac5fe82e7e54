"""A loopback provider that refuses what Anthropic, OpenAI and Google refuse, and counts what their caches read and write.

It answers at three addresses, each by the public documentation of its owner:

``…/v1/messages``: Anthropic's Messages (https://docs.claude.com/en/api/messages). Refused: unknown parameters, more than
four cache breakpoints, a breakpoint on an empty text, a breakpoint of an hour after one of five minutes, a conversation that
does not begin with the user, a tool result without its call in the message before and a call without its result in the
next one, a prompt that leaves no room for the answer, more than 32 MB (https://docs.claude.com/en/api/overview), and pictures that are broken, of another format, larger than
5 MB or 8,000 pixels a side (2,000 with more than 20 of them), or in the result of a call that failed
(https://docs.claude.com/en/docs/build-with-claude/vision). A picture costs width x height / 750 tokens. PDFs that are
broken or encrypted, or have more than 100 pages together (https://docs.claude.com/en/docs/build-with-claude/pdf-support), are
refused too. The cache
(https://docs.claude.com/en/docs/build-with-claude/prompt-caching) takes tools, system and messages as one row of blocks.
What was kept is looked for at each breakpoint and at the 20 blocks before it, the longest wins, and reading it renews it.
Up to each breakpoint the prompt is written, from 1,024 tokens on, for the breakpoint's lifetime.

``…/chat/completions`` and ``…/responses``: OpenAI's Chat Completions and Responses. ``…:streamGenerateContent``: Gemini's.
What OpenAI and Google refuse is in ``strict`` and ``prompts``, and what their caches read in ``beginnings``.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from typing import Any

from PIL import Image
from pypdf import PdfReader
from pypdf.errors import PyPdfError

from tests.support.providers import answers
from tests.support.providers.answers import SECONDS, WHOLE, Answer, Bill, Events, stopped
from tests.support.providers.beginnings import OPENAI, Beginnings, Steps, steps_of_gemini
from tests.support.providers.prompts import CHARACTERS_PER_TOKEN, Prompt
from tests.support.providers.prompts import Refused as Refused
from tests.support.providers.strict import check_chat, check_gemini, check_responses
from tests.support.providers.threaded_server import ThreadedServer

SMALLEST = 1_024  # tokens
LOOK_BACK = 20  # blocks
MOST_BREAKPOINTS = 4
PIXELS_PER_TOKEN = 750
PICTURES = {"image/jpeg", "image/png", "image/gif", "image/webp"}
MOST_PICTURE_BYTES = 5 * 1024 * 1024
LONGEST_SIDE, LONGEST_OF_MANY, MANY_PICTURES = 8_000, 2_000, 20
MOST_BYTES = 32_000_000
MOST_PDF_PAGES, TOKENS_PER_PDF_PAGE = 100, 1_600
PARAMETERS = {
    *("model", "messages", "max_tokens", "system", "tools", "tool_choice", "stream", "temperature", "top_p", "top_k"),
    *("stop_sequences", "metadata", "thinking", "service_tier", "output_config"),
}


class CachingProvider(ThreadedServer):
    """Use as a context manager. ``answer`` says what the model answers to the call of a number, counted from 0.

    ``clock`` is the time in seconds, and the caller's to move.
    """

    def __init__(self, answer: Callable[[int], Answer], *, window: int = 200_000) -> None:
        super().__init__(_Handler)
        self.answer, self.window, self.clock, self.streaming = answer, window, 0.0, WHOLE
        self.bills: list[Bill] = []
        self.refusals: list[str] = []
        self._kept: dict[str, tuple[float, float]] = {}  # the end of a beginning's lifetime, and its length in seconds
        self._beginnings = Beginnings()

    @property
    def share_read(self) -> float:
        return sum(bill.read for bill in self.bills) / sum(bill.total for bill in self.bills)

    def respond(self, path: str, body: dict[str, Any]) -> Events:
        """Return the events of an answer, each with its type.

        :raises Refused: the provider would not take the request.
        """
        self.requests.append(body)
        if path.endswith("/messages"):
            check(body, self.window)
            bill, speak = self._bill_blocks(body), answers.anthropic
        elif path.endswith("/responses"):
            bill, speak = self._bill_beginning(check_responses(body, self.window), OPENAI), answers.response
        elif path.endswith("/chat/completions"):
            bill, speak = self._bill_beginning(check_chat(body, self.window), OPENAI), answers.chat
        else:
            model = model_in(path)
            prompt = check_gemini(body, model, self.window)
            bill, speak = self._bill_beginning(prompt, steps_of_gemini(model)), answers.gemini
        self.bills.append(bill)
        answer, stop = stopped(self.answer(len(self.bills) - 1), body)
        return speak(answer, bill, len(self.bills), stop)

    def _bill_blocks(self, body: dict[str, Any]) -> Bill:
        row = list(blocks_of(body))
        keys, sizes, marks = [], [], {}
        digest, total = sha256(body["model"].encode()), 0
        for number, (place, block) in enumerate(row):
            control = block.get("cache_control")
            text = json.dumps([place, {name: value for name, value in block.items() if name != "cache_control"}])
            digest.update(text.encode())
            total += _size(block)
            keys.append(digest.hexdigest())
            sizes.append(total)
            if control:
                marks[number] = control.get("ttl", "5m")
        read = 0
        for number in sorted(marks, reverse=True):
            places = range(number, max(-1, number - LOOK_BACK - 1), -1)
            found = next((at for at in places if self._kept.get(keys[at], (0.0, 0.0))[0] > self.clock), None)
            if found is not None:
                read = max(read, sizes[found])
                lifetime = self._kept[keys[found]][1]
                self._kept[keys[found]] = (self.clock + lifetime, lifetime)
        written: dict[str, int] = {}
        done = read
        for number, lifetime in marks.items():
            if sizes[number] < SMALLEST:
                continue
            seconds = SECONDS[lifetime]
            self._kept[keys[number]] = (self.clock + seconds, seconds)
            if sizes[number] > done:
                written[lifetime] = written.get(lifetime, 0) + sizes[number] - done
                done = sizes[number]
        return Bill(fresh=total - done, read=read, written=written)

    def _bill_beginning(self, prompt: Prompt, steps: Steps) -> Bill:
        read = self._beginnings.read(prompt, steps, now=self.clock)
        return Bill(fresh=prompt.tokens - read, read=read)


def model_in(path: str) -> str:
    """Return the model that an address of Gemini's names."""
    return path.rpartition("/")[2].partition(":")[0]


def blocks_of(body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield every block of a prompt in the order in which it is kept, with its place."""
    yield from (("tools", tool) for tool in body.get("tools", ()))
    yield from (("system", block) for block in _content(body.get("system", "")))
    for message in body["messages"]:
        yield from ((message["role"], block) for block in _content(message["content"]))


def _content(content: str | list[dict[str, Any]]) -> Sequence[dict[str, Any]]:
    return ([{"type": "text", "text": content}] if content else []) if isinstance(content, str) else content


def check(body: dict[str, Any], window: int) -> None:
    """:raises Refused: Anthropic would not take this."""
    if unknown := body.keys() - PARAMETERS:
        raise Refused(f"{min(unknown)}: Extra inputs are not permitted")
    controls = [(block, block["cache_control"]) for _, block in blocks_of(body) if "cache_control" in block]
    if len(controls) > MOST_BREAKPOINTS:
        raise Refused(f"A maximum of 4 blocks with cache_control may be provided. Found {len(controls)}.")
    lifetimes = [control.get("ttl", "5m") for _, control in controls]
    if lifetimes != sorted(lifetimes):  # "1h" is before "5m" in this order too
        raise Refused("a ttl='1h' cache_control block must not come after a ttl='5m' cache_control block")
    if any(control.keys() - {"type", "ttl"} or control["type"] != "ephemeral" for _, control in controls):
        raise Refused("cache_control: Input should be 'ephemeral'")
    for place, block in blocks_of(body):
        if block.get("type") == "text" and not block["text"].strip():
            named = " with cache_control" if "cache_control" in block else ""
            raise Refused(f"{place}: text content blocks{named} must be non-empty")
    if len(json.dumps(body, ensure_ascii=False).encode("utf-8", "surrogatepass")) > MOST_BYTES:
        raise Refused("Request exceeds the maximum allowed number of bytes.")
    _check_roles(body["messages"])
    _check_pictures(body)
    _check_documents(body)
    tokens = sum(_size(block) for _, block in blocks_of(body))
    if tokens + body["max_tokens"] > window:
        raise Refused(f"prompt is too long: {tokens + body['max_tokens']} tokens > {window} maximum")


def pictures_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the blocks of all pictures of a request, also those inside results, in order."""
    return _blocks_within(body, "image")


def documents_of(body: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the blocks of all PDFs of a request, also those inside results, in order."""
    return _blocks_within(body, "document")


def _blocks_within(body: dict[str, Any], kind: str) -> list[dict[str, Any]]:
    found = []
    for _, block in blocks_of(body):
        within = _content(block.get("content", "")) if block.get("type") == "tool_result" else [block]
        found += [one for one in within if one.get("type") == kind]
    return found


def _read_document(block: dict[str, Any]) -> PdfReader:
    return PdfReader(io.BytesIO(base64.b64decode(block["source"]["data"], validate=True)))


def _check_documents(body: dict[str, Any]) -> None:
    pages = 0
    for block in documents_of(body):
        if (block["source"]["type"], block["source"]["media_type"]) != ("base64", "application/pdf"):
            raise Refused("document.source.media_type: Input should be 'application/pdf'")
        try:
            reader = _read_document(block)
        except (PyPdfError, ValueError):
            raise Refused("The PDF specified was not valid.") from None
        if reader.is_encrypted:
            raise Refused("The PDF specified is password protected.")
        pages += len(reader.pages)
    if pages > MOST_PDF_PAGES:
        raise Refused(f"A maximum of {MOST_PDF_PAGES} PDF pages may be provided.")


def _size(block: dict[str, Any]) -> int:
    if block.get("type") == "image":
        width, height = _open(block).size
        return -(-width * height // PIXELS_PER_TOKEN)
    if block.get("type") == "document":
        return TOKENS_PER_PDF_PAGE * len(_read_document(block).pages)
    if block.get("type") == "tool_result":
        return sum(_size(one) for one in _content(block.get("content", ""))) + 10
    said = {name: value for name, value in block.items() if name != "cache_control"}
    return len(json.dumps(said)) // CHARACTERS_PER_TOKEN


def _open(block: dict[str, Any]) -> Image.Image:
    return Image.open(io.BytesIO(base64.b64decode(block["source"]["data"], validate=True)))


def _check_pictures(body: dict[str, Any]) -> None:
    found = pictures_of(body)
    longest = LONGEST_SIDE if len(found) <= MANY_PICTURES else LONGEST_OF_MANY
    for block in found:
        source = block["source"]
        if source["type"] != "base64" or source["media_type"] not in PICTURES:
            raise Refused(
                "image.source.media_type: Input should be 'image/jpeg', 'image/png', 'image/gif' or 'image/webp'"
            )
        if len(source["data"]) > MOST_PICTURE_BYTES:
            raise Refused(f"image exceeds 5 MB maximum: {len(source['data'])} bytes > {MOST_PICTURE_BYTES} bytes")
        try:
            picture = _open(block)
            picture.load()
        except (OSError, ValueError, SyntaxError):
            raise Refused("Could not process image") from None
        if Image.MIME[picture.format or ""] != source["media_type"]:
            raise Refused(f"Image does not match the provided media type {source['media_type']}")
        if max(picture.size) > longest:
            raise Refused(f"At least one of the image dimensions exceed max allowed size: {longest} pixels")
    for _, block in blocks_of(body):
        if block.get("is_error") and any(one["type"] != "text" for one in _content(block.get("content", ""))):
            raise Refused("all content must be type `text` if `is_error` is true")


def _check_roles(messages: Sequence[dict[str, Any]]) -> None:
    if not messages or messages[0]["role"] != "user":
        raise Refused("messages: first message must use the user role")
    asked: list[str] = []
    for message in messages:
        blocks = _content(message["content"])
        if message["role"] not in ("user", "assistant") or not blocks:
            raise Refused("messages: unexpected role, or no content")
        given = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        if stray := set(given) - set(asked):
            raise Refused(f"unexpected tool_use_id found in tool_result blocks: {min(stray)}")
        if missing := set(asked) - set(given):
            raise Refused(f"tool_use ids were found without tool_result blocks immediately after: {min(missing)}")
        if given and [block["type"] for block in blocks[: len(given)]] != ["tool_result"] * len(given):
            raise Refused("tool_result blocks must come first in the content of a message")
        asked = [block["id"] for block in blocks if block["type"] == "tool_use"]
        if asked and message["role"] != "assistant":
            raise Refused("only the assistant may use tools")
    if asked:
        raise Refused("tool_use ids were found without tool_result blocks immediately after")


class _Handler(BaseHTTPRequestHandler):
    server: CachingProvider

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            payload, kind, status = b"".join(_frames(self.server.respond(self.path, body))), "text/event-stream", 200
        except Refused as refusal:
            self.server.refusals.append(str(refusal))
            payload, kind, status = json.dumps(_refusal(self.path, refusal)).encode(), "application/json", 400
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        for at in range(0, len(payload), self.server.streaming.bytes):
            self.wfile.write(payload[at : at + self.server.streaming.bytes])

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


def _refusal(path: str, refusal: Refused) -> dict[str, Any]:
    """Return what a refusal is in the protocol of an address."""
    error: dict[str, Any] = {"type": "invalid_request_error", "message": str(refusal)}
    if path.endswith("/messages"):
        return {"type": "error", "error": error}
    if path.endswith(("/responses", "/chat/completions")):
        return {"error": error | {"param": None, "code": refusal.code}}
    return {"error": {"code": 400, "message": str(refusal), "status": "INVALID_ARGUMENT"}}


def _frames(events: Iterable[tuple[str, dict[str, Any]]]) -> Iterator[bytes]:
    for kind, event in events:
        named = f"event: {kind}\n" if kind else ""
        yield f"{named}data: {json.dumps({'type': kind} | event if kind else event)}\n\n".encode()


def without_marks(body: dict[str, Any]) -> str:
    """Return an Anthropic request's prompt as text that another one begins with if its cache would find all of it."""
    blocks = [(place, {**block, "cache_control": None}) for place, block in blocks_of(body)]
    return json.dumps(blocks).removesuffix("]")


def prompt_of(body: dict[str, Any]) -> str:
    """Return any provider's prompt as text that another one begins with if a cache would find all of it."""
    if "contents" in body:
        system = body.get("systemInstruction") or body.get("system_instruction")
        return json.dumps([body.get("tools"), system]) + json.dumps(body["contents"]).removesuffix("]")
    if any(message["role"] in ("tool", "system") for message in body["messages"]):
        return json.dumps([body.get("tools")]) + json.dumps(body["messages"]).removesuffix("]")
    return without_marks(body)
