"""Requests that are passed on to a provider byte for byte, and its answers, which are read on their way to the client.

Nothing is added to either: the key and the model's name are the provider's, the rest is the client's. What cannot be read
of an answer is passed on all the same, and is not in the record.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import partial
from io import BytesIO
from typing import Any
from urllib.request import getproxies, proxy_bypass
from weakref import WeakKeyDictionary

from mnesis_core.errors import (
    ContextWindowExceeded,
    GatewayProtocol,
    ModelAuthenticationFailed,
    ModelError,
    ModelNotAllowed,
    ModelRateLimited,
    ModelRefusedRequest,
    ModelStreamBroken,
    ModelTimeout,
    ModelUnavailable,
    NotListed,
    gettext_noop,
)
from mnesis_core.llm.interface import (
    Delta,
    Item,
    ModelSpec,
    OpaqueBlock,
    ReasoningDelta,
    Reply,
    Request,
    TextDelta,
    Usage,
)
from mnesis_core.llm.tokens import is_too_long
from mnesis_core.network.hosts import permitted_address
from mnesis_core.providers.answer import DeadlinePassed, PartialAnswer, before, believable_usage, deadline_of, no_answer
from mnesis_core.providers.credentials import key_and_address, provider_of
from mnesis_core.providers.litellm_ import with_searches
from mnesis_core.providers.litellm_errors import quoted, said_nothing, unreachable_error
from mnesis_core.providers.native import claude_searches, is_search
from mnesis_core.text import printable
from mnesis_core.turns.gateway import RESPONSE, Protocol, response_data

CONNECT_SECONDS = 10.0
MOST_HEADER = 65_536  # bytes of a line in the head of an answer
MOST_BYTES = 64 * 1024 * 1024  # of one answer; what comes after is not waited for
LONGEST_QUOTE = 300
_OPENAI = ("openai", "hosted_vllm", "llamafile", "lm_studio", "docker_model_runner")
_SPOKEN = {Protocol.MESSAGES: ("anthropic",), Protocol.COMPLETIONS: _OPENAI, Protocol.RESPONSES: _OPENAI}
_PATHS = {
    Protocol.MESSAGES: "/v1/messages",
    Protocol.COMPLETIONS: "/chat/completions",
    Protocol.RESPONSES: "/responses",
}
# What belongs to one connection (RFC 9110, 7.6.1), to the caller here, or to how the bytes are carried.
_NOT_SENT = {
    *("connection", "keep-alive", "proxy-authenticate", "proxy-authorization", "te", "trailer", "transfer-encoding"),
    *("upgrade", "host", "content-length", "accept-encoding", "expect", "authorization", "x-api-key", "cookie"),
    *("forwarded", "via", "origin", "referer", "x-request-id", "x-real-ip"),
}
_NOT_SENT_BACK = {
    *("connection", "keep-alive", "proxy-authenticate", "te", "trailer", "transfer-encoding", "upgrade"),
    *("content-length", "content-encoding", "set-cookie", "date", "server", "alt-svc", "strict-transport-security"),
}
_EVENT_END = re.compile(rb"\r\n\r\n|\n\n|\r\r")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    url: str
    headers: Mapping[str, str] = field(repr=False)


def target_of(
    spec: ModelSpec, protocol: Protocol, headers: Iterable[tuple[str, str]], *, path: str = "", query: str = ""
) -> Target:
    """Return where a request goes, with the client's own headers and the provider's key.

    :param path: what follows the protocol's address
    :raises GatewayProtocol: the model's provider does not speak the protocol of the request.
    :raises ModelNotConfigured, ModelNotAllowed: as for any call of the model
    """
    provider = provider_of(spec.litellm_model)
    if provider not in _SPOKEN[protocol]:
        raise GatewayProtocol(
            gettext_noop(
                "The gateway passes a request on as it is, and the provider of '%(model)s' is not known to speak %(path)s. Enter the model as %(provider)s/NAME with the address of a server that does, use the endpoint of the protocol that it speaks, or ask without the gateway."
            ),
            {"model": spec.alias, "path": _PATHS[protocol], "provider": _SPOKEN[protocol][0]},
            model=spec.alias,
        )
    key, address = key_and_address(spec)
    if not address:
        raise GatewayProtocol(
            gettext_noop("The model '%(model)s' has no address. Enter one with its entry."),
            {"model": spec.alias},
            model=spec.alias,
        )
    address = address.rstrip("/")
    end = _PATHS[protocol]
    if protocol is Protocol.MESSAGES:
        address = address.removesuffix("/v1/messages").removesuffix("/v1")
    else:
        address = address.removesuffix(end)
    sent = {name: value for name, value in headers if name not in _NOT_SENT and not name.startswith(_OURS)}
    sent["accept-encoding"] = "identity"
    if key:
        named = {"x-api-key": key} if protocol is Protocol.MESSAGES else {"authorization": f"Bearer {key}"}
        sent |= named
    return Target(url=f"{address}{end}{path}{'?' if query else ''}{query}", headers=sent)


_OURS = ("x-mnesis-", "x-forwarded-", "sec-", "cf-")


class Exchange:
    """What a provider answers, from the task that reads and records it to the one that passes it on."""

    def __init__(self) -> None:
        self._head: asyncio.Future[tuple[int, dict[str, str]]] = asyncio.get_running_loop().create_future()
        self._coming: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._held: list[bytes] = []
        self._is_holding = False
        self.is_over = False

    def begin(self, status: int, headers: Iterable[tuple[str, str]]) -> None:
        if not self._head.done():
            self._head.set_result((status, {n: _as_sent(v) for n, v in headers if n.lower() not in _NOT_SENT_BACK}))

    def put(self, chunk: bytes, *, hold: bool = False) -> None:
        """Pass a piece on; with ``hold``, it and all that follow wait until the end is recorded (``close``)."""
        self._is_holding = self._is_holding or hold
        if chunk:
            (self._held.append if self._is_holding else self._coming.put_nowait)(chunk)

    def close(self, error: Exception | None = None) -> None:
        """Pass on what was held, and end. Closing again changes nothing.

        :param error: why no answer has begun
        """
        if not self._head.done():
            self._head.set_exception(error or no_answer())
            self._head.exception()  # it may be that nobody waits
        for chunk in (*self._held, None) if not self.is_over else ():
            self._coming.put_nowait(chunk)
        self.is_over, self._held = True, []

    @property
    def has_begun(self) -> bool:
        return self._head.done()

    async def head(self) -> tuple[int, dict[str, str]]:
        """:raises MnesisError: no answer has begun."""
        return await asyncio.shield(self._head)

    async def pieces(self) -> AsyncIterator[bytes]:
        while (chunk := await self._coming.get()) is not None:
            yield chunk


def _as_sent(header: str) -> str:
    """Return a header's value as Django takes it, a character a byte; aiohttp reads UTF-8."""
    return header.encode(errors="surrogateescape").decode("latin-1")


