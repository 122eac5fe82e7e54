"""The one interface to a language model: a request, streamed deltas, one reply.

Adapters live in ``mnesis_core.providers``. Each number names its source: the provider, or our own estimate. A provider
that ends its stream without a finish reason has proven nothing, so the outcome is a field of its own (decision 14).
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Sequence
from dataclasses import asdict, field, replace
from enum import StrEnum
from typing import Any, Protocol

from mnesis_core.config import Config
from mnesis_core.errors import ModelError
from mnesis_core.llm.parameters import NO_PARAMETERS, Parameters
from mnesis_core.messages import CitationPart, ProviderToolPart
from mnesis_core.network.hosts import Network
from mnesis_core.values import dataclass

DEEPEST_SCHEMA = 100  # Objects and lists inside each other in a tool's parameters, whichever server brings it.


class Source(StrEnum):
    PROVIDER = "provider"
    ESTIMATED = "estimated"
    IMPORTED = "imported"
    CALLER = "caller"


class LimitSource(StrEnum):
    CONFIGURED = "configured"  # the model's entry, or the session's configuration
    LITELLM = "litellm"
    DEFAULT = "default"
    PROVIDER = "provider"  # the provider, when it refused a longer prompt


class Outcome(StrEnum):
    COMPLETE = "complete"  # The provider gave a finish reason.
    INCOMPLETE = "incomplete"  # The stream ended without a finish reason, or held nothing at all.
    BROKEN = "broken"  # The stream broke off with an error after it had begun.
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class Prices:
    """Prices of a million tokens, in millionths of the currency unit."""

    input: int = 0
    output: int = 0
    # of the prompt tokens found in the provider's cache; None for the price of the others
    cache_read: int | None = None
    # of the prompt tokens put into the provider's cache; None for the price of the others
    cache_write: int | None = None
    # of those that the cache keeps for an hour; None for the price of the others that it takes
    cache_write_1h: int | None = None

    def write_price(self, lifetime: str = "5m") -> int:
        """Return the price of prompt tokens that the provider's cache keeps for a lifetime (``caching.LIFETIMES``)."""
        short = self.input if self.cache_write is None else self.cache_write
        return self.cache_write_1h if lifetime == "1h" and self.cache_write_1h is not None else short


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelSpec:
    alias: str
    litellm_model: str  # what litellm calls it, such as ``openai/gpt-4o`` or ``demo/chat``
    api_base: str = ""
    api_key: str = field(default="", repr=False)
    context_window: int  # tokens of prompt and answer together
    context_window_source: LimitSource = LimitSource.CONFIGURED
    max_output_tokens: int
    max_output_source: LimitSource = LimitSource.CONFIGURED
    prices: Prices = Prices()
    prices_source: LimitSource = LimitSource.CONFIGURED
    # The ratio of its counts to our estimates in the sessions so far (``tokens.Calibration``).
    shared_ratio: float | None = None
    timeout_seconds: float = 120.0  # the longest silence inside a stream
    total_timeout_seconds: float = 1800.0  # the longest whole call, with every retry and pause
    parameters: Parameters = NO_PARAMETERS  # Of its calls in turns and maps, where these ask for no others.
    takes_pictures: bool | None = None  # None: as litellm's table says
    takes_documents: bool | None = None  # PDFs; None: as litellm's table says
    takes_audio: bool | None = None  # None: as litellm's table says
    through_gateway: bool = False  # Whether requests at /v1 for it go on to its provider unchanged.
    fallbacks: tuple[str, ...] = ()  # Aliases of the models that are asked, in this order, when this one gives nothing.
    cache: str = "5m"  # How long its provider is to keep prompts, where it asks (``caching.LIFETIMES``).
    # Whether a command on the host entered how it is reached. What a page entered is bound by the host's lists.
    entered_on_host: bool = False
    refusal: str = ""  # Why it may not be asked by the host's lists; empty when it may.
    # The addresses inside the network that its server may have; None for any.
    listed_addresses: tuple[Network, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSpec:
    name: str
    description: str
    parameters: dict[str, Any]  # JSON Schema of the arguments


def write_tools(tools: Sequence[ToolSpec]) -> str:
    return json.dumps([asdict(tool) for tool in tools], ensure_ascii=False)


def read_tools(text: str) -> tuple[ToolSpec, ...]:
    """:raises ValueError: the text is none that ``write_tools`` has written."""
    try:
        tools = [(item["name"], item["description"], item["parameters"]) for item in json.loads(text)]
    except (TypeError, LookupError, RecursionError) as error:
        raise ValueError("this text holds no tools") from error
    if not all(tuple(map(type, tool)) == (str, str, dict) for tool in tools):
        raise ValueError("this text holds no tools")
    return tuple(ToolSpec(name=name, description=said, parameters=schema) for name, said, schema in tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class OpaqueBlock:
    """What the provider wants back as it gave it, at its place in the answer. It becomes a ``ProviderPart``."""

    kind: str  # as there
    data: str  # the exact JSON
    # Whether texts before it in its answer were several, or had sources: litellm gives them back otherwise than they came.
    is_displaced: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolCall:
    id: str
    name: str
    arguments: str  # the exact text that the model wrote
    opaque: tuple[OpaqueBlock, ...] = ()  # what stands before it


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    input_tokens: int  # The whole prompt, including what the provider's cache took or gave.
    output_tokens: int
    cache_read_tokens: int = 0
    cache_write_tokens: int = 0
    cache_write_1h_tokens: int = 0  # How many of these the cache keeps for an hour.
    searches_micros: int = 0  # What the provider bills for its searches, in millionths of the currency unit.
    source: Source = Source.ESTIMATED

    @property
    def total_tokens(self) -> int:
        return self.input_tokens + self.output_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class TextDelta:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ReasoningDelta:
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusalDelta:
    text: str  # a piece of the model's words when it refuses to answer


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    text: str
    reasoning: str = ""
    refusal: str = ""
    # Empty unless the outcome is COMPLETE: half of what was meant must not be run.
    tool_calls: tuple[ToolCall, ...] = ()
    finish_reason: str = ""  # what the provider said, shortened to 64 characters, or empty
    usage: Usage
    # What the provider said of tokens, as JSON in 2,000 characters, whether it can be true or not.
    usage_said: str = ""
    stop_sequence: str | None = None  # the stop text at which it ended, if the provider says so
    # When the first text, reasoning or tool call came, by ``time.monotonic``; None if none came, or all at once.
    first_at: float | None = None
    outcome: Outcome = Outcome.COMPLETE
    error: ModelError | None = None  # set unless the outcome is COMPLETE


@dataclass(frozen=True, slots=True, kw_only=True)
class MadePicture:
    data: bytes = field(repr=False, default=b"")  # whatever the model gave for a picture
    source: str = ""  # the address that it gave in place of one
    problem: str = ""  # why there are no bytes of it


StreamedDelta = TextDelta | ReasoningDelta | RefusalDelta
# A piece of an answer; blocks and parts are whole.
Delta = StreamedDelta | OpaqueBlock | ProviderToolPart | CitationPart | MadePicture
Item = Delta | Reply


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """One model call. ``payload`` is exactly what the provider gets, and what the digest is taken of."""

    # ``{"messages": […], "tools": […]?}`` and parameters, in the schema of OpenAI Chat Completions.
    payload: dict[str, Any]
    max_output_tokens: int  # Always sent, but part of the payload only where a caller asked for it.
    # How long the whole call may take, where that is less than the model's entry allows. Not sent.
    seconds: float | None = None
    # Of the answer, everything together: more is cut. None for the adapter's own limit. Not sent.
    max_characters: int | None = None

    def parameters(self) -> dict[str, Any]:
        """Return what is sent beside messages, tools and a response format, as the call's row keeps it.

        ``sent`` is what the payload has of it: a past payload is rebuilt with that.
        """
        sent = {name: value for name, value in self.payload.items() if name not in _KEPT_OTHERWISE}
        return {"max_output_tokens": self.max_output_tokens, **({"sent": sent} if sent else {})}


_KEPT_OTHERWISE = ("messages", "tools", "response_format")  # In the manifest, as texts, or in a map's run.


class Model(Protocol):
    """Anything that answers. The last item of the stream is always the one ``Reply``.

    A model never raises for something the provider did: it ends with a ``Reply`` whose ``error`` says what happened and
    whose ``text`` is what had arrived. ``asyncio.CancelledError`` passes through.
    """

    spec: ModelSpec

    def stream(self, request: Request) -> AsyncIterator[Item]: ...


def cost_micros(spec: ModelSpec, usage: Usage) -> int | None:
    """Return what a call costs, in millionths of the currency unit, rounded up; None when the price is not known."""
    if spec.prices_source is LimitSource.DEFAULT:
        return None
    prices = spec.prices
    read, written = usage.cache_read_tokens, usage.cache_write_tokens
    total = max(0, usage.input_tokens - read - written) * prices.input + usage.output_tokens * prices.output
    total += read * (prices.input if prices.cache_read is None else prices.cache_read)
    hour = min(usage.cache_write_1h_tokens, written)
    total += (written - hour) * prices.write_price() + hour * prices.write_price("1h")
    return -(-total // 1_000_000) + usage.searches_micros


async def complete(model: Model, request: Request) -> Reply:
    async for item in model.stream(request):
        if isinstance(item, Reply):
            return item
    raise AssertionError("a model's stream must end with a Reply")


@dataclass(frozen=True, slots=True, kw_only=True)
class StatedLimits:
    """The limits and prices of a model according to one source. None where the source says nothing."""

    source: LimitSource
    context_window: int | None = None
    max_output_tokens: int | None = None
    prices: Prices | None = None


# Assumed, and shown as assumed, where no source states a limit.
DEFAULTS = StatedLimits(source=LimitSource.DEFAULT, context_window=32_000, max_output_tokens=4_096, prices=Prices())


def settle_limits(*stated: StatedLimits | None) -> dict[str, Any]:
    """Return the limits and prices of a model as values of a ``ModelSpec``, each from the first source that states it.

    An answer without a configured limit is no longer than the window.
    """
    sources = [*filter(None, stated), DEFAULTS]
    by_window = next(limits for limits in sources if limits.context_window)
    by_output = next(limits for limits in sources if limits.max_output_tokens)
    by_prices = next(limits for limits in sources if limits.prices is not None)
    window, output = by_window.context_window or 0, by_output.max_output_tokens or 0
    return {
        "context_window": window,
        "context_window_source": by_window.source,
        "max_output_tokens": output if by_output.source is LimitSource.CONFIGURED else min(output, window),
        "max_output_source": by_output.source,
        "prices": by_prices.prices,
        "prices_source": by_prices.source,
    }


def shown_prices(spec: ModelSpec) -> str:
    """Return the prices of a million prompt and answer tokens in currency units, such as ``2.5 / 10``."""
    if spec.prices_source is LimitSource.DEFAULT:
        return "not known"
    return f"{spec.prices.input / 1_000_000:g} / {spec.prices.output / 1_000_000:g}"


def _limits_in(config: Config, *, below: ModelSpec | None = None) -> dict[str, Any]:
    limits: dict[str, Any] = {}
    if config.context_window > 0 and (below is None or config.context_window < below.context_window):
        limits |= {"context_window": config.context_window, "context_window_source": LimitSource.CONFIGURED}
    if config.max_output_tokens > 0 and (below is None or config.max_output_tokens < below.max_output_tokens):
        limits |= {"max_output_tokens": config.max_output_tokens, "max_output_source": LimitSource.CONFIGURED}
    return limits


def spec_in_session(spec: ModelSpec, config: Config) -> ModelSpec:
    changes = _limits_in(config)
    prices = {name: price for name, price in asdict(config.prices).items() if price >= 0}
    if prices:
        changes |= {"prices": replace(spec.prices, **prices), "prices_source": LimitSource.CONFIGURED}
    return replace(spec, **changes) if changes else spec


def spec_as_said(spec: ModelSpec, window: int | None) -> ModelSpec:
    """Return the model with the window that its provider says it has, where that is smaller (``Calibration.window``)."""
    if window is None or window >= spec.context_window:
        return spec
    return replace(spec, context_window=window, context_window_source=LimitSource.PROVIDER)


def spec_in_place(spec: ModelSpec, config: Config) -> ModelSpec:
    """Return a model that is asked in place of a session's own.

    It has its own prices, and the session's limits if they are tighter, since a session may be made small on purpose.
    """
    return replace(spec, **_limits_in(config, below=spec))
