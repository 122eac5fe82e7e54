"""A loopback provider that refuses what Anthropic, OpenAI and Google refuse, and counts what their caches read and write.

It answers at three addresses, each by the public documentation of its owner:

``…/v1/messages``: Anthropic's Messages (https://docs.claude.com/en/api/messages). Refused: unknown parameters, more than
four cache breakpoints, a breakpoint on an empty text, a breakpoint of an hour after one of five minutes, a conversation that
does not begin with the user, a tool result without its call in the message before and a call without its result in the
next one, a prompt that leaves no room for the answer, and pictures that are broken, of another format, larger than
5 MB or 8,000 pixels a side (2,000 with more than 20 of them), or in the result of a call that failed
(https://docs.claude.com/en/docs/build-with-claude/vision). A picture costs width x height / 750 tokens. PDFs that are
broken or encrypted, or have more than 100 pages together (https://docs.claude.com/en/docs/build-with-claude/pdf-support), are
refused too. The cache
(https://docs.claude.com/en/docs/build-with-claude/prompt-caching) takes tools, system and messages as one row of blocks.
What was kept is looked for at each breakpoint and at the 20 blocks before it, the longest wins, and reading it renews it.
Up to each breakpoint the prompt is written, from 1,024 tokens on, for the breakpoint's lifetime.

``…/chat/completions``: OpenAI's Chat Completions (https://platform.openai.com/docs/guides/prompt-caching), whose cache reads
the longest beginning that tools and messages have in common with an earlier request, from 1,024 tokens on in steps of 128.
What OpenAI and Google refuse is in ``strict``.

``…:streamGenerateContent``: Gemini's (https://ai.google.dev/gemini-api/docs/caching, "implicit caching"), the same from
1,024 tokens on without steps.
"""

from __future__ import annotations

import base64
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler
from typing import Any

from PIL import Image
from pypdf import PdfReader
from pypdf.errors import PyPdfError

from tests.support.providers.strict import CHARACTERS_PER_TOKEN, check_chat, check_gemini
from tests.support.providers.strict import Refused as Refused
from tests.support.providers.threaded_server import ThreadedServer

SMALLEST = 1_024  # tokens
LOOK_BACK = 20  # blocks
MOST_BREAKPOINTS = 4
PIXELS_PER_TOKEN = 750
PICTURES = {"image/jpeg", "image/png", "image/gif", "image/webp"}
MOST_PICTURE_BYTES = 5 * 1024 * 1024
LONGEST_SIDE, LONGEST_OF_MANY, MANY_PICTURES = 8_000, 2_000, 20
MOST_PDF_PAGES, TOKENS_PER_PDF_PAGE = 100, 1_600
SECONDS = {"5m": 300.0, "1h": 3_600.0}
PARAMETERS = {
    *("model", "messages", "max_tokens", "system", "tools", "tool_choice", "stream", "temperature", "top_p", "top_k"),
    *("stop_sequences", "metadata", "thinking", "service_tier", "output_config"),
}
Answer = str | tuple[str, dict[str, Any]]  # a text, or the name of a tool and its arguments


@dataclass(frozen=True, slots=True)
class Bill:
    """The prompt tokens of one call."""

    fresh: int
    read: int = 0
    written: dict[str, int] = field(default_factory=dict)  # by lifetime

    @property
    def total(self) -> int:
        return self.fresh + self.read + sum(self.written.values())


