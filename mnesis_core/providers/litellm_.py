"""Every real provider, through litellm: the one module that knows it.

litellm is pinned exactly: it has no way to ask how a stream really ended, so some of its internals are read here, each
with a comment, and ``tests/core/providers/litellm`` is the contract that a new version must pass. It takes seconds to
import, so it is imported inside functions (``warm_up`` does it early, in a thread).
"""

from __future__ import annotations

import asyncio
import json
import os
import warnings
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import suppress
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from itertools import chain
from typing import Any, TypeVar

from mnesis_core.config import StreamConfig
from mnesis_core.errors import ModelError
from mnesis_core.files.pictures import AUDIO_KIND, PDF_KIND, PICTURE_KIND
from mnesis_core.llm.interface import (
    Delta,
    Item,
    LimitSource,
    ModelSpec,
    Prices,
    Reply,
    Request,
    Source,
    StatedLimits,
    TextDelta,
    Usage,
)
from mnesis_core.llm.search_models import Embedded, checked_scores, checked_vectors
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.network.hosts import Network, pin
from mnesis_core.providers.answer import (
    DeadlinePassed,
    PartialAnswer,
    before,
    believable_usage,
    deadline_in,
    deadline_of,
    estimate_payload,
    seconds_of,
    sendable,
)
from mnesis_core.providers.credentials import key_and_address, provider_of
from mnesis_core.providers.demo import DEMO_LIMITS
from mnesis_core.providers.litellm_errors import model_error, out_of_time
from mnesis_core.providers.native import NativeEvents, openai_cites
from mnesis_core.providers.opaque import (
    SIGNATURE_IN_ID,
    opaque_blocks,
    signature_of_call,
)
from mnesis_core.providers.rendering import DEEPEST_ARGUMENTS
from mnesis_core.text import nests_within, printable

PROVIDER_TOOLS = "provider_tools"  # In a payload, the tools that the provider runs, in its own form.
READ_RESULTS = ("gemini", "vertex_ai")  # Providers for which litellm reads the results of tools as JSON.
COUNT_BYTES = ("gemini", "vertex_ai")  # Providers whose sources have their places in bytes of UTF-8.
CLOSE_SECONDS = 5.0  # how long a connection may take to close before it is abandoned

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",  # Otherwise prices are fetched from the internet.
    "LITELLM_LOCAL_ANTHROPIC_BETA_HEADERS": "True",  # Otherwise fetched at the first call of Anthropic.
    "LITELLM_LOCAL_BLOG_POSTS": "True",
    "LITELLM_MODE": "PRODUCTION",  # Otherwise the .env of the working directory is read into the environment.
    "REPEATED_STREAMING_CHUNK_LIMIT": str(10**9),  # Otherwise 100 equal rows of a table end the answer.
    "TOKENIZERS_PARALLELISM": "false",
}
# litellm's table has dollars for one token.
_PRICES = (
    "input_cost_per_token",
    "output_cost_per_token",
    "cache_read_input_token_cost",
    "cache_creation_input_token_cost",
    "cache_creation_input_token_cost_above_1hr",
)
# The addresses inside the network that the current call may go to; None for any. Some providers are asked when the
# answer is first read, so it is set for that too; a request outside both goes to public addresses only.
_LISTED: ContextVar[tuple[Network, ...] | None] = ContextVar("listed addresses", default=())
T = TypeVar("T")


