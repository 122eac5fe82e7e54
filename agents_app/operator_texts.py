"""What the pages make of texts about runs: inputs, answers, prompts and what was asked, all of them other people's."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from agents_app.queries.operator_pages import TryHead
from mnesis_core.operators.values import ErrorKind, OperatorKind, OperatorSpec
from sessions_app.rendering import (
    format_characters,
    format_count,
    format_duration,
    format_money,
    show_invisible,
)

DEEPEST = 40
"""Levels of JSON that is laid out in lines: indents of deeper ones are longer than what they say."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownText:
    """A text, or its beginning."""

    text: str
    is_cut: bool
    size: str
    """Of the whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownTry:
    """A try on the page of its item."""

    entry: TryHead
    output: ShownText | None
    """What it said; ``None``: nothing."""
    error: str
    error_kind: str
    facts: list[str]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownSpec:
    """What a run was told to do."""

    texts: list[tuple[str, str]]
    facts: list[tuple[str, str]]


def shown_text(text: str, *, is_cut: bool, size: str) -> ShownText:
    """A text that came from a file or a model; JSON in lines and indents, where it is whole."""
    return ShownText(text=show_invisible(text if is_cut else _laid_out(text)), is_cut=is_cut, size=size)


def shown_try(entry: TryHead, *, most: int) -> ShownTry:
    """A try with its numbers as words; ``most`` stored characters of its text were read."""
    length = entry.output_length
    output = shown_text(entry.output, is_cut=length > most, size=format_characters(length)) if length else None
    has_tokens = entry.tokens_input is not None or entry.tokens_output is not None
    facts = (
        tokens_of(entry.tokens_input, entry.tokens_output) if has_tokens else "",
        format_money(entry.cost_micros),
        format_duration(entry.duration_ms / 1000),
    )
    return ShownTry(
        entry=entry,
        output=output,
        error=show_invisible(entry.error),
        error_kind=words_of(entry.error_kind),
        facts=[fact for fact in facts if fact],
    )


def shown_prompt(payload: Mapping[str, Any], *, most: int) -> list[tuple[str, ShownText]]:
    """The messages of a rebuilt payload: who speaks, and what is said."""
    return [_shown_message(message, most) for message in payload.get("messages", [])]


def _shown_message(message: Mapping[str, Any], most: int) -> tuple[str, ShownText]:
    content = message.get("content", "")
    text = content if isinstance(content, str) else json.dumps(content, ensure_ascii=False)
    shown = shown_text(text[:most], is_cut=len(text) > most, size=format_characters(len(text)))
    return show_invisible(str(message.get("role", ""))), shown


def shown_spec(spec: OperatorSpec, kind: OperatorKind) -> ShownSpec:
    """What a run was told to do, as texts and as facts."""
    schema = "" if spec.schema is None else _laid_out(json.dumps(spec.schema, ensure_ascii=False))
    texts = (("Prompt template", spec.template), ("System prompt", spec.system_prompt), ("Schema of results", schema))
    facts = [
        ("At a time", str(spec.concurrency)),
        ("Tries", f"{spec.max_retries + 1} at the most"),
        ("Timeout", f"{format_duration(spec.timeout_seconds)} a try"),
        ("Temperature", "" if spec.temperature is None else f"{spec.temperature:g}"),
        *(_agentic_facts(spec) if kind is OperatorKind.AGENTIC else []),
        ("Tokens", "" if spec.limits.tokens is None else f"{spec.limits.tokens:,} at the most"),
        ("Cost", "" if spec.limits.cost_micros is None else f"{format_money(spec.limits.cost_micros)} at the most"),
    ]
    return ShownSpec(
        texts=[(label, show_invisible(text)) for label, text in texts if text],
        facts=[(label, value) for label, value in facts if value],
    )


def _agentic_facts(spec: OperatorSpec) -> list[tuple[str, str]]:
    tools = "those of the session" if spec.tools is None else show_invisible(", ".join(spec.tools)) or "none"
    return [
        ("Tools", tools),
        ("Read-only", "yes" if spec.read_only else "no"),
        ("Model calls", f"{spec.max_turns} a turn at the most"),
    ]


def _laid_out(text: str) -> str:
    """JSON in lines and indents; anything else, and what is nested deeply, as it is."""
    depth = deepest = 0
    for character in text:
        depth += (character in "[{") - (character in "]}")
        deepest = max(deepest, depth)
    if not 0 < deepest <= DEEPEST:
        return text
    try:
        return json.dumps(json.loads(text), indent=2, ensure_ascii=False)
    except (ValueError, RecursionError):
        return text


def words_of(kind: ErrorKind | None) -> str:
    """Why a try came to nothing, in two words at most; empty where it did not."""
    return "" if kind is None else kind.value.replace("_", " ").replace("llm", "LLM")


def tokens_of(input: int | None, output: int | None) -> str:
    """Tokens in and out."""
    return f"{format_count(input)} in, {format_count(output)} out"