class CachingProvider(ThreadedServer):
    """Use as a context manager. ``answer`` says what the model answers to the call of a number, counted from 0.

    ``clock`` is the time in seconds, and the caller's to move.
    """

    def __init__(self, answer: Callable[[int], Answer], *, window: int = 200_000) -> None:
        super().__init__(_Handler)
        self.answer, self.window, self.clock = answer, window, 0.0
        self.bills: list[Bill] = []
        self.refusals: list[str] = []
        self._kept: dict[str, tuple[float, float]] = {}  # the end of a beginning's lifetime, and its length in seconds
        self._seen: list[str] = []

    @property
    def share_read(self) -> float:
        return sum(bill.read for bill in self.bills) / sum(bill.total for bill in self.bills)

    def respond(self, path: str, body: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
        """Return the events of an answer, each with its type.

        :raises Refused: the provider would not take the request.
        """
        self.requests.append(body)
        if path.endswith("/messages"):
            check(body, self.window)
            bill, speak = self._bill_blocks(body), _anthropic
        elif "GenerateContent" in path or "generateContent" in path:
            check_gemini(body)
            prompt = json.dumps([body.get("tools"), body.get("systemInstruction") or body.get("system_instruction")])
            bill, speak = self._bill_beginning(prompt + json.dumps(body["contents"]), step=1), _gemini
        else:
            check_chat(body, self.window)
            bill = self._bill_beginning(json.dumps([body.get("tools")]) + json.dumps(body["messages"]), step=128)
            speak = _openai
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

    def _bill_beginning(self, prompt: str, *, step: int) -> Bill:
        common = max((_common(prompt, seen) for seen in self._seen[-3:]), default=0) // CHARACTERS_PER_TOKEN
        self._seen.append(prompt)
        read = common // step * step if common >= SMALLEST else 0
        return Bill(fresh=len(prompt) // CHARACTERS_PER_TOKEN - read, read=read)


def _common(one: str, other: str) -> int:
    """Return how many characters two texts begin with in common."""
    low, high = 0, min(len(one), len(other))
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if one[low:middle] == other[low:middle] else (low, middle - 1)
    return low


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


Events = Iterator[tuple[str, dict[str, Any]]]


def stopped(answer: Any, body: dict[str, Any]) -> tuple[Any, str | None]:
    """Return a text up to the first stop sequence in it, and which one that is."""
    asked = body.get("stop_sequences") or body.get("stop") or ()
    if not isinstance(answer, str):
        return answer, None
    places = {answer.find(stop): stop for stop in ([asked] if isinstance(asked, str) else asked) if stop in answer}
    return (answer[: min(places)], places[min(places)]) if places else (answer, None)


def ending(reason: str, stop: str | None) -> dict[str, Any]:
    """Return why an answer of Anthropic's ended. https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons"""
    return {"stop_reason": "stop_sequence" if stop else reason, "stop_sequence": stop}


def _anthropic(answer: Answer, bill: Bill, number: int, stop: str | None) -> Events:
    usage = {
        "input_tokens": bill.fresh,
        "cache_read_input_tokens": bill.read,
        "cache_creation_input_tokens": sum(bill.written.values()),
        "cache_creation": {f"ephemeral_{life}_input_tokens": bill.written.get(life, 0) for life in SECONDS},
        "output_tokens": 1,
    }
    head = {"id": f"msg_{number}", "type": "message", "role": "assistant", "model": "claude", "content": []}
    yield "message_start", {"message": head | {"stop_reason": None, "stop_sequence": None, "usage": usage}}
    if isinstance(answer, str):
        block: dict[str, Any] = {"type": "text", "text": ""}
        delta: dict[str, Any] = {"type": "text_delta", "text": answer}
    else:
        block = {"type": "tool_use", "id": f"toolu_{number}", "name": answer[0], "input": {}}
        delta = {"type": "input_json_delta", "partial_json": json.dumps(answer[1])}
    yield "content_block_start", {"index": 0, "content_block": block}
    yield "content_block_delta", {"index": 0, "delta": delta}
    yield "content_block_stop", {"index": 0}
    reason = "end_turn" if isinstance(answer, str) else "tool_use"
    yield "message_delta", {"delta": ending(reason, stop), "usage": {"output_tokens": 20}}
    yield "message_stop", {}


def _openai(answer: Answer, bill: Bill, number: int, _: str | None) -> Events:
    delta: dict[str, Any] = {"role": "assistant", "content": answer}
    if not isinstance(answer, str):
        function = {"name": answer[0], "arguments": json.dumps(answer[1])}
        call = {"index": 0, "id": f"call_{number}", "type": "function", "function": function}
        delta = {"role": "assistant", "content": None, "tool_calls": [call]}
    reason = "stop" if isinstance(answer, str) else "tool_calls"
    head = {"id": f"chatcmpl-{number}", "object": "chat.completion.chunk", "created": 1, "model": "gpt"}
    yield "", head | {"choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield "", head | {"choices": [{"index": 0, "delta": {}, "finish_reason": reason}]}
    counts = {"prompt_tokens": bill.total, "completion_tokens": 20, "total_tokens": bill.total + 20}
    yield "", head | {"choices": [], "usage": counts | {"prompt_tokens_details": {"cached_tokens": bill.read}}}


def _gemini(answer: Answer, bill: Bill, number: int, _: str | None) -> Events:
    part = {"text": answer} if isinstance(answer, str) else {"functionCall": {"name": answer[0], "args": answer[1]}}
    content = {"role": "model", "parts": [part]}
    counts = {"promptTokenCount": bill.total, "candidatesTokenCount": 20, "totalTokenCount": bill.total + 20}
    usage = counts | {"cachedContentTokenCount": bill.read}
    candidate = {"index": 0, "content": content, "finishReason": "STOP"}
    yield "", {"candidates": [candidate], "usageMetadata": usage, "responseId": f"r{number}"}


class _Handler(BaseHTTPRequestHandler):
    server: CachingProvider

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        try:
            payload, kind, status = b"".join(_frames(self.server.respond(self.path, body))), "text/event-stream", 200
        except Refused as refusal:
            self.server.refusals.append(str(refusal))
            error = {"type": "error", "error": {"type": "invalid_request_error", "message": str(refusal)}}
            payload, kind, status = json.dumps(error).encode(), "application/json", 400
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(payload)))
        self.end_headers()
        self.wfile.write(payload)

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


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