class LiteLLMModel:
    def __init__(self, spec: ModelSpec, *, max_answer_characters: int = StreamConfig().max_answer_characters) -> None:
        self.spec = spec
        self._limit = max_answer_characters

    async def stream(self, request: Request) -> AsyncIterator[Item]:
        answer, usage = PartialAnswer(limit=request.max_characters or self._limit), _UsageCount()
        native = NativeEvents(provider_of(self.spec.litellm_model))
        upstream: Any = None
        failure: ModelError | None = None
        try:
            key, address = key_and_address(self.spec)
            litellm = await warm_up()
            deadline = deadline_of(self.spec, request)
            call = litellm.acompletion(**self._options(request, key, address))
            upstream = await before(deadline, with_listed_addresses(self.spec, call))
            native.listen(upstream)
            while not answer.is_cut:
                chunk = await before(deadline, with_listed_addresses(self.spec, anext(upstream, None)))
                if chunk is None:
                    break
                usage.take(upstream)
                for delta in chain(native.deltas(answer), _deltas(chunk, answer, native)):
                    for cited in answer.end_part() if not isinstance(delta, TextDelta) else ():
                        yield cited
                    yield delta
            usage.take(upstream)
            native.end(answer)
            for delta in chain(native.deltas(answer), answer.end_part()):
                yield delta
        except DeadlinePassed:
            failure = out_of_time(self.spec, seconds_of(self.spec, request), has_begun=answer.has_begun)
        except ModelError as error:
            failure = error
        except Exception as error:  # A model never raises for something the provider did.
            failure = model_error(error, self.spec, has_begun=answer.has_begun)
        finally:
            # Otherwise the connection stays open, and the provider goes on writing and billing.
            if hasattr(upstream, "aclose"):
                with suppress(Exception):
                    async with asyncio.timeout(CLOSE_SECONDS):
                        await upstream.aclose()
        reply = answer.finish(
            finish_reason=native.stop or _finish_reason_of(upstream),
            usage=(counted := usage.believed()),
            usage_said=usage.said(),
            stop_sequence=native.stop_sequence,
            request_tokens=0 if counted else estimate_payload(request.payload),
            failure=failure,
        )
        yield with_searches(reply, self.spec, native.searches)

    def _options(self, request: Request, key: str | None, address: str | None) -> dict[str, Any]:
        options = {
            **sendable(request.payload),
            "model": called_name(self.spec),
            "api_key": key,
            "api_base": address,
            "stream": True,
            "stream_options": {"include_usage": True},
            "timeout": self.spec.timeout_seconds,
            "num_retries": 0,
            "max_retries": 0,  # The SDK below litellm has two hidden retries of its own.
        }
        if provider_of(self.spec.litellm_model) in READ_RESULTS:
            options["messages"] = [_closed(message) for message in options["messages"]]
        if tools := options.pop(PROVIDER_TOOLS, None):
            options["tools"] = [*options.get("tools", ()), *tools]
        if request.max_output_tokens > 0:
            options["max_tokens"] = request.max_output_tokens
        return options


def _closed(message: dict[str, Any]) -> dict[str, Any]:
    """Return a message whose result of a tool stays text where it is JSON that is nested too deeply to be read."""
    content = message.get("content")
    if message["role"] != "tool" or content is None:
        return message
    if isinstance(content, list):
        parts = [part | {"text": _as_text(part["text"])} if part.get("type") == "text" else part for part in content]
        return message | {"content": parts}
    return message | {"content": _as_text(content)}


def _as_text(result: str) -> str:
    try:
        is_shallow = nests_within(json.loads(result), DEEPEST_ARGUMENTS)
    except RecursionError:
        is_shallow = False
    except ValueError:
        return result
    return result if is_shallow else json.dumps({"content": result})


async def with_listed_addresses(spec: ModelSpec, awaitable: Awaitable[T]) -> T:
    """Await ``awaitable``, whose requests go only where the model's may."""
    token = _LISTED.set(spec.listed_addresses)
    try:
        return await awaitable
    finally:
        _LISTED.reset(token)


