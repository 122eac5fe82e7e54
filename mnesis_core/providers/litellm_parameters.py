"""What of the parameters a model takes, and in which form: found out by asking litellm what it would send.

litellm drops without a word what a provider does not take (``drop_params``). So its own mapping is run with each parameter
and without it: one that changes nothing would be lost, and is named in ``not_taken``. Nothing is sent for that.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from mnesis_core.context.wording import ONLY_TOOLS
from mnesis_core.errors import Phrase, gettext_noop
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.llm.parameters import Parameters, is_forced, wire_form
from mnesis_core.providers.credentials import provider_of
from mnesis_core.providers.litellm_ import PROVIDER_TOOLS, is_by_responses, load_litellm, supports_schemas
from mnesis_core.values import dataclass

# Asked for in this order until the model takes one: the nearest effort that it has.
_EFFORTS = {"minimal": ("minimal", "low"), "xhigh": ("xhigh", "high"), "max": ("max", "xhigh", "high")}
_ORDINARY = ("low", "medium", "high")  # Every model that thinks has these; the others are in litellm's table.
_NO_TOOLS = ("tool_choice", "parallel_tool_calls")  # Providers refuse both in a request without tools.
# The demo model says the same thing at every temperature, and what it says has one length.
_DEMO_LEAVES = ("temperature", "top_p", "verbosity")
# litellm passes these on, and its own request to the provider has no place for them.
_LOST = {"gemini": ("parallel_tool_calls",), "vertex_ai": ("parallel_tool_calls",)}
_PROBE = {"name": "probe", "description": "", "parameters": {"type": "object", "properties": {}}}
_TOOLS = [{"type": "function", "function": _PROBE}]
_MESSAGES = [{"role": "user", "content": "?"}]
# The forms of tools that providers run:
# https://platform.claude.com/docs/en/agents-and-tools/tool-use/web-search-tool and ``…/code-execution-tool``,
# https://platform.openai.com/docs/guides/tools, https://ai.google.dev/gemini-api/docs/tools
_PROVIDER_TOOLS: Mapping[str, Mapping[str, Mapping[str, Any]]] = {
    "anthropic": {
        "web_search": {"type": "web_search_20250305", "name": "web_search"},
        "code_execution": {"type": "code_execution_20250825", "name": "code_execution"},
    },
    "responses": {
        "web_search": {"type": "web_search"},
        "code_execution": {"type": "code_interpreter", "container": {"type": "auto"}},
        "image_generation": {"type": "image_generation"},
    },
    "gemini": {"web_search": {"googleSearch": {}}, "code_execution": {"codeExecution": {}}},
}
NOT_PERMITTED = gettext_noop("the model's entry does not permit %(name)s")
NOT_TOGETHER = Phrase(gettext_noop("the model does not take tools that its provider runs together with others"))
NOT_TAKEN = Phrase(gettext_noop("the model does not take it"))
UNTHOUGHT = Phrase(
    gettext_noop("the model began this turn without thinking, and may not begin to think before it has answered")
)
WITH_THINKING = Phrase(gettext_noop("the model does not take it while it thinks"))
TOO_SHORT = Phrase(gettext_noop("the answer may not be long enough to think before it"))
NEAREST = gettext_noop("the nearest that the model takes is %(effort)s")
FORCED = Phrase(gettext_noop("the model does not think where a tool has to be called"))


@dataclass(frozen=True, slots=True, kw_only=True)
class SettledParameters:
    sent: dict[str, Any]  # By OpenAI's names, a part of the request's payload.
    not_taken: dict[str, str]  # Our name of each parameter that the model does not take, and why.


def settle_parameters(
    spec: ModelSpec, asked: Parameters, *, has_tools: bool, is_unthought: bool = False, was_forced: bool = False
) -> SettledParameters:
    """Return what of ``asked`` this model is sent. A response format that is not among it has to be asked for in words.

    :param has_tools: whether the request offers tools
    :param is_unthought: whether it ends with results of a turn that the model began without thinking (``lacks_thinking``)
    :param was_forced: whether a tool had to be called earlier in the turn, so that the model did not think
    """
    wire = wire_form(asked)
    if wire.get("tool_choice") == "none":
        del wire["tool_choice"]  # No tools are offered, which every provider understands.
    if not has_tools:
        wire = {name: value for name, value in wire.items() if name not in _NO_TOOLS}
    ran, left = _ran_by_provider(spec, asked, has_tools=has_tools)
    if not wire:
        return SettledParameters(sent=ran, not_taken=left)
    most = min(wire.get("max_tokens", spec.max_output_tokens), spec.max_output_tokens)
    text = json.dumps(wire, sort_keys=True)
    sent, not_taken = _settled(spec.litellm_model, text, most, has_tools, is_unthought, was_forced)
    return SettledParameters(sent=json.loads(sent) | ran, not_taken=dict(not_taken) | left)


def _ran_by_provider(spec: ModelSpec, asked: Parameters, *, has_tools: bool) -> tuple[dict[str, Any], dict[str, str]]:
    """Return the tools that the provider is to run, as a part of what is sent, and why others are not among them."""
    provider = provider_of(spec.litellm_model)
    known = _PROVIDER_TOOLS.get("responses" if is_by_responses(spec) else provider, {})
    permitted = spec.parameters.provider_tools or ()
    tools: list[Mapping[str, Any]] = []
    left: dict[str, str] = {}
    for name in (asked.provider_tools or ()) if asked.tool_choice != "none" else ():
        if name in permitted and name in known and not (has_tools and provider == "gemini"):
            tools.append(known[name])
        else:
            why = NOT_TOGETHER if name in known else NOT_TAKEN
            left.setdefault("provider_tools", why if name in permitted else Phrase(NOT_PERMITTED, {"name": name}))
    return ({PROVIDER_TOOLS: json.loads(json.dumps(tools))} if tools else {}), left


@dataclass(frozen=True, slots=True, kw_only=True)
class TakesBack:
    """What a model is sent of what it gave to be sent back."""

    provider: str = ""  # As ``going_back`` takes it; empty for nothing.
    only_thinking: bool = False  # It takes it only in a call in which it thinks.
    is_bound: bool = False  # It takes it only after the prompt that it answered.
    # The tools that its provider runs, as they are sent: a part of that prompt.
    tools: tuple[Mapping[str, Any], ...] = ()

    def without_thinking(self) -> TakesBack:
        return TakesBack(provider=provider_of(self.provider) + ONLY_TOOLS)


def takes_back(spec: ModelSpec, effort: str | None, provider_tools: tuple[str, ...] | None = None) -> TakesBack:
    """Return what a model takes back in a call that is asked for this effort and these tools.

    Models of Claude that decide by themselves how much they think may check what stands before it:
    https://platform.claude.com/docs/en/build-with-claude/preserved-thinking
    """
    model = spec.litellm_model
    if not _is_claude(model):
        return TakesBack(provider=model)
    settled = settle_parameters(spec, Parameters(effort=effort), has_tools=False).sent
    mapped = _mapped(model, settled, spec.max_output_tokens, has_tools=False) if settled else {}
    if not _thinks_as_claude(model, mapped):
        return TakesBack(provider=model).without_thinking()
    ran, _ = _ran_by_provider(spec, Parameters(provider_tools=provider_tools), has_tools=False)
    return TakesBack(
        provider=model,
        only_thinking=True,
        is_bound=mapped["thinking"]["type"] == "adaptive",
        tools=tuple(ran.get(PROVIDER_TOOLS, ())),
    )


def asks_back(spec: ModelSpec) -> dict[str, Any]:
    """Return what has to be sent for reasoning that can be sent back: OpenAI's Responses encrypt it on request only.

    Without ``store`` they would keep it, and want no more than its id.
    """
    return {"include": ["reasoning.encrypted_content"], "store": False} if is_by_responses(spec) else {}


def takes_format(spec: ModelSpec, response_format: Mapping[str, Any]) -> bool:
    """Return whether the provider itself holds this model to a response format, so that it is sent."""
    only = Parameters(response_format=response_format)
    return "response_format" in settle_parameters(spec, only, has_tools=False).sent


@lru_cache(maxsize=512)
def _settled(
    model: str, text: str, most: int, has_tools: bool, is_unthought: bool, was_forced: bool
) -> tuple[str, tuple[tuple[str, str], ...]]:
    wire = json.loads(text)
    if provider_of(model) in ("demo", ""):
        not_taken: dict[str, str] = {name: NOT_TAKEN for name in wire if name in _DEMO_LEAVES}
        sent = {name: value for name, value in wire.items() if name not in (*not_taken, "response_format")}
    else:
        turn = {"is_unthought": is_unthought, "was_forced": was_forced}
        sent, not_taken = _by_litellm(model, wire, most, has_tools=has_tools, **turn)
    named = {"effort" if name == "reasoning_effort" else name: why for name, why in not_taken.items()}
    return json.dumps(sent), tuple(named.items())


def _by_litellm(
    model: str, wire: dict[str, Any], most: int, *, has_tools: bool, **turn: bool
) -> tuple[dict[str, Any], dict[str, str]]:
    asked, not_taken = {name: value for name, value in wire.items() if name != "max_tokens"}, dict[str, str]()
    if not _is_known(model):  # A model that another factory than ours makes; litellm could not be asked for it.
        return {name: value for name, value in wire.items() if name != "response_format"}, {}
    if "reasoning_effort" in asked:
        effort, why = _effort(model, asked, most, has_tools=has_tools, **turn)
        asked = {name: value for name, value in asked.items() if name != "reasoning_effort"}
        asked |= {"reasoning_effort": effort} if effort else {}
        not_taken |= {"reasoning_effort": why} if why else {}
    if _thinks_as_claude(model, _mapped(model, asked, most, has_tools=has_tools)):
        # Anthropic: thinking goes with no other temperature than 1, and only with a top_p near it.
        for name, lowest in (("temperature", 1.0), ("top_p", 0.95)):
            if asked.get(name, 1.0) < lowest:
                not_taken[name] = WITH_THINKING
                del asked[name]
    for name in [name for name in asked if name != "reasoning_effort"]:
        if name == "response_format":
            if not _is_native(model, asked[name], most):
                del asked[name]  # It is put into words.
        elif name in _LOST.get(provider_of(model), ()) or not _changes(model, asked, name, most, has_tools):
            not_taken[name] = NOT_TAKEN
            del asked[name]
    return asked | ({"max_tokens": wire["max_tokens"]} if "max_tokens" in wire else {}), not_taken


def _effort(
    model: str, asked: Mapping[str, Any], most: int, *, has_tools: bool, is_unthought: bool, was_forced: bool
) -> tuple[str | None, str]:
    """Return the effort that is sent, or None; and why another one, or none, is sent in place of what was asked."""
    wanted, why = asked["reasoning_effort"], NOT_TAKEN
    for effort in _EFFORTS.get(wanted, (wanted,)):
        # With the effort alone: what contradicts it is left out for it, and not the other way round.
        mapped = _mapped(model, {"reasoning_effort": effort}, most, has_tools=has_tools)
        if not _takes_effort(model, effort, mapped, most, has_tools=has_tools):
            continue
        if _thinks_as_claude(model, mapped):
            if was_forced or is_forced(asked.get("tool_choice")):
                return None, FORCED
            if is_unthought and mapped["thinking"]["type"] == "enabled":
                return None, UNTHOUGHT
        if (mapped.get("thinking") or {}).get("budget_tokens", 0) >= most:
            why = TOO_SHORT
            continue
        return effort, "" if effort == wanted else Phrase(NEAREST, {"effort": effort})
    is_plain = _is_claude(model) or (_entry(model) and not load_litellm().supports_reasoning(model))
    return None, "" if wanted == "none" and is_plain else why  # Such a model does not think unless it is asked to.


def _takes_effort(model: str, effort: str, mapped: Mapping[str, Any], most: int, *, has_tools: bool) -> bool:
    if mapped in ({}, _mapped(model, {}, most, has_tools=has_tools)):
        return False
    if mapped.get("think") is False and effort != "none":  # Ollama's switch, which litellm turns off for these.
        return False
    literal = mapped.get("reasoning_effort") or (mapped.get("output_config") or {}).get("effort")
    if literal != effort or effort in _ORDINARY:
        return True
    entry = _entry(model)
    return not entry or bool(entry.get(f"supports_{effort}_reasoning_effort"))


def _is_native(model: str, response_format: Mapping[str, Any], most: int) -> bool:
    """Return whether the provider itself holds answers to a format. litellm would else make a tool of it."""
    if not supports_schemas(model):
        return False
    without = _mapped(model, {}, most, has_tools=False)
    mapped = _mapped(model, {"response_format": response_format}, most, has_tools=False)
    has_own = any(
        "format" in name or "schema" in name or "mime_type" in name for name in mapped.keys() - without.keys()
    )
    return has_own and all(mapped.get(name) == without.get(name) for name in ("tools", "tool_choice"))


def _changes(model: str, asked: Mapping[str, Any], name: str, most: int, has_tools: bool) -> bool:
    rest = {key: value for key, value in asked.items() if key != name}
    return _mapped(model, asked, most, has_tools=has_tools) != _mapped(model, rest, most, has_tools=has_tools)


def _mapped(model: str, asked: Mapping[str, Any], most: int, *, has_tools: bool) -> dict[str, Any]:
    """Return what litellm makes of parameters for the provider; nothing where it does not know the provider."""
    litellm = load_litellm()
    try:
        name, provider, _, _ = litellm.get_llm_provider(model)
        found: dict[str, Any] = litellm.utils.get_optional_params(
            model=name,
            custom_llm_provider=provider,
            drop_params=True,
            max_tokens=most,
            stream=True,
            messages=_MESSAGES,
            **({"tools": json.loads(json.dumps(_TOOLS))} if has_tools else {}),
            **json.loads(json.dumps(asked)),  # A copy: litellm changes what it is given.
        )
    except Exception:  # It refuses a value in many ways, and refuses an unknown provider.
        return {}
    return found


def _is_known(model: str) -> bool:
    try:
        load_litellm().get_llm_provider(model)
    except Exception:
        return False
    return True


def _thinks_as_claude(model: str, mapped: Mapping[str, Any]) -> bool:
    return _is_claude(model) and (mapped.get("thinking") or {}).get("type") in ("enabled", "adaptive")


def _entry(model: str) -> dict[str, Any]:
    table = load_litellm().model_cost
    found: dict[str, Any] = table.get(model) or table.get(model.partition("/")[2]) or {}
    return found


def _is_claude(model: str) -> bool:
    return provider_of(model) == "anthropic" or "claude" in model
