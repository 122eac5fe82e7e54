"""What may be asked of a model beside the prompt: parameters as values, checked, merged, and in OpenAI's wire form.

A model's entry, a session's configuration and a turn may each have some; a turn's win over a session's, and these over
the entry's. What a model does not take is decided by ``mnesis_core.providers.litellm_parameters``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import fields, replace
from typing import Any

from mnesis_core.errors import InvalidRequest, Values, gettext_noop, reason_of
from mnesis_core.text import exact_value, nests_within
from mnesis_core.values import dataclass

EFFORTS = ("none", "minimal", "low", "medium", "high", "xhigh", "max")
VERBOSITIES = ("low", "medium", "high")
CHOICES = ("auto", "none", "required")
FORMATS = ("text", "json_object", "json_schema")
PROVIDER_TOOLS = ("web_search", "code_execution", "image_generation")  # What providers run themselves, by our names.
MOST_TOKENS = 10_000_000
LARGEST_SEED = 2**53 - 1  # A larger integer does not survive every JSON reader.
MOST_STOPS, LONGEST_STOP = 4, 100  # The most stop texts that OpenAI takes, and characters of one.
LONGEST_FORMAT = 60_000  # Characters of a response format as JSON: it is sent with each call beside the context.
DEEPEST_FORMAT = 48
DEEPEST_PARAMETERS = DEEPEST_FORMAT + 1
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
Check = Callable[[Any], Any]
NOT_STORABLE = gettext_noop("%(name)s must not contain NUL or half of a surrogate pair")


class _Refused(Exception):
    """A value is not what a parameter takes: the text is that of an error that also has the parameter's ``name``."""

    def __init__(self, text: str, values: Values | None = None) -> None:
        super().__init__(text)
        self.text, self.values = text, values or {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """None leaves a parameter to the next layer, and at last to the provider."""

    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    effort: str | None = None
    verbosity: str | None = None
    stop: tuple[str, ...] | None = None
    seed: int | None = None
    # ``auto``, ``none``, ``required``, or the one function that has to be called, in OpenAI's form.
    tool_choice: str | Mapping[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    response_format: Mapping[str, Any] | None = None  # In OpenAI's form.
    # Of ``PROVIDER_TOOLS``: what the provider may run. A model's entry permits them, a session or a turn asks for them.
    provider_tools: tuple[str, ...] | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return what is set, as JSON that ``read_parameters`` reads."""
        given = {name: value for name in NAMES if (value := getattr(self, name)) is not None}
        return given | {name: list(value) for name, value in given.items() if isinstance(value, tuple)}

    def to_store(self) -> dict[str, Any]:
        """Return what is set, with a response format as a text: a model answers in the order of a schema's properties,
        which not every column keeps.
        """
        given = self.as_dict()
        if self.response_format is not None:
            given["response_format"] = json.dumps(self.response_format, ensure_ascii=False)
        return given


NO_PARAMETERS = Parameters()
NAMES = tuple(field.name for field in fields(Parameters))
# What a model's entry and a configuration may hold: both have a setting of their own for the longest answer.
KEPT_NAMES = tuple(name for name in NAMES if name != "max_output_tokens")
_WIRE = {"effort": "reasoning_effort", "max_output_tokens": "max_tokens"}


def merge(*layers: Parameters) -> Parameters:
    """Return each parameter from the first layer that sets it."""
    found: dict[str, Any] = {}
    for layer in layers:
        for name in NAMES:
            value = getattr(layer, name)
            if value is not None:
                found.setdefault(name, value)
    return Parameters(**found)


def merge_asked(entry: Parameters, *asked: Parameters) -> Parameters:
    """Return what a model is asked with: what a turn and its session ask, over what the model's entry says.

    An entry only permits tools that the provider runs (``provider_tools``).
    """
    return merge(*asked, replace(entry, provider_tools=None))


def wire_form(parameters: Parameters) -> dict[str, Any]:
    """Return what is set, by the names of OpenAI's Chat Completions and without what is the default there.

    It has no form for tools that providers run, since each has its own.
    """
    given = {_WIRE.get(name, name): value for name, value in parameters.as_dict().items() if name != "provider_tools"}
    if given.get("tool_choice") == "auto":
        del given["tool_choice"]
    if given.get("response_format", {}).get("type") == "text":
        del given["response_format"]
    return given


def function_of(tool_choice: Any) -> str:
    """Return the name of the function that a tool choice names; empty where it names none."""
    return str(tool_choice["function"]["name"]) if isinstance(tool_choice, Mapping) else ""


def is_forced(tool_choice: Any) -> bool:
    """Return whether a tool has to be called."""
    return tool_choice == "required" or bool(function_of(tool_choice))


def is_json_format(parameters: Parameters) -> bool:
    return parameters.response_format is not None and parameters.response_format["type"] != "text"


def read_parameters(
    values: Any, *, path: str = "parameters", allowed: tuple[str, ...] = NAMES, called: Mapping[str, str] | None = None
) -> Parameters:
    """Return parameters that came as JSON; null leaves one unset.

    :param path: what errors name the whole; empty where the parameters stand by themselves
    :param called: other names that the sender knows them by
    :raises InvalidRequest: one is unknown, of a wrong type or out of its bounds; ``field`` says which.
    """
    if not isinstance(values, Mapping):
        raise InvalidRequest(gettext_noop("%(name)s must be an object"), {"name": path}, field=path)
    found: dict[str, Any] = {}
    for name, value in values.items():
        said = (called or {}).get(name, str(name))
        where = f"{path}.{said}" if path else said
        if name not in allowed:
            raise InvalidRequest(
                gettext_noop("%(name)s is not a parameter; known here: %(names)s"),
                {"name": where, "names": ", ".join(allowed)},
                field=where,
            )
        if value is None:
            continue
        try:
            found[name] = _CHECKS[name](value)
        except _Refused as error:
            raise InvalidRequest(error.text, {"name": where, **error.values}, field=where) from None
    return Parameters(**found)


def read_stored(values: Any) -> Parameters:
    """Return those of some stored parameters that this version understands."""
    found = []
    for name, value in values.items() if isinstance(values, Mapping) else ():
        with suppress(InvalidRequest):
            found.append(read_parameters({name: value}, allowed=KEPT_NAMES))
    return merge(*found)


def _number(low: float, high: float) -> Check:
    bounds = {"low": low, "high": high}

    def check(value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise _Refused(gettext_noop("%(name)s must be a number between %(low)s and %(high)s"), bounds)
        return float(value) + 0.0  # A negative zero would not come back from every database.

    return check


def _integer(low: int, high: int) -> Check:
    bounds = {"low": low, "high": high}

    def check(value: Any) -> int:
        if type(value) is not int or not low <= value <= high:
            raise _Refused(gettext_noop("%(name)s must be a whole number between %(low)s and %(high)s"), bounds)
        return value

    return check


def _one_of(*choices: str) -> Check:
    def check(value: Any) -> str:
        if value not in choices or not isinstance(value, str):
            raise _Refused(gettext_noop("%(name)s must be one of %(names)s"), {"names": ", ".join(choices)})
        return value

    return check


def _switch(value: Any) -> bool:
    if not isinstance(value, bool):
        raise _Refused(gettext_noop("%(name)s must be true or false"))
    return value


def _stops(value: Any) -> tuple[str, ...]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list | tuple) or not all(isinstance(text, str) for text in texts):
        raise _Refused(gettext_noop("%(name)s must be a text or a list of texts"))
    if len(texts) > MOST_STOPS or not all(0 < len(text) <= LONGEST_STOP for text in texts):
        raise _Refused(
            gettext_noop("%(name)s may be %(most)s texts of 1 to %(longest)s characters, not more"),
            {"most": MOST_STOPS, "longest": LONGEST_STOP},
        )
    if not all(map(_is_storable, texts)):
        raise _Refused(NOT_STORABLE)
    return tuple(texts)


def _provider_tools(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list | tuple) or not all(name in PROVIDER_TOOLS for name in map(str, value)):
        raise _Refused(
            gettext_noop("%(name)s must be a list of names; known: %(names)s"), {"names": ", ".join(PROVIDER_TOOLS)}
        )
    return tuple(dict.fromkeys(map(str, value)))


def _tool_choice(value: Any) -> Any:
    if isinstance(value, str) and value in CHOICES:
        return value
    name = value.get("function") if isinstance(value, Mapping) and value.get("type") == "function" else None
    name = name.get("name") if isinstance(name, Mapping) else None
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise _Refused(
            gettext_noop("%(name)s must be one of %(names)s, or %(form)s"),
            {"names": ", ".join(CHOICES), "form": '{"type": "function", "function": {"name": …}}'},
        )
    return {"type": "function", "function": {"name": name}}


def _response_format(value: Any) -> dict[str, Any]:
    if isinstance(value, str):
        try:
            value = exact_value(value, deepest=DEEPEST_FORMAT)
        except ValueError as error:
            raise _Refused(gettext_noop("%(name)s is no JSON: %(reason)s"), {"reason": reason_of(error)}) from None
    kind = value.get("type") if isinstance(value, Mapping) else None
    if not isinstance(kind, str) or kind not in FORMATS:
        raise _Refused(gettext_noop("%(name)s must have one of these types: %(names)s"), {"names": ", ".join(FORMATS)})
    if kind != "json_schema":
        return {"type": kind}
    if not nests_within(value, DEEPEST_FORMAT):
        raise _Refused(gettext_noop("%(name)s is nested too deeply"))
    given = {"type": kind, "json_schema": _json_schema(value.get("json_schema"))}
    try:
        text = json.dumps(given, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError):
        raise _Refused(gettext_noop("%(name)s must be JSON")) from None
    if len(text) > LONGEST_FORMAT:
        raise _Refused(
            gettext_noop("%(name)s may have %(most)s characters as JSON, not more"), {"most": LONGEST_FORMAT}
        )
    if not _is_storable(text) or "\\u0000" in text:
        raise _Refused(NOT_STORABLE)
    return given


def _json_schema(asked: Any) -> dict[str, Any]:
    if not isinstance(asked, Mapping) or not isinstance(asked.get("schema"), Mapping):
        raise _Refused(gettext_noop("%(name)s must have json_schema.schema, a JSON Schema"))
    named = {"name": "result"} | {name: value for name, value in asked.items() if value is not None}
    if unknown := sorted(map(str, named.keys() - {"name", "schema", "strict", "description"})):
        raise _Refused(
            gettext_noop("%(name)s has a json_schema with what is not known: %(names)s"),
            {"names": ", ".join(unknown)[:200]},
        )
    if not isinstance(named["name"], str) or not _NAME.fullmatch(named["name"]):
        raise _Refused(gettext_noop("%(name)s must have a json_schema.name of 1 to 64 letters, digits, _ and -"))
    if not isinstance(named.get("strict", True), bool):
        raise _Refused(gettext_noop("%(name)s must have true or false as json_schema.strict"))
    if not isinstance(named.get("description", ""), str):
        raise _Refused(gettext_noop("%(name)s must have a text as json_schema.description"))
    return named


def _is_storable(text: str) -> bool:
    return "\x00" not in text and not any("\ud800" <= letter <= "\udfff" for letter in text)


_CHECKS: dict[str, Check] = {
    "temperature": _number(0, 2),
    "top_p": _number(0, 1),
    "max_output_tokens": _integer(1, MOST_TOKENS),
    "effort": _one_of(*EFFORTS),
    "verbosity": _one_of(*VERBOSITIES),
    "stop": _stops,
    "seed": _integer(-LARGEST_SEED, LARGEST_SEED),
    "tool_choice": _tool_choice,
    "parallel_tool_calls": _switch,
    "response_format": _response_format,
    "provider_tools": _provider_tools,
}