class PassedOn:
    """A model that is asked with a client's own bytes."""

    def __init__(
        self,
        spec: ModelSpec,
        *,
        protocol: Protocol,
        target: Target,
        body: bytes,
        exchange: Exchange,
        prompt_tokens: int,
    ) -> None:
        self.spec = spec
        self._protocol, self._target, self._body = protocol, target, body
        self._exchange, self._prompt_tokens = exchange, prompt_tokens

    async def stream(self, request: Request) -> AsyncIterator[Item]:
        most = request.max_characters or MOST_BYTES
        answer = AnswerReader(self._protocol, limit=most)
        failure: ModelError | None = None
        deadline = deadline_of(self.spec, request)
        try:
            response = await before(deadline, open_response(self.spec, self._target, self._body))
            try:
                status = response.status
                self._exchange.begin(status, response.headers.items())
                is_stream = "text/event-stream" in response.headers.get("content-type", "")
                whole = bytearray()
                while chunk := await before(deadline, response.content.readany()):
                    if not is_stream or status >= 400:
                        whole += chunk
                        self._exchange.put(chunk, hold=True)
                    else:
                        items, end = answer.feed(chunk)
                        self._exchange.put(chunk[:end])
                        self._exchange.put(chunk[end:], hold=answer.is_over)
                        for item in items:
                            yield item
                    if len(whole) > MOST_BYTES:
                        break
                if status >= 400 or status < 200:
                    failure = _refusal(self.spec, status, bytes(whole), response.headers)
                elif not is_stream:
                    for item in answer.read_whole(bytes(whole)):
                        yield item
            finally:
                response.close()
        except DeadlinePassed:
            failure = ModelTimeout(model=self.spec.alias)
        except Exception as error:
            failure = _fault(self.spec, error, has_begun=answer.partial.has_begun)
        reply = answer.finish(failure, request_tokens=self._prompt_tokens)
        # litellm's table may have to be loaded.
        yield await asyncio.to_thread(with_searches, reply, self.spec, answer.searches) if answer.searches else reply