@dataclass(slots=True)
class _UsageCount:
    """The provider's counts, in whichever chunks they come. Later counts replace earlier ones."""

    _counts: dict[str, Any] = field(default_factory=dict)
    _said: dict[str, Any] = field(default_factory=dict)

    def take(self, upstream: Any) -> None:
        # Internal: a usage that the provider really sent is on a chunk kept here, and on no other; what the
        # iteration yields is made up when there was none.
        chunks = getattr(upstream, "chunks", [])
        for chunk in chunks:
            self._add(getattr(chunk, "usage", None))
        # Internal: kept, these two make litellm count the whole answer again at its end, and cost time that
        # grows with the square of its length (8 MB in 1.5 kB pieces: 13 s instead of 0.4 s).
        chunks.clear()
        if hasattr(upstream, "response_uptil_now"):
            upstream.response_uptil_now = ""

    def believed(self) -> Usage | None:
        return believable_usage(**{"prompt": None, "answer": 0, **self._counts})

    def said(self) -> str:
        """Return all of it in the provider's own words, as JSON; empty where it said nothing."""
        return json.dumps(self._said, default=str, sort_keys=True) if self._said else ""

    def _add(self, usage: Any) -> None:
        if usage is not None:
            self._said |= usage.model_dump(exclude_none=True, warnings=False)
        details = getattr(usage, "prompt_tokens_details", None)
        lifetimes = getattr(details, "cache_creation_token_details", None)
        counts = {
            "prompt": getattr(usage, "prompt_tokens", None),
            "answer": getattr(usage, "completion_tokens", None),
            "cache_read": getattr(details, "cached_tokens", None),
            "cache_write": getattr(details, "cache_creation_tokens", None),
            "cache_write_1h": getattr(lifetimes, "ephemeral_1h_input_tokens", None),
        }
        self._counts.update({name: count for name, count in counts.items() if count})


def _finish_reason_of(upstream: Any) -> str:
    # Internal: what the provider said. The finish reason of the last chunk may be made up. Gemini's comes with a piece of
    # the answer, which litellm does not take for the end of it, and is kept apart.
    said = (getattr(upstream, f"{kind}_finish_reason", None) for kind in ("received", "intermittent"))
    return printable(str(next(filter(None, said), "")))


def _deltas(chunk: Any, answer: PartialAnswer, native: NativeEvents) -> Iterator[Delta]:
    for choice in chunk.choices[:1]:  # Chunks without choices are allowed: pings, usage.
        delta = choice.delta
        yield from answer.add_reasoning(getattr(delta, "reasoning_content", None) or "")
        for block in opaque_blocks(delta):
            if block.kind == "reasoning" and native.is_ended(json.loads(block.data)):
                continue
            yield from answer.add_opaque(block)
        yield from answer.add_text(getattr(delta, "content", None) or "")
        for source in getattr(delta, "annotations", None) or ():
            answer.cite(openai_cites(source, native.provider), counts_bytes=native.provider in COUNT_BYTES)
        for image in getattr(delta, "images", None) or ():
            yield from answer.add_picture((image.get("image_url") or {}).get("url"))
        for call in getattr(delta, "tool_calls", None) or ():
            if native.is_own(call):
                continue
            id = call.id or ""
            if signature := signature_of_call(call):
                answer.add_opaque(signature, is_of_call=True)
                id = id.partition(SIGNATURE_IN_ID)[0]
            answer.add_fragment(
                index=call.index or 0,
                id=id,
                name=call.function.name or "",
                arguments=call.function.arguments or "",
            )


@cache
def load_litellm() -> Any:
    """Return litellm, configured to use no network and no environment of its own. The first call takes seconds."""
    os.environ.update(_ENVIRONMENT)
    os.environ.setdefault("LITELLM_LOG", "ERROR")
    # What litellm would put off to its first call, where it would hold up the event loop for a second. pydantic
    # warns of some of its types; where warnings are errors, they would break that call and every later one.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import litellm
        import openai.resources  # noqa: F401

        litellm.ModelResponse(stream=False)
        litellm.ModelResponseStream()
        litellm.Usage()
    litellm.telemetry = False
    litellm.suppress_debug_info = True  # Otherwise coloured advice is printed to stdout.
    litellm.disable_hf_tokenizer_download = True  # Otherwise names like llama-3 cost a 23 s stall offline.
    litellm.disable_token_counter = True  # We count ourselves.
    litellm.drop_params = True
    vars(litellm)["DEFAULT_MAX_RETRIES"] = 0  # Internal: a call for embeddings takes it where no retries are asked for.
    # Internal: these three make every HTTP client of litellm, and none takes an option. A redirect would carry the
    # conversation to an address that no one entered, such as one inside our own network.
    from litellm.llms.custom_httpx.http_handler import AsyncHTTPHandler, HTTPHandler
    from litellm.llms.openai.common_utils import BaseOpenAILLM

    openai_clients: Any = BaseOpenAILLM
    other_clients: Any = AsyncHTTPHandler
    blocking_clients: Any = HTTPHandler
    openai_clients._get_async_http_client = staticmethod(_pinned(BaseOpenAILLM._get_async_http_client, _pin_async))
    other_clients.create_client = _pinned(AsyncHTTPHandler.create_client, _pin_async)
    blocking_clients.create_client = _pinned(HTTPHandler.create_client, _pin)
    return litellm


