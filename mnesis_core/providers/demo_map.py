"""What the demo model answers about one item of an operator: the smallest value that fits the schema it is shown."""

from __future__ import annotations

import json
import re
from typing import Any

LONGEST_TEXT = 200
"""Characters of the question that come back."""
_DEEPEST = 8
_NUMBER = re.compile(r"-?\d{1,9}")


def map_answer(system: str, question: str) -> str:
    """JSON for the schema in a system text; without one the beginning of the question."""
    schema = _schema_in(system)
    text = " ".join(question.split())[:LONGEST_TEXT]
    if schema is None:
        return text or "Nothing is asked."
    return json.dumps(_value(schema, schema, text, _DEEPEST), ensure_ascii=False)


def _schema_in(system: str) -> Any:
    last = system.strip().rpartition("\n")[2]
    try:
        return json.loads(last) if last.startswith("{") else None
    except (ValueError, RecursionError):
        return None


def _value(schema: Any, root: Any, text: str, depth: int) -> Any:
    if not isinstance(schema, dict) or depth == 0:
        return None
    if "const" in schema:
        return schema["const"]
    if schema.get("enum"):
        return _mentioned(schema["enum"], text)
    if inner := _instead(schema, root):
        return _value(inner, root, text, depth - 1)
    return _of_type(_type_of(schema), schema, root, text, depth)


def _of_type(kind: str, schema: dict[str, Any], root: Any, text: str, depth: int) -> Any:
    if kind == "object":
        inside = schema.get("properties", {})
        return {name: _value(inner, root, text, depth - 1) for name, inner in inside.items()}
    if kind == "array":
        least = min(10, max(0, int(schema.get("minItems", 0))))
        return [_value(schema.get("items", {}), root, text, depth - 1) for _ in range(least)]
    if kind in ("integer", "number"):
        found = _NUMBER.search(text)
        return max(int(found[0]) if found else 0, int(schema.get("minimum", -(10**9))))
    if kind == "boolean":
        return False
    return None if kind == "null" else text[: int(schema.get("maxLength", LONGEST_TEXT))]


def _type_of(schema: dict[str, Any]) -> str:
    said = schema.get("type", "object" if "properties" in schema else "string")
    return str(said[0] if isinstance(said, list) and said else said)


def _instead(schema: dict[str, Any], root: Any) -> Any:
    """What stands for a schema that only refers to others."""
    for name in ("anyOf", "oneOf", "allOf"):
        if isinstance(schema.get(name), list) and schema[name]:
            return schema[name][0]
    found = root
    for step in str(schema.get("$ref", "")).split("/")[1:]:
        found = found.get(step) if isinstance(found, dict) else None
    return found if "$ref" in schema and found is not root else None


def _mentioned(choices: list[Any], text: str) -> Any:
    """The first choice that the question names; else the first."""
    return next((one for one in choices if str(one).lower() in text.lower()), choices[0])