_CLIENTS: WeakKeyDictionary[asyncio.AbstractEventLoop, Any] = WeakKeyDictionary()


async def open_response(spec: ModelSpec, target: Target, body: bytes) -> Any:
    """Return the provider's response, whose body is still to be read."""
    import aiohttp
    from yarl import URL

    url, headers, certified = URL(target.url), dict(target.headers), None
    proxy = _proxy_of(url.scheme, url.raw_host or "")
    if spec.listed_addresses is not None:
        certified, headers["host"] = url.raw_host or "", url.host_port_subcomponent or ""
        address = await asyncio.to_thread(permitted_address, certified, url.port or 0, spec.listed_addresses)
        url = url.with_host(address)
    return await _client().post(
        url,
        data=BytesIO(body),  # in pieces: twenty megabytes at once would hold up the loop
        headers=headers,
        allow_redirects=False,
        server_hostname=certified,
        proxy=proxy,
        timeout=aiohttp.ClientTimeout(total=None, sock_connect=CONNECT_SECONDS, sock_read=spec.timeout_seconds),
    )


def _proxy_of(scheme: str, host: str) -> str | None:
    """Return the proxy that the environment names (``HTTPS_PROXY``, ``NO_PROXY``).

    aiohttp's ``trust_env`` would also add the passwords of ``~/.netrc`` to a request, for whatever host a model names.
    """
    proxies = getproxies()
    proxy = proxies.get(scheme) or proxies.get("all")
    if not proxy or proxy_bypass(host):
        return None
    return proxy if "://" in proxy else f"http://{proxy}"


def _client() -> Any:
    """Return the client of this event loop. A request takes a fifth of the processor time that it takes with httpx."""
    import aiohttp
    import httpx

    loop = asyncio.get_running_loop()
    if loop not in _CLIENTS:
        trusted = httpx.create_ssl_context()  # the certificates that all other calls of models trust
        _CLIENTS[loop] = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(ssl=trusted, limit=0, keepalive_timeout=60.0),
            cookie_jar=aiohttp.DummyCookieJar(),
            skip_auto_headers=("Accept", "Accept-Encoding", "Content-Type", "User-Agent"),
            max_line_size=MOST_HEADER,
            max_field_size=MOST_HEADER,
        )
    return _CLIENTS[loop]


async def close_connections() -> None:
    """Close this event loop's connections, before the loop ends."""
    client = _CLIENTS.pop(asyncio.get_running_loop(), None)
    if client is not None:
        await client.close()