def _pinned(make: Callable[..., Any], hook: Callable[[Any], Any]) -> Callable[..., Any]:
    def make_pinned(*args: Any, **options: Any) -> Any:
        client = make(*args, **options)
        if client is not None:
            client.follow_redirects = False
            client.event_hooks["request"].append(hook)
        return client

    return make_pinned


async def _pin_async(request: Any) -> None:
    await asyncio.to_thread(_pin, request)


def _pin(request: Any) -> None:
    import httpx

    listed = _LISTED.get()
    if listed is None:
        return
    try:
        pin(request, listed)
    except OSError as error:
        raise httpx.ConnectError(str(error), request=request) from error


async def warm_up() -> Any:
    if load_litellm.cache_info().currsize:
        return load_litellm()
    return await asyncio.to_thread(load_litellm)


async def close_connections() -> None:
    """Close this event loop's connections. Needed before a loop ends in a process that goes on.

    litellm keeps its clients under the loop's ``id()``, which the next loop may get as well, and would then meet
    connections of a loop that is dead.
    """
    if not load_litellm.cache_info().currsize:
        return
    cached = load_litellm().in_memory_llm_clients_cache.cache_dict
    mine = f"-{id(asyncio.get_running_loop())}"
    for name in [name for name in cached if name.endswith(mine)]:
        client = cached.pop(name)
        if hasattr(client, "close"):
            with suppress(Exception):
                await client.close()


def stated_limits(litellm_model: str) -> StatedLimits | None:
    """Return what litellm's own table says of a model, prices in US dollars; None for an unknown one. Offline."""
    provider = provider_of(litellm_model)
    if provider == "demo":
        return DEMO_LIMITS
    entry = _entry_of(litellm_model)
    window = entry.get("max_input_tokens") or entry.get("max_tokens")
    if not window:
        return None
    prices = None
    costs = [entry.get(name) for name in _PRICES]
    if costs[:2] != [None, None]:
        micros = [None if cost is None else round(cost * 10**12) for cost in costs]
        prices = Prices(
            input=micros[0] or 0,
            output=micros[1] or 0,
            cache_read=micros[2],
            cache_write=micros[3],
            cache_write_1h=micros[4],
        )
    return StatedLimits(
        source=LimitSource.LITELLM,
        context_window=int(window),
        max_output_tokens=int(entry.get("max_output_tokens") or entry.get("max_tokens") or window),
        prices=prices,
    )


@lru_cache(maxsize=32)
def list_known_models(provider: str) -> tuple[tuple[str, StatedLimits], ...]:
    """Return the chat models of a provider in litellm's table, by name, with what it says of each. Offline."""
    names = {
        f"{provider}/{name.removeprefix(f'{provider}/')}"
        for name, entry in load_litellm().model_cost.items()
        if entry.get("mode") == "chat" and entry.get("litellm_provider") == provider
    }
    stated = {name: stated_limits(name) for name in sorted(names)}
    return tuple((name, limits) for name, limits in stated.items() if limits is not None)


def with_searches(reply: Reply, spec: ModelSpec, searches: int) -> Reply:
    """Return a reply with what so many searches cost by litellm's table, where the model's prices are litellm's too."""
    if not searches or spec.prices_source is not LimitSource.LITELLM:
        return reply
    entry = _entry_of(spec.litellm_model)
    dollars = entry.get("search_context_cost_per_query", {}).get("search_context_size_medium", 0)
    # Older Geminis bill an answer that rests on searches, however many these were.
    is_for_all = provider_of(spec.litellm_model) == "gemini" and entry.get("web_search_billing_unit") != "per_query"
    micros = round(dollars * 1_000_000) * (1 if is_for_all else searches)
    return replace(reply, usage=replace(reply.usage, searches_micros=micros))


