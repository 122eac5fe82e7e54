"""What a provider's own events say that litellm does not hand on: why an answer ended, the words of a refusal, what the
provider ran itself, and the sources of what was said.

litellm (1.102) calls four of Claude's ends ``stop`` or ``content_filter``. Of a refusal it passes on the first piece in Chat
Completions, and nothing in Responses. A tool that Claude's provider runs comes as a call like any other, and its result apart
from it; of Responses come neither searches, sources nor pictures, and of Gemini no code that was run. So the events are read as they
come, before litellm makes chunks of them.

https://platform.claude.com/docs/en/build-with-claude/handling-stop-reasons,
https://platform.claude.com/docs/en/agents-and-tools/tool-use/server-tools,
https://platform.openai.com/docs/api-reference/responses-streaming, https://ai.google.dev/gemini-api/docs/code-execution
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from mnesis_core.llm.interface import Delta
from mnesis_core.messages import CitationPart, ProviderToolPart
from mnesis_core.providers.answer import CONTEXT_FULL, PAUSED, STOP_SEQUENCE, PartialAnswer
from mnesis_core.providers.opaque import UNSIGNED, unsigned_reasoning

STOPS = ("refusal", PAUSED, CONTEXT_FULL, STOP_SEQUENCE)  # Claude's, where litellm says something else.
# Of Responses, what OpenAI runs, by the types of its items; other calls are the caller's.
_RAN = {"web_search_call": "web_search", "file_search_call": "file_search", "code_interpreter_call": "code_interpreter"}
MOST_SEARCHES = 10_000  # that are believed of one answer
_UNITS = {"char": "characters", "page": "pages", "block": "blocks"}


@dataclass(frozen=True, slots=True)
class _Picture:
    coded: str


_New = str | ProviderToolPart | CitationPart | _Picture | Literal[True]  # a refusal's words; True: a text begins


class NativeEvents:
    """Reads the events of one answer; ``stop`` is why it ended, ``stop_sequence`` at which text, where litellm does not say so."""

    def __init__(self, provider: str) -> None:
        self.stop = ""
        self.stop_sequence: Any = None
        self.searches = 0  # on the web, as the provider counts them
        self.provider = provider
        self._new: list[_New] = []
        self._block: dict[str, Any] = {}  # Claude's that is being written, with the pieces of its input
        self._cited: list[CitationPart] = []  # of this block
        self._called: dict[str, dict[str, Any]] = {}  # the calls of Claude whose results have not come
        self._own: set[str | int] = set()  # ids and places, among all calls, of those that the provider runs
        self._ended: set[str] = set()  # Reasoning of Responses that a call which the provider ran came after.
        self._thought: list[str] = []
        self._code: dict[str, Any] = {}  # Gemini's, whose result has not come

    def listen(self, upstream: Any) -> None:
        """Have each event of litellm's stream read before litellm reads it."""
        # Internal: these three are where a stream of litellm begins, and where it reads an event of the provider.
        stream, make = getattr(upstream, "completion_stream", None), getattr(upstream, "make_call", None)
        if stream is None and make is not None:

            async def make_and_listen(*args: Any, **options: Any) -> Any:
                made = await make(*args, **options)
                self._listen_to(made, upstream)
                return made

            upstream.make_call = make_and_listen
        elif stream is not None:
            self._listen_to(stream, upstream)

    def deltas(self, answer: PartialAnswer) -> Iterator[Delta]:
        """Yield what came since this was asked before."""
        new, self._new = self._new, []
        for item in new:
            if isinstance(item, str):
                yield from answer.add_refusal(item)
            elif isinstance(item, ProviderToolPart):
                yield from answer.add_ran(item)
            elif isinstance(item, _Picture):
                yield from answer.add_picture(item.coded)
            elif isinstance(item, CitationPart):
                answer.cite(item)
            else:
                answer.begin_text()

    def end(self, answer: PartialAnswer) -> None:
        """Take what has no result, since none will come, and thinking that goes back although nobody signed it."""
        if self.provider in UNSIGNED and answer.reasoning:
            answer.give_back(unsigned_reasoning(answer.reasoning))
        for call in self._called.values():
            self._new.append(_claude_s(call, None))
        self._called = {}

    def is_own(self, call: Any) -> bool:
        """Return whether a piece of a call is of one that the provider runs."""
        if call.id:
            (self._own.add if call.id in self._own else self._own.discard)(call.index or 0)
        return (call.index or 0) in self._own

    def is_ended(self, reasoning: Mapping[str, Any]) -> bool:
        """Return whether an item of reasoning led to a call that the provider ran: alone it may not be sent back."""
        return reasoning.get("id") in self._ended

    def _listen_to(self, stream: Any, upstream: Any) -> None:
        if hasattr(stream, "chunk_parser"):
            stream.chunk_parser = _after(self._take, stream.chunk_parser)
        else:  # The SDK of OpenAI reads the events itself, and gives objects.
            upstream.chunk_creator = _after(self._take_chunk, upstream.chunk_creator)

    def _take(self, event: Any) -> None:
        if not isinstance(event, Mapping):
            return
        kind = event.get("type") or ""  # Of Responses, litellm has made a member of an enumeration of it.
        if not isinstance(kind, str):
            return
        if kind.startswith("response."):
            self._take_response(kind, event)
        elif kind.startswith(("content_block_", "message_")):
            self._take_claude(kind, event)
        elif isinstance(candidates := event.get("candidates"), list):
            for candidate in candidates[:1]:
                asked = _mapping(_mapping(candidate).get("groundingMetadata")).get("webSearchQueries")
                self.searches = len(asked) if isinstance(asked, list) else self.searches
                for part in _list(_mapping(_mapping(candidate).get("content")).get("parts")):
                    self._take_code(part)
        for choice in _list(event.get("choices"))[:1]:
            self._take_refusal(_mapping(choice.get("delta")).get("refusal"))

    def _take_chunk(self, chunk: Any) -> None:
        for choice in (getattr(chunk, "choices", None) or ())[:1]:
            self._take_refusal(getattr(getattr(choice, "delta", None), "refusal", None))

    def _take_refusal(self, text: Any) -> None:
        if isinstance(text, str) and text:
            self._new.append(text)

    # Claude

    def _take_claude(self, kind: str, event: Mapping[str, Any]) -> None:
        delta = _mapping(event.get("delta"))
        self.searches = claude_searches(event.get("usage")) or self.searches
        if kind == "message_delta" and delta.get("stop_reason") in STOPS:
            self.stop = str(delta["stop_reason"])
            self.stop_sequence = delta.get("stop_sequence")
        elif kind == "content_block_start":
            self._begin_block(_mapping(event.get("content_block")))
        elif kind == "content_block_delta" and isinstance(delta.get("partial_json"), str):
            self._block.setdefault("pieces", []).append(delta["partial_json"])
        elif kind == "content_block_delta" and isinstance(delta.get("citation"), Mapping):
            self._cited.append(_claude_cites(delta["citation"]))
        elif kind == "content_block_stop":
            self._new += self._cited
            self._cited = []
            block, pieces = self._block.get("block", {}), self._block.get("pieces", ())
            if block.get("type") == "server_tool_use":
                given = _read("".join(pieces)) if pieces else block.get("input")
                self._called[str(block.get("id"))] = block | {"input": given if isinstance(given, dict) else {}}
            self._block = {}

    def _begin_block(self, block: Mapping[str, Any]) -> None:
        self._block = {"block": dict(block)}
        kind = str(block.get("type"))
        if kind == "text":
            self._new.append(True)
        elif kind == "server_tool_use" and isinstance(block.get("id"), str):
            self._own.add(block["id"])
        elif kind.endswith("_tool_result") and kind != "tool_result":
            id = str(block.get("tool_use_id"))
            call = self._called.pop(
                id, {"type": "server_tool_use", "id": id, "name": kind.removesuffix("_tool_result")}
            )
            self._new.append(_claude_s(call, dict(block)))

    # Responses

    def _take_response(self, kind: str, event: Mapping[str, Any]) -> None:
        item = _mapping(event.get("item"))
        what = item.get("type")
        if kind == "response.refusal.delta":
            self._take_refusal(event.get("delta"))
        elif kind == "response.output_item.added" and what == "message":
            self._new.append(True)
        elif kind == "response.output_item.done" and what == "reasoning":
            self._thought.append(str(item.get("id")))
        elif kind == "response.output_item.done" and what == "image_generation_call":
            self._ended.update(self._thought)
            self._new.append(_Picture(_text(item.get("result"))))
        elif kind == "response.output_item.done" and what in _RAN:
            self.searches += is_search(item)
            self._ended.update(self._thought)
            self._new.append(_openai_s(item))
        elif kind == "response.output_item.done" and what == "message":
            for content in _list(item.get("content")):
                self._new += map(openai_cites, _list(content.get("annotations")))

    # Gemini

    def _take_code(self, part: Mapping[str, Any]) -> None:
        if isinstance(code := part.get("executableCode"), Mapping):
            self._code = dict(code)
        elif isinstance(result := part.get("codeExecutionResult"), Mapping):
            is_good = result.get("outcome") in (None, "OUTCOME_OK")
            said = _text(result.get("output"))
            run = ProviderToolPart(
                provider=self.provider,
                tool_name="code_execution",
                tool_call_id=f"code_{len(self._own) + 1}",
                input=_dump(self._code),
                output=said if is_good else None,
                error=None if is_good else said or _text(result.get("outcome")),
                data=_dump({"parts": [{"executableCode": self._code}, dict(part)]}),
            )
            self._own.add(run.tool_call_id)
            self._new.append(run)
            self._code = {}