def _refusal(spec: ModelSpec, status: int, body: bytes, headers: Mapping[str, str]) -> ModelError:
    said = body[:100_000].decode(errors="replace")
    with suppress(ValueError, RecursionError, AttributeError):
        error = json.loads(said).get("error")
        said = str(error.get("message", "") if isinstance(error, dict) else error or "")
    says = printable(" ".join(said.split()))[:LONGEST_QUOTE]
    details: dict[str, Any] = {"model": spec.alias, "status": status}
    if status in (400, 413, 422) and is_too_long(says):
        kind: type[ModelError] = ContextWindowExceeded
    elif status == 429:
        kind = ModelRateLimited
        details |= {"retry_after": headers["retry-after"][:40]} if "retry-after" in headers else {}
    elif status in (401, 403):
        return ModelAuthenticationFailed(**details)  # without its words, which may repeat the key
    else:
        kind = ModelUnavailable if status >= 500 else ModelRefusedRequest
    quote = says.replace(spec.api_key, "…") if spec.api_key else says
    return kind(quoted(kind().message, quote) if quote else "", **details)


def _fault(spec: ModelSpec, error: Exception, *, has_begun: bool) -> ModelError:
    import aiohttp

    if isinstance(error, NotListed):
        return ModelNotAllowed(error.message, model=spec.alias)
    if isinstance(error, ModelError):
        return error
    if isinstance(error, aiohttp.SocketTimeoutError):
        return ModelTimeout(said_nothing(spec), model=spec.alias)
    if has_begun:
        return ModelStreamBroken(model=spec.alias)
    if not isinstance(error, aiohttp.ClientError | OSError):
        raise error
    return unreachable_error(spec)


# What an answer says.


class AnswerReader:
    """An answer in one of the protocols, from its bytes, as far as it can be read."""

    def __init__(self, protocol: Protocol, *, limit: int) -> None:
        self.partial = PartialAnswer(limit=limit)
        self.is_over = False  # whether nothing of the answer comes any more
        self.calling: set[int] = set()  # the places of calls that the client runs
        self._protocol = protocol
        self._waiting = bytearray()
        self.searches = 0  # on the web, as the provider counts them
        self._reason = ""
        self._stop_sequence: Any = None
        self._counts: dict[str, Any] = {}
        self._error: ModelError | None = None
        self._is_whole = False

    def feed(self, chunk: bytes) -> tuple[list[Item], int]:
        """Read a piece of a stream; return what it says, and where in it the last event of the answer begins."""
        before = len(self._waiting)
        self._waiting += chunk
        items: list[Item] = []
        at, last = 0, 0 if self.is_over else before + len(chunk)
        for end in _EVENT_END.finditer(self._waiting):
            items += self._read_event(bytes(self._waiting[at : end.start()]))
            last = min(last, at) if self.is_over else last
            at = end.end()
        del self._waiting[:at]
        if len(self._waiting) > MOST_BYTES:
            self._waiting.clear()
        return items, max(0, last - before)

    def read_whole(self, body: bytes) -> list[Item]:
        self._is_whole = True
        with suppress(ValueError, RecursionError):
            value = json.loads(body)
            if isinstance(value, dict):
                return self._safely(_WHOLE[self._protocol], value)
        return []

    def finish(self, failure: ModelError | None, *, request_tokens: int) -> Reply:
        usage = self._usage()
        if usage is None and failure and not self.partial.has_begun:
            usage = Usage(input_tokens=0, output_tokens=0)
        reply = self.partial.finish(
            finish_reason=self._reason,
            usage=usage,
            request_tokens=request_tokens,
            usage_said=json.dumps(self._counts) if self._counts else "",
            stop_sequence=self._stop_sequence,
            failure=failure or self._error,
        )
        return replace(reply, first_at=None) if self._is_whole else reply

    def _read_event(self, event: bytes) -> list[Item]:
        lines = [line[5:].strip() for line in event.splitlines() if line.startswith(b"data:")]
        data = b"\n".join(lines)
        if data == b"[DONE]":
            self.is_over = True
            return []
        try:
            value = json.loads(data) if data else None
        except (ValueError, RecursionError):
            return []
        return self._safely(_EVENTS[self._protocol], value) if isinstance(value, dict) else []

    def _safely(self, read: Any, value: dict[str, Any]) -> list[Item]:
        items: list[Item] = []
        # Of another form than the protocol's: it is passed on, and not read.
        with suppress(TypeError, LookupError, AttributeError, ValueError):
            items.extend(read(self, value))
        return items

    def _usage(self) -> Usage | None:
        counts = self._counts
        if self._protocol is Protocol.MESSAGES:
            read, written = (counts.get(f"cache_{way}_input_tokens") or 0 for way in ("read", "creation"))
            fresh = counts.get("input_tokens")
            known = [count for count in (fresh, read, written) if type(count) is int]
            within = counts.get("cache_creation")
            hour = within.get("ephemeral_1h_input_tokens") if isinstance(within, dict) else 0
            return believable_usage(
                prompt=sum(known) if len(known) == 3 else None,
                answer=counts.get("output_tokens"),
                cache_read=read,
                cache_write=written,
                cache_write_1h=hour,
            )
        names = ("prompt", "completion") if self._protocol is Protocol.COMPLETIONS else ("input", "output")
        details = counts.get(f"{names[0]}_tokens_details")
        return believable_usage(
            prompt=counts.get(f"{names[0]}_tokens"),
            answer=counts.get(f"{names[1]}_tokens"),
            cache_read=details.get("cached_tokens") if isinstance(details, dict) else 0,
        )

    def name(self, id: Any) -> list[OpaqueBlock]:
        """Return what the provider calls an answer of Responses, as the record keeps it: the client may go on by it."""
        if not isinstance(id, str) or not id:
            return []
        return self.partial.add_opaque(OpaqueBlock(kind=RESPONSE, data=response_data(id)))

    def count(self, usage: Any) -> None:
        if isinstance(usage, dict):
            self._counts |= {name: count for name, count in usage.items() if count is not None}
            self.searches = claude_searches(usage) or self.searches

    def end(self, reason: Any, *, stop_sequence: Any = None) -> None:
        self._reason = str(reason) if reason else self._reason
        self._stop_sequence = stop_sequence or self._stop_sequence

    def fail(self, said: Any) -> None:
        said = said.get("message") if isinstance(said, dict) else said
        quote = printable(" ".join(str(said or "").split()))[:LONGEST_QUOTE]
        self._error = ModelStreamBroken(quoted(gettext_noop("The answer broke off."), quote))

    def call(self, *, index: int, id: Any = "", name: Any = "", arguments: Any = "") -> None:
        self.calling.add(index)
        self.partial.add_fragment(index=index, id=str(id or ""), name=str(name or ""), arguments=str(arguments or ""))