def supports_schemas(litellm_model: str) -> bool:
    """Return whether litellm's own table says that a provider holds this model to a JSON Schema. Offline."""
    if provider_of(litellm_model) == "demo":
        return False
    return bool(load_litellm().supports_response_schema(litellm_model))


def takes_pictures(spec: ModelSpec) -> bool:
    """Return whether a model is shown pictures: as its entry says, else by litellm's own table. Offline."""
    return _takes(spec, "supports_vision") if spec.takes_pictures is None else spec.takes_pictures


def kinds_shown(spec: ModelSpec) -> tuple[str, ...]:
    """Return the kinds of files that a model is shown, as ``detection`` names them. Offline."""
    takes = {PICTURE_KIND: takes_pictures, PDF_KIND: takes_documents, AUDIO_KIND: takes_audio}
    return tuple(kind for kind, is_taken in takes.items() if is_taken(spec))


def takes_documents(spec: ModelSpec) -> bool:
    """Return whether a model is sent PDFs: as its entry says, else by litellm's own table. Offline."""
    return _takes(spec, "supports_pdf_input") if spec.takes_documents is None else spec.takes_documents


def takes_audio(spec: ModelSpec) -> bool:
    """Return whether a model is sent audio: as its entry says, else by litellm's own table. Offline."""
    if is_by_responses(spec):
        return False  # They take none, and litellm would send its bytes as a text.
    return _takes(spec, "supports_audio_input") if spec.takes_audio is None else spec.takes_audio


def is_by_responses(spec: ModelSpec) -> bool:
    """Return whether a model is asked over OpenAI's Responses: where litellm would do so for a call with tools.

    OpenAI takes reasoning and tools together only there since GPT-5.4. It is all calls or none, for a reasoning that one
    API gave cannot be sent back to the other.
    """
    provider, _, name = spec.litellm_model.partition("/")
    if provider not in ("openai", "azure"):
        return False
    function = [{"type": "function"}]
    check = load_litellm().main.responses_api_bridge_check
    about, _ = check(model=name, custom_llm_provider=provider, tools=function, api_base=spec.api_base or None)
    return bool(about.get("mode") == "responses")


def called_name(spec: ModelSpec) -> str:
    """Return the name by which litellm is asked for a model."""
    provider, _, name = spec.litellm_model.partition("/")
    is_named = name.startswith("responses/") or not is_by_responses(spec)
    return spec.litellm_model if is_named else f"{provider}/responses/{name}"


def _takes(spec: ModelSpec, ability: str) -> bool:
    known = spec.litellm_model and provider_of(spec.litellm_model) != "demo"
    return bool(known and _entry_of(spec.litellm_model).get(ability))


def takes_pictures_in_results(litellm_model: str) -> bool:
    """Return whether litellm passes on pictures inside the results of calls: to Claude, at those who host it."""
    provider = provider_of(litellm_model)
    return provider == "anthropic" or (provider in ("bedrock", "vertex_ai") and "claude" in litellm_model)


CAPABILITIES = {
    "supports_function_calling": "tools",
    "supports_response_schema": "JSON schemas",
    "supports_vision": "images",
    "supports_pdf_input": "PDF",
    "supports_audio_input": "audio",
    "supports_reasoning": "reasoning",
    "supports_prompt_caching": "cached prompts",
}

# The names that programs read, and litellm's.
ABILITIES = {
    "tools": "supports_function_calling",
    "structured_outputs": "supports_response_schema",
    "vision": "supports_vision",
    "pdf": "supports_pdf_input",
    "audio": "supports_audio_input",
    "reasoning": "supports_reasoning",
    "prompt_caching": "supports_prompt_caching",
}


def stated_capabilities(litellm_model: str) -> tuple[str, ...]:
    """Return the capabilities of a model in words by litellm's own table; none for an unknown one. Offline."""
    if provider_of(litellm_model) == "demo":
        return ("tools",)
    entry = _entry_of(litellm_model)
    return tuple(words for name, words in CAPABILITIES.items() if entry.get(name))