def claude_searches(usage: Any) -> int:
    """Return how many searches Claude's provider bills, as its usage says."""
    count = _mapping(_mapping(usage).get("server_tool_use")).get("web_search_requests")
    return count if type(count) is int and 0 < count <= MOST_SEARCHES else 0


def is_search(item: Mapping[str, Any]) -> bool:
    """Return whether OpenAI bills an item of Responses as a search; opening a page that was found is none."""
    action = _mapping(item.get("action")).get("type")
    return item.get("type") == "web_search_call" and item.get("status") != "failed" and action in (None, "search")


def _claude_s(call: dict[str, Any], result: dict[str, Any] | None) -> ProviderToolPart:
    """Return a call of Claude's with its result, and both as they came."""
    content = (result or {}).get("content")
    error = content.get("error_code") if isinstance(content, Mapping) else None
    said = None if result is None or error else _dump(_readable(content))
    return ProviderToolPart(
        provider="anthropic",
        tool_name=_text(call.get("name"))[:200] or "unknown",
        tool_call_id=str(call.get("id"))[:200],
        input=_dump(call.get("input", {})),
        output=said,
        error=_text(error) or None,
        data=_dump({"blocks": [call, *([result] if result else [])]}),
    )


def _claude_cites(source: Mapping[str, Any]) -> CitationPart:
    places = ((unit, source.get(f"start_{unit}_index", source.get(f"start_{unit}_number"))) for unit in _UNITS)
    return CitationPart(
        text=_text(source.get("cited_text")),
        title=_text(source.get("title") or source.get("document_title")),
        url=_text(source.get("url") or source.get("source")),
        place=next((f"{_UNITS[unit]} from {start}" for unit, start in places if type(start) is int), ""),
        provider="anthropic",
        data=_dump(dict(source)),
    )


