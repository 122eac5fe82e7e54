"""The JSON Schema of an operator's results: compiled once, then checked against every reply in bounded time.

JSON Schema 2020-12 and draft 7. No reference leads out of the schema, patterns are RE2's (linear time), and ``format`` is
not checked. Each keyword's work is counted, because a few references to each other make checking exponential.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from typing import Any
from urllib.parse import unquote

import re2
from jsonschema import Draft7Validator, Draft202012Validator
from jsonschema.exceptions import SchemaError, ValidationError, best_match
from jsonschema.validators import extend
from referencing import Registry

from mnesis_core.errors import InvalidSchema, gettext_noop, reason_of
from mnesis_core.text import nests_within, printable

# Steps for checking one value; a keyword applied to a part of it is one. Takes a few seconds at most.
MOST_STEPS = 300_000
_STEPS_OF_A_PROBE = 5_000  # Less, and still more than Python's recursion limit, so that endless references are found.
_PROBES: tuple[Any, ...] = (None, True, 0, "", [], {})
LARGEST_PATTERN = 2_000  # The size of RE2's program of one pattern.
_CHARACTERS_OF_A_STEP = 50  # Of an error's text, which quotes the value, and of a text searched for a pattern.
LONGEST_SCHEMA = 200_000
DEEPEST = 40  # Of a schema and of a checked value: both are walked by recursion.
_SHOWN_PROBLEMS = 5
_SHOWN_CHARACTERS = 300  # Characters of one problem. The reason is at its end, after the value, which may be long.
_NEWEST = "https://json-schema.org/draft/2020-12/schema"
_DRAFTS = {_NEWEST: Draft202012Validator, "http://json-schema.org/draft-07/schema": Draft7Validator}
# These keywords go through the whole value, or their own, without calling another keyword.
_WHOLE = frozenset(
    {"additionalProperties", "const", "enum", "patternProperties", "propertyNames", "required", "uniqueItems"}
)
_NOT_KNOWN = ("$dynamicRef", "$dynamicAnchor", "$recursiveRef", "unevaluatedItems", "unevaluatedProperties")
# Keywords that hold a schema, a list of schemas, or schemas by names.
_ONE = ("additionalItems", "additionalProperties", "contains", "else", "if", "items", "not", "propertyNames", "then")
_LISTS = ("allOf", "anyOf", "items", "oneOf", "prefixItems")
_MAPS = ("$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties")
# With only these keywords a provider can enforce a schema strictly (OpenAI's structured outputs).
_STRICT = frozenset(
    {"$defs", "$ref", "additionalProperties", "anyOf", "const", "definitions", "description", "enum", "items"}
    | {"properties", "required", "title", "type"}
)
Keyword = Callable[[Any, Any, Any, Any], "Iterator[ValidationError] | None"]


class TooMuchChecking(Exception):
    pass


@dataclass(slots=True)
class Steps:
    left: int = MOST_STEPS

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise TooMuchChecking


# A context variable, because jsonschema passes keywords no argument of ours.
STEPS: ContextVar[Steps] = ContextVar("steps")


def _counted(name: str, keyword: Keyword) -> Keyword:
    def check(validator: Any, said: Any, value: Any, schema: Any) -> Iterator[ValidationError]:
        steps = STEPS.get()
        steps.take(4 if name == "$ref" else 1)
        if name in _WHOLE:
            steps.take(sum(len(whole) for whole in (value, said) if isinstance(whole, dict | list)))
        for error in keyword(validator, said, value, schema) or ():
            steps.take(len(error.message) // _CHARACTERS_OF_A_STEP)
            yield error

    return check


@lru_cache(maxsize=1_000)
def compiled_pattern(pattern: str) -> Any:
    """:raises ValueError: RE2 does not accept it, or it is too large"""
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
    """Return a key that equal JSON values share and different ones do not: 1 and 1.0 are equal, 1 and true are not."""
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
_COUNTED = {
    name: extend(draft, {word: _counted(word, _OWN.get(word, keyword)) for word, keyword in draft.VALIDATORS.items()})
    for name, draft in _DRAFTS.items()
}


@dataclass(frozen=True, slots=True, kw_only=True)
class OutputSchema:
    text: str  # As JSON on one line, for prompts.
    is_strict: bool
    _schema: Any
    _validator: Any

    def problem(self, value: Any, *, most_steps: int = MOST_STEPS) -> str:
        """Return what is wrong with a value, in words for the model that wrote it; empty if it fits."""
        if not nests_within(value, DEEPEST):
            return f"it nests more than {DEEPEST} objects and lists"
        token = STEPS.set(Steps(left=most_steps))
        try:
            found = list(islice(self._validator.iter_errors(value), _SHOWN_PROBLEMS + 1))
            said = list(dict.fromkeys(_sentence(error) for error in found[:_SHOWN_PROBLEMS]))
            return "; ".join([*said, "and more"] if len(found) > _SHOWN_PROBLEMS else said)
        except TooMuchChecking:
            return "it takes too long to check: make it shorter or flatter"
        except RecursionError:
            return "it is nested too deeply to be checked"
        except ArithmeticError:
            return "a number in it is too large to be checked"
        finally:
            STEPS.reset(token)

    @property
    def response_format(self) -> dict[str, Any] | None:
        """Return the response format in OpenAI's form; None if the schema is not one of an object, which they require."""
        if not isinstance(self._schema, dict) or self._schema.get("type") != "object":
            return None
        named = {"name": "result", "schema": self._schema, "strict": self.is_strict}
        return {"type": "json_schema", "json_schema": named}