def abilities_of(spec: ModelSpec) -> dict[str, bool | None]:
    """Return what a model can do, as its entry says or by litellm's own table; None where neither knows. Offline."""
    if provider_of(spec.litellm_model) in ("demo", ""):
        return {name: name == "tools" for name in ABILITIES}
    entry = {} if spec.api_base else _entry_of(spec.litellm_model)
    known = {name: bool(entry.get(said)) if entry else None for name, said in ABILITIES.items()}
    said = {"vision": spec.takes_pictures, "pdf": spec.takes_documents, "audio": spec.takes_audio}
    return known | {name: ability for name, ability in said.items() if ability is not None}


def _entry_of(litellm_model: str) -> dict[str, Any]:
    provider, table = provider_of(litellm_model), load_litellm().model_cost
    name = litellm_model.removeprefix(f"{provider}/").removeprefix("responses/")
    entry: dict[str, Any] = table.get(litellm_model) or table.get(f"{provider}/{name}") or table.get(name) or {}
    # Some names stand in the table without their provider, and may belong to another one.
    is_of_provider = str(entry.get("litellm_provider", "")).startswith(provider)
    return entry if entry.get("mode") in ("chat", "embedding", "responses") and is_of_provider else {}


# Embedding models and rerankers of every real provider, through litellm (``litellm_``, the one module that knows it).


class LiteLLMEmbedder:
    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    async def embed(self, texts: Sequence[str], *, seconds: float) -> Embedded:
        key, address = key_and_address(self.spec)
        litellm = await warm_up()
        call = litellm.aembedding(
            model=self.spec.litellm_model,
            input=list(texts),
            api_key=key,
            api_base=address,
            encoding_format="float",
            timeout=seconds,
            num_retries=0,
            max_retries=0,  # The SDK below litellm has two hidden retries of its own.
        )
        try:
            answer = await before(deadline_in(seconds), with_listed_addresses(self.spec, call))
            vectors = checked_vectors(_in_order(answer), self.spec, count=len(texts))
            return Embedded(vectors=vectors, usage=_usage(answer, texts))
        except DeadlinePassed:
            raise out_of_time(self.spec, seconds, has_begun=False) from None
        except ModelError:
            raise
        except Exception as error:  # Whatever the provider did is an error of ours.
            raise model_error(error, self.spec, has_begun=False) from error


def _in_order(answer: Any) -> list[Any]:
    """Return what stands for each text: some servers number the vectors, and give them in another order."""
    items = [item if isinstance(item, dict) else vars(item) for item in getattr(answer, "data", None) or ()]
    numbers = [item.get("index") for item in items]
    if sorted(map(str, numbers)) == sorted(map(str, range(len(items)))):
        items.sort(key=lambda item: int(item["index"]))
    return [item.get("embedding") for item in items]


def _usage(answer: Any, texts: Sequence[str]) -> Usage:
    counted = believable_usage(prompt=getattr(getattr(answer, "usage", None), "prompt_tokens", None), answer=0)
    estimate = sum(map(estimate_text, texts))
    return counted or Usage(input_tokens=estimate, output_tokens=0, source=Source.ESTIMATED)


class LiteLLMReranker:
    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    async def rerank(self, question: str, texts: Sequence[str], *, seconds: float) -> tuple[float, ...]:
        key, address = key_and_address(self.spec)
        litellm = await warm_up()
        call = litellm.arerank(
            model=self.spec.litellm_model,
            query=question,
            documents=list(texts),
            top_n=len(texts),
            return_documents=False,
            api_key=key,
            api_base=address,
            timeout=seconds,
            num_retries=0,
            max_retries=0,
        )
        try:
            answer = await before(deadline_in(seconds), with_listed_addresses(self.spec, call))
            return checked_scores(getattr(answer, "results", None) or (), self.spec, count=len(texts))
        except DeadlinePassed:
            raise out_of_time(self.spec, seconds, has_begun=False) from None
        except ModelError:
            raise
        except Exception as error:  # Whatever the provider did is an error of ours.
            raise model_error(error, self.spec, has_begun=False) from error
