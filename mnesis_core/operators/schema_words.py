"""The keywords of JSON Schema, each counted, and those with patterns in linear time (RE2)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import re2
from jsonschema.exceptions import ValidationError

from mnesis_core.text import printable

MOST_STEPS = 300_000
"""Of checking one value: a keyword that is asked of a part of it is one. A few seconds at the most."""
LARGEST_PATTERN = 2_000
"""RE2's program of one pattern."""
_CHARACTERS_OF_A_STEP = 50
"""Of an error's text, which quotes the value, and of a text that a pattern is looked for in."""
Keyword = Callable[[Any, Any, Any, Any], "Iterator[ValidationError] | None"]


class TooMuchChecking(Exception):
    """A value and a schema that take more steps than they are given."""


@dataclass(slots=True)
class Steps:
    """What one check may still do."""

    left: int = MOST_STEPS

    def take(self, count: int) -> None:
        """Count steps.

        :raises TooMuchChecking: they are used up.
        """
        self.left -= count
        if self.left < 0:
            raise TooMuchChecking


STEPS: ContextVar[Steps] = ContextVar("steps")
"""Of the check that runs: what jsonschema calls gets no argument of ours."""


def counted(keywords: Mapping[str, Keyword]) -> dict[str, Keyword]:
    """The keywords of a draft, each of them counted and none of them slow."""
    return {name: _counted(name, _OWN.get(name, keyword)) for name, keyword in keywords.items()}


def _counted(name: str, keyword: Keyword) -> Keyword:
    def check(validator: Any, said: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
        steps = STEPS.get()
        steps.take(_COSTS.get(name, 1) + (_size(value) + _size(said) if name in _WHOLE else 0))
        for error in keyword(validator, said, value, schema) or ():
            steps.take(len(error.message) // _CHARACTERS_OF_A_STEP)
            yield error

    return check


def _size(value: Any) -> int:
    return len(value) if isinstance(value, dict | list) else 0


_COSTS = {"$ref": 4}
"""Of keywords that take longer than others."""
_WHOLE = frozenset(
    {"additionalProperties", "const", "enum", "patternProperties", "propertyNames", "required", "uniqueItems"}
)
"""These go through all of a value, or through all that they say, without asking another keyword."""


@lru_cache(maxsize=1_000)
def compiled_pattern(pattern: str) -> Any:
    """A pattern as RE2 reads it.

    :raises ValueError: RE2 does not know it, or it is too large.
    """
    options = re2.Options()
    options.log_errors = False
    try:
        compiled = re2.compile(pattern, options)
    except (UnicodeEncodeError, re2.error) as error:
        raise ValueError("RE2 does not know it (there is no looking around in it, and no back-reference)") from error
    if compiled.programsize > LARGEST_PATTERN:
        raise ValueError("it is too large: repeat less in it")
    return compiled


def _is_in(pattern: str, text: str) -> bool:
    STEPS.get().take(1 + len(text) // _CHARACTERS_OF_A_STEP)
    return compiled_pattern(pattern).search(printable(text)) is not None


def _pattern(validator: Any, said: str, value: Any, schema: Any) -> Iterator[ValidationError]:
    if isinstance(value, str) and not _is_in(said, value):
        yield ValidationError(f"{value!r} does not match {said!r}")


def _pattern_properties(validator: Any, said: dict[str, Any], value: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(value, dict):
        return
    for pattern, inner in said.items():
        for key in value:
            if _is_in(pattern, key):
                yield from validator.descend(value[key], inner, path=key, schema_path=pattern)


def _additional_properties(validator: Any, said: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    if not isinstance(value, dict):
        return
    known, patterns = schema.get("properties", {}), schema.get("patternProperties", {})
    for key in value:
        if key in known or any(_is_in(pattern, key) for pattern in patterns):
            continue
        if said is False:
            yield ValidationError(f"the property {key!r} is not allowed")
        else:
            yield from validator.descend(value[key], said, path=key)


def _unique_items(validator: Any, said: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
    if not said or not isinstance(value, list):
        return
    keys = [_key(item) for item in value]
    if len(set(keys)) < len(keys):
        yield ValidationError("two of the items are the same")


def _key(value: Any) -> Any:
    """What two equal JSON values have in common, and no others: 1 and 1.0, not 1 and true."""
    STEPS.get().take(1)
    if isinstance(value, dict):
        return "object", frozenset((key, _key(held)) for key, held in value.items())
    if isinstance(value, list):
        return "array", tuple(_key(held) for held in value)
    return ("boolean", value) if isinstance(value, bool) else ("", value)


_OWN: dict[str, Keyword] = {
    "additionalProperties": _additional_properties,
    "pattern": _pattern,
    "patternProperties": _pattern_properties,
    "uniqueItems": _unique_items,
}