def _message_event(answer: AnswerReader, event: dict[str, Any]) -> Iterable[TextDelta | ReasoningDelta]:
    match event.get("type"):
        case "message_start":
            answer.count(event["message"].get("usage"))
        case "content_block_start":
            yield from _message_block(answer, event["content_block"], event["index"], is_whole=False)
        case "content_block_delta":
            delta, index = event["delta"], event["index"]
            if (kind := delta.get("type")) == "text_delta":
                yield from answer.partial.add_text(delta["text"])
            elif kind == "thinking_delta":
                yield from answer.partial.add_reasoning(delta["thinking"])
            elif kind == "input_json_delta" and index in answer.calling:  # others are the provider's own tools
                answer.call(index=index, arguments=delta["partial_json"])
        case "message_delta":
            answer.end(event["delta"].get("stop_reason"), stop_sequence=event["delta"].get("stop_sequence"))
            answer.count(event.get("usage"))
        case "message_stop":
            answer.is_over = True
        case "error":
            answer.fail(event.get("error"))


def _message_block(
    answer: AnswerReader, block: dict[str, Any], index: int, *, is_whole: bool
) -> Iterable[TextDelta | ReasoningDelta]:
    match block.get("type"):
        case "text":
            yield from answer.partial.add_text(block.get("text") or "")
        case "thinking":
            yield from answer.partial.add_reasoning(block.get("thinking") or "")
        case "tool_use":
            arguments = json.dumps(block.get("input"), ensure_ascii=False) if is_whole or block.get("input") else ""
            answer.call(index=index, id=block["id"], name=block["name"], arguments=arguments)