def _openai_s(item: Mapping[str, Any]) -> ProviderToolPart:
    """Return what OpenAI ran, as readable as it says it, and as it came."""
    asked = {"code": item.get("code")} if "code" in item else item.get("action") or {"queries": item.get("queries")}
    logs = [_text(output.get("logs")) for output in _list(item.get("outputs")) if output.get("type") == "logs"]
    found = item.get("results") or _mapping(item.get("action")).get("sources")
    has_failed = item.get("status") == "failed"
    said = "\n".join(logs) if logs else (_dump(_readable(found)) if found else None)
    return ProviderToolPart(
        provider="openai",
        tool_name=_RAN[item["type"]],
        tool_call_id=str(item.get("id"))[:200],
        input=_dump(asked),
        output=None if has_failed else said,
        error=(said or "failed") if has_failed else None,
        data=_dump({"item": dict(item)}),
    )


def openai_cites(annotation: Any, provider: str = "openai") -> CitationPart:
    """Return an annotation of Chat Completions or of Responses as a source, with its place in the text."""
    said = _mapping(annotation)
    about = _mapping(said.get(str(said.get("type")))) or said
    start, end = about.get("start_index"), about.get("end_index")
    if not (type(start) is int and type(end) is int and 0 <= start <= end):
        start = end = 0
    return CitationPart(
        title=_text(about.get("title") or about.get("filename") or about.get("file_id")),
        url=_text(about.get("url")),
        start=start,
        end=end,
        provider=provider,
        data=_dump(dict(said)),
    )


def _readable(value: Any) -> Any:
    """Return what a tool gave back without what only its provider can read."""
    if isinstance(value, Mapping):
        return {name: _readable(item) for name, item in value.items() if not str(name).startswith("encrypted_")}
    return [_readable(item) for item in value] if isinstance(value, list) else value


def _after(take: Callable[[Any], None], read: Callable[..., Any]) -> Callable[..., Any]:
    def take_and_read(chunk: Any, *args: Any, **options: Any) -> Any:
        take(chunk)
        return read(chunk, *args, **options)

    return take_and_read


def _mapping(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, Mapping) else {}


def _list(value: Any) -> list[Mapping[str, Any]]:
    return [item for item in value if isinstance(item, Mapping)] if isinstance(value, list) else []


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""


def _dump(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


def _read(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None
