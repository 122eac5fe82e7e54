"""A shape in words: one line per object or array, the outermost first."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator

from mnesis_core.exploration.findings import counted, shown
from mnesis_core.exploration.shapes import (
    ARRAY,
    FEW_VALUES,
    INTEGER,
    NULL,
    NUMBER,
    OBJECT,
    STRING,
    VALUE_CHARACTERS,
    Shape,
    merged,
)

LINE_CHARACTERS = 800
PATH_CHARACTERS = 120
MOST_LINES = 40
MANY_KEYS = 20
"""An object of more keys, whose values are all alike, is told as one that maps names to such values."""
_KEY_CHARACTERS = 50
_PLURALS = {OBJECT: "objects", ARRAY: "arrays", STRING: "strings"}


def shape_lines(root: Shape, *, name: str = "") -> list[str]:
    """What each object holds, from the outside in.

    :param name: what the whole is called, with a colon
    """
    lines: list[str] = []
    waiting: deque[tuple[str, Shape]] = deque([("", root)])
    while waiting and len(lines) < MOST_LINES:
        path, shape = waiting.popleft()
        title = shown(path, characters=PATH_CHARACTERS) or f"{name} {_kind(shape)}".strip()
        if OBJECT in shape.types:
            lines.append(f"{title}: {_members(shape)}" if shape.members else title)
        elif not path or path.endswith("[]"):
            lines.append(f"{title}: {_kind(shape)}" if path else f"{title}{_items_told(shape)}")
        waiting.extend(_inside(path, shape))
    return lines


def _inside(path: str, shape: Shape) -> Iterator[tuple[str, Shape]]:
    """The places within one that hold more."""
    if shape.items is not None and _holds_more(shape.items):
        yield f"{path}[]", shape.items
    if (every := _value_of_map(shape)) is not None:
        yield f"{path}.*".lstrip("."), every
        return
    for key, member in shape.members.items():
        if _holds_more(member):
            yield f"{path}.{key}".lstrip("."), member


def _holds_more(shape: Shape) -> bool:
    return OBJECT in shape.types or shape.items is not None


def _value_of_map(shape: Shape) -> Shape | None:
    """What every value is, of an object that maps many names to values of one kind."""
    every = [*shape.members.values(), *([] if shape.rest is None else [shape.rest])]
    alike = sum(OBJECT in member.types or ARRAY in member.types for member in every)
    return merged(every) if len(every) > MANY_KEYS and alike * 10 >= len(every) * 9 else None


def _members(shape: Shape) -> str:
    """Its keys with what they hold, as many as fit a line."""
    is_map = _value_of_map(shape) is not None
    said: list[str] = []
    length = 0
    for key, member in shape.members.items():
        name = shown(key, characters=_KEY_CHARACTERS) or "''"
        said.append(name if is_map else f"{name} {_told(member, of=shape)}")
        length += len(said[-1]) + 2
        if length > LINE_CHARACTERS:
            break
    rest = shape.most.get(OBJECT, 0) - len(said)
    return ", ".join(said) + (f" and {rest:,} more keys" if rest > 0 and shape.types[OBJECT] == 1 else "")


def _told(shape: Shape, *, of: Shape) -> str:
    """A value's kind, what it is like, and how often the key is there."""
    share = f", in {shape.count:,} of {of.types[OBJECT]:,}" if shape.count < of.types[OBJECT] else ""
    if shape.count == 1 and not share and not set(shape.types) & {OBJECT, ARRAY}:
        return _one(shape)
    return f"({_kind(shape)}{_values(shape)}{_items_told(shape)}{share})"


def _one(shape: Shape) -> str:
    """The only value of a place, as JSON has it."""
    text = shown(shape.example, characters=VALUE_CHARACTERS)
    return f'"{text}"' if STRING in shape.types else text


def _items_told(shape: Shape) -> str:
    """The values of an array of few."""
    items = shape.items
    if items is None or _holds_more(items) or not 0 < len(items.values) <= FEW_VALUES:
        return ""
    return ": " + (_few(items) if items.count > len(items.values) else ", ".join(map(_short, items.values)))


def _kind(shape: Shape) -> str:
    """``string``, ``array of 3–20 objects or null``."""
    by_frequency = sorted(shape.types, key=lambda type_: -shape.types[type_])
    return " or ".join(_sized(shape, type_) for type_ in by_frequency) or "nothing"


def _sized(shape: Shape, type_: str) -> str:
    if type_ not in shape.most:
        return type_
    fewest, most = shape.fewest[type_], shape.most[type_]
    things = "keys" if type_ == OBJECT else _items(shape.items)
    if fewest != most:
        return f"{type_} of {fewest:,}–{most:,} {things}"
    return f"{type_} of {counted(most, _singular(things), things)}" if most else f"empty {type_}"


def _singular(things: str) -> str:
    return things.replace("items", "item").removesuffix("s")


def _items(items: Shape | None) -> str:
    if items is None or len(items.types) != 1:
        return "items" if items is None else f"items ({' or '.join(items.types)})"
    type_ = next(iter(items.types))
    return _PLURALS.get(type_, f"{type_}s")


def _values(shape: Shape) -> str:
    """What its numbers span, its few values, or one of them."""
    if set(shape.types) & {OBJECT, ARRAY} or not set(shape.types) - {NULL} or not shape.example:
        return ""
    if shape.count == 1:
        return f" {shown(shape.example, characters=VALUE_CHARACTERS)}"
    if len(shape.values) <= FEW_VALUES and len(shape.values) * 2 <= shape.count:
        return ": " + _few(shape)
    if set(shape.types) <= {INTEGER, NUMBER} and shape.lowest is not None and shape.highest is not None:
        return f" {shape.lowest:.12g}–{shape.highest:.12g}"
    return f" as {shown(shape.example, characters=VALUE_CHARACTERS // 2)}"


def _few(shape: Shape) -> str:
    by_frequency = sorted(shape.values.items(), key=lambda pair: -pair[1])
    return ", ".join(f"{_short(text)} ×{count:,}" for text, count in by_frequency)


def _short(text: str) -> str:
    return shown(text, characters=24) or "(empty)"