def _whole_message(answer: AnswerReader, body: dict[str, Any]) -> Iterable[TextDelta | ReasoningDelta]:
    answer.count(body.get("usage"))
    answer.end(body.get("stop_reason"), stop_sequence=body.get("stop_sequence"))
    for index, block in enumerate(body["content"]):
        yield from _message_block(answer, block, index, is_whole=True)


def _completion(
    answer: AnswerReader, event: dict[str, Any], *, key: str = "delta"
) -> Iterable[TextDelta | ReasoningDelta]:
    if "error" in event:
        answer.fail(event["error"])
    answer.count(event.get("usage"))
    for choice in event.get("choices") or ():
        if choice.get("index", 0) != 0:
            continue  # further answers to the same question are passed on, and the first one is recorded
        said = choice.get(key) or {}
        thought = said.get("reasoning_content") or said.get("reasoning")
        yield from answer.partial.add_reasoning(thought if isinstance(thought, str) else "")
        for text in (said.get("content"), said.get("refusal")):
            yield from answer.partial.add_text(text if isinstance(text, str) else "")
        for place, call in enumerate(said.get("tool_calls") or ()):
            inner = call.get("function") or {}
            if call.get("custom"):
                inner = call["custom"] | {"arguments": json.dumps({"input": call["custom"].get("input", "")})}
            where = call.get("index", place)
            answer.call(index=where, id=call.get("id"), name=inner.get("name"), arguments=inner.get("arguments"))
        answer.end(choice.get("finish_reason"))


def _response_event(answer: AnswerReader, event: dict[str, Any]) -> Iterable[Delta]:
    kind = str(event.get("type", ""))
    match kind:
        case "response.output_text.delta" | "response.refusal.delta":
            yield from answer.partial.add_text(event["delta"])
        case "response.reasoning_summary_text.delta" | "response.reasoning_text.delta":
            yield from answer.partial.add_reasoning(event["delta"])
        case "response.output_item.done":
            _response_call(answer, event["item"], event.get("output_index", 0))
        case "response.completed" | "response.incomplete" | "response.failed":
            _end_response(answer, event["response"])
            answer.is_over = True
        case "response.created":
            yield from answer.name(event["response"].get("id"))
        case "error":
            answer.fail(event.get("error") or event.get("message"))


def _response_call(answer: AnswerReader, item: dict[str, Any], index: int) -> None:
    kind = item.get("type")
    answer.searches += is_search(item)
    if kind == "function_call":
        answer.call(index=index, id=item["call_id"], name=item["name"], arguments=item.get("arguments"))
    elif kind in ("custom_tool_call", "local_shell_call"):
        free = {name: item[name] for name in ("input", "action") if name in item}
        answer.call(index=index, id=item["call_id"], name=item.get("name", kind), arguments=json.dumps(free))


def _end_response(answer: AnswerReader, response: dict[str, Any]) -> None:
    answer.count(response.get("usage"))
    status = response.get("status")
    if status == "failed":
        answer.fail(response.get("error"))
    elif status == "incomplete":
        answer.end((response.get("incomplete_details") or {}).get("reason") or status)
    else:
        answer.end(status)


def _whole_response(answer: AnswerReader, body: dict[str, Any]) -> Iterable[Delta]:
    yield from answer.name(body.get("id"))
    for index, item in enumerate(body.get("output") or ()):
        if item.get("type") == "message":
            for block in item.get("content") or ():
                yield from answer.partial.add_text(block.get("text") or block.get("refusal") or "")
        elif item.get("type") == "reasoning":
            for block in (*(item.get("summary") or ()), *(item.get("content") or ())):
                yield from answer.partial.add_reasoning(block.get("text") or "")
        else:
            _response_call(answer, item, index)
    _end_response(answer, body)


_EVENTS = {
    Protocol.MESSAGES: _message_event,
    Protocol.COMPLETIONS: _completion,
    Protocol.RESPONSES: _response_event,
}
_WHOLE = {
    Protocol.MESSAGES: _whole_message,
    Protocol.COMPLETIONS: partial(_completion, key="message"),
    Protocol.RESPONSES: _whole_response,
}
