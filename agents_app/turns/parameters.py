"""What the calls of a turn are asked with: a turn's parameters over its session's, and these over those of the model's entry.

A response format that the model's provider does not hold it to is put into words, and the answer is checked here.
"""

from __future__ import annotations

import json
from contextlib import suppress
from dataclasses import replace
from math import ceil
from typing import Any

from compaction_app.context.state import CORRECTION, FORMAT, Frame
from mnesis_core.config import Config
from mnesis_core.context.fitting import budget_beside
from mnesis_core.errors import InvalidRequest, InvalidSchema, ParameterNotSupported, gettext_noop
from mnesis_core.llm.interface import ModelSpec, Reply, ToolSpec
from mnesis_core.llm.parameters import Parameters, function_of, is_forced, is_json_format, merge_asked, read_stored
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.maps.prompts import CURRENT, correction, judge
from mnesis_core.maps.schema import OutputSchema, compile_schema
from mnesis_core.providers.litellm_parameters import SettledParameters, settle_parameters, takes_format
from mnesis_core.providers.opaque import lacks_thinking
from mnesis_core.turns.options import TurnOptions
from mnesis_core.turns.requests import joined

# Finish reasons of an answer that is not whole, which a client is told.
CUT = ("length", "max_tokens", "content_filter")
ANY_OBJECT = {"type": "object"}
NAMED_NOT_OFFERED = gettext_noop("tool_choice wants a tool called %(name)s to be called, and none is offered")
NONE_OFFERED = gettext_noop("tool_choice wants a tool to be called, and none is offered")


def parameters_of(spec: ModelSpec, config: Config, options: TurnOptions) -> Parameters:
    return merge_asked(spec.parameters, options.parameters, read_stored(config.parameters))


def check_parameters(spec: ModelSpec, config: Config, options: TurnOptions) -> None:
    """Check what a turn is to be asked with, before it begins.

    :raises ParameterNotSupported: the model does not take one, and such a turn is to be refused.
    :raises InvalidSchema: the response format has to be checked here, and cannot be.
    """
    asked = parameters_of(spec, config, options)
    if asked == Parameters():
        return
    if not _is_native(spec, asked):
        schema_of(asked)
    settled = settle_parameters(spec, asked, has_tools=True)
    if settled.not_taken and config.turn.unsupported_parameters == "refuse":
        name, why = next(iter(settled.not_taken.items()))
        raise ParameterNotSupported(
            gettext_noop("%(name)s cannot be asked of %(model)s: %(reason)s."),
            {"name": name, "model": spec.alias, "reason": why},
            field=f"parameters.{name}",
            parameters=settled.not_taken,
        )


def check_tool_choice(asked: Parameters, tools: dict[str, Any] | set[str]) -> None:
    """:raises InvalidRequest: a tool has to be called, and this one, or any, is not offered."""
    name = function_of(asked.tool_choice)
    if (name and name not in tools) or (asked.tool_choice == "required" and not tools):
        text = NAMED_NOT_OFFERED if name else NONE_OFFERED
        raise InvalidRequest(text, {"name": name} if name else {}, field="tool_choice")


def schema_of(asked: Parameters) -> OutputSchema | None:
    """:raises InvalidSchema: it cannot be checked here."""
    if asked.response_format is None or not is_json_format(asked):
        return None
    named = asked.response_format.get("json_schema")
    return compile_schema(named["schema"] if named else ANY_OBJECT)


def with_words(frame: Frame, options: TurnOptions) -> Frame:
    """Return the frame with the turn's system prompt, and the response format in words where the model needs them.

    A schema that the provider holds the model to is sent beside the prompt, and takes its room in the window.
    """
    asked = parameters_of(frame.spec, frame.config, options)
    own = frame.system_prompt
    if options.system_prompt is not None:  # replaces all but what makes the session one of an assistant
        own = joined((frame.session.assistant_instructions, options.system_prompt))
    # Providers of a JSON mode want JSON to be spoken of.
    is_said = is_json_format(asked) and not (_is_native(frame.spec, asked) and _is_schema(asked))
    schema = schema_of(asked) if is_said else None
    words = f"{CURRENT.with_schema}\n{schema.text}" if schema else ""
    system = "\n\n".join(text for text in (own, words) if text)
    is_beside = _is_schema(asked) and not is_said
    beside = estimate_text(json.dumps(asked.response_format, ensure_ascii=False)) if is_beside else 0
    budget = budget_beside(frame.budget, ceil(beside * frame.calibration.ratio)) if beside else frame.budget
    return replace(frame, system_prompt=system, budget=budget)


def settle_call(
    spec: ModelSpec, asked: Parameters, *, payload: dict[str, Any], max_output_tokens: int, has_called: bool
) -> SettledParameters:
    """Return what one call of a turn is sent beside its messages and tools.

    :param max_output_tokens: the most that its answer may have
    :param has_called: whether the turn has called a tool already, so that none has to be called any more
    """
    forced = asked.tool_choice
    choice = None if has_called and asked.tool_choice != "none" else asked.tool_choice
    most = asked.max_output_tokens
    asked = replace(asked, tool_choice=choice, max_output_tokens=None if most is None else min(most, max_output_tokens))
    return settle_parameters(
        replace(spec, max_output_tokens=max_output_tokens),
        asked,
        has_tools="tools" in payload,
        is_unthought=lacks_thinking(payload["messages"]),
        was_forced=has_called and is_forced(forced),
    )


def format_problem(spec: ModelSpec, asked: Parameters, reply: Reply) -> str:
    """Return why a whole answer is not in the format that was asked for, in words for the model; empty if it is.

    A provider that holds the model to a strict schema, or to JSON, is believed.
    """
    if reply.error is not None or reply.finish_reason.lower() in CUT or not is_json_format(asked):
        return ""
    if _is_native(spec, asked) and (not _is_schema(asked) or _is_strict(asked)):
        return ""
    schema = None
    with suppress(InvalidSchema):  # The provider took it.
        schema = schema_of(asked)
    return "" if schema is None else judge(reply.text, schema, finish_reason=reply.finish_reason).message


def with_correction(payload: dict[str, Any], problem: str) -> tuple[dict[str, Any], dict[str, str]]:
    """Return a payload that ends with what was wrong with the answer before, and the texts to keep with its call."""
    if not problem:
        return payload, {}
    said = correction(problem)
    return payload | {"messages": [*payload["messages"], {"role": "user", "content": said}]}, {CORRECTION: said}


def format_text(sent: dict[str, Any]) -> dict[str, str]:
    given = sent.get(FORMAT)
    return {FORMAT: json.dumps(given, ensure_ascii=False)} if given else {}


def offered(tools: tuple[ToolSpec, ...], asked: Parameters) -> tuple[ToolSpec, ...]:
    return () if asked.tool_choice == "none" else tools


def _is_native(spec: ModelSpec, asked: Parameters) -> bool:
    return asked.response_format is not None and takes_format(spec, asked.response_format)


def _is_schema(asked: Parameters) -> bool:
    return asked.response_format is not None and "json_schema" in asked.response_format


def _is_strict(asked: Parameters) -> bool:
    return asked.response_format is not None and asked.response_format["json_schema"].get("strict") is True