def compile_schema(schema: Any) -> OutputSchema:
    """Compile a schema.

    :param schema: JSON: an object, or true or false
    :raises InvalidSchema: it is not JSON Schema, refers to something outside of it, or cannot be checked in bounded time
    """
    if not nests_within(schema, DEEPEST):
        raise InvalidSchema(
            gettext_noop("The output schema nests more than %(most)s objects and lists."),
            {"most": str(DEEPEST)},
            field="schema",
        )
    try:
        text = json.dumps(schema, ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InvalidSchema(
            gettext_noop("The output schema is not JSON: %(reason)s."), {"reason": reason_of(error)}, field="schema"
        ) from None
    if len(text) > LONGEST_SCHEMA:
        raise InvalidSchema(
            gettext_noop("The output schema is longer than %(most)s characters."),
            {"most": LONGEST_SCHEMA},
            field="schema",
        )
    return _compiled(text)


@lru_cache(maxsize=64)
def _compiled(text: str) -> OutputSchema:
    schema = json.loads(text)
    if not isinstance(schema, dict | bool):
        raise _invalid("it must be a JSON object")
    # It is removed, because jsonschema would choose its own validator by it.
    named = schema.pop("$schema", _NEWEST) if isinstance(schema, dict) else _NEWEST
    draft = named.rstrip("#") if isinstance(named, str) else ""
    if draft not in _DRAFTS:
        raise _invalid(f"$schema must be one of {', '.join(_DRAFTS)}, or left out")
    try:
        _DRAFTS[draft].check_schema(schema, format_checker=None)
        parts = list(_parts(schema))
        _refuse(schema, parts)
    except SchemaError as error:
        raise _invalid(f"{_shortened(error.message)} at {error.json_path}") from None
    except ValueError as error:
        raise _invalid(str(error)) from None
    except RecursionError:
        raise _invalid("it is nested too deeply") from None
    # No registry of others' schemas: what is not in this one is nowhere.
    found = OutputSchema(
        text=text,
        is_strict=all(_is_strict(part) for part in parts),
        _schema=schema,
        _validator=_COUNTED[draft](schema, registry=Registry()),
    )
    if any("too deeply" in found.problem(probe, most_steps=_STEPS_OF_A_PROBE) for probe in _PROBES):
        raise _invalid("it refers to itself without end")
    return found


def _parts(schema: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(schema, dict):
        return
    yield schema
    inner = [schema[name] for name in _ONE if isinstance(schema.get(name), dict)]
    inner += [part for name in _LISTS if isinstance(schema.get(name), list) for part in schema[name]]
    inner += [part for name in _MAPS if isinstance(schema.get(name), dict) for part in schema[name].values()]
    for part in inner:
        yield from _parts(part)


def _refuse(schema: Any, parts: list[dict[str, Any]]) -> None:
    known = {id(part) for part in parts}
    for part in parts:
        for name in _NOT_KNOWN:
            if name in part:
                raise ValueError(f"{name} is not known here")
        if "$schema" in part or ("$id" in part and part is not schema):
            raise ValueError("$schema and $id may stand at its beginning only")
        for pattern in [*part.get("patternProperties", {}), *([part["pattern"]] if "pattern" in part else [])]:
            try:
                compiled_pattern(pattern)
            except ValueError as error:
                raise ValueError(f"the pattern {_shortened(pattern)!r} cannot be used: {error}") from None
        if "$ref" in part and id(_target(schema, part["$ref"])) not in known:
            raise ValueError(
                f"the reference {_shortened(part['$ref'])!r} must lead to a schema in it, such as #/$defs/name"
            )


def _target(schema: Any, reference: str) -> Any:
    if reference == "#":
        return schema
    if not reference.startswith("#/"):
        return None
    found = schema
    for step in unquote(reference[2:]).split("/"):
        name = step.replace("~1", "/").replace("~0", "~")
        try:
            found = found[int(name)] if isinstance(found, list) else found[name]
        except (LookupError, TypeError, ValueError):
            return None
    return found


def _is_strict(part: dict[str, Any]) -> bool:
    if not part.keys() <= _STRICT:
        return False
    if "properties" not in part and part.get("type") != "object":
        return True
    return part.get("additionalProperties") is False and {*part.get("properties", {})} == {*part.get("required", [])}


def _sentence(error: ValidationError) -> str:
    nearest = best_match([error]) or error
    return f"{_shortened(nearest.message)} at {_shortened(nearest.json_path)}"


def _shortened(text: str) -> str:
    half = _SHOWN_CHARACTERS // 2
    return text if len(text) <= _SHOWN_CHARACTERS else f"{text[:half]} … {text[-half:]}"


def _invalid(problem: str) -> InvalidSchema:
    return InvalidSchema(
        gettext_noop("The output schema cannot be used: %(reason)s."), {"reason": problem}, field="schema"
    )
