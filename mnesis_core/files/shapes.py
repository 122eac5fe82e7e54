"""The shape of nested data: which keys hold values of which types, how many, how deep. Bounded however large the data."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any

from mnesis_core.files.source import counted, shown

OBJECT, ARRAY, STRING, INTEGER, NUMBER, BOOLEAN, NULL = (
    "object",
    "array",
    "string",
    "integer",
    "number",
    "boolean",
    "null",
)
DEPTH = 5
"""Levels that are kept; what is deeper is only counted."""
KEYS_OF_ONE = 200
"""Keys of one object that are kept by name."""
MOST_SHAPES = 10_000
NAMELESS = "?"
"""Stands for a key that is itself an object or array, as YAML has them."""
KEY_CHARACTERS = 200
VALUE_CHARACTERS = 60
FEW_VALUES = 8
"""Values of one key that are all told, as those of ``role``."""


class Shape:
    """What was seen at one place: of the whole, of a key of it, or of all items of an array."""

    __slots__ = ("example", "fewest", "highest", "items", "lowest", "members", "most", "rest", "types", "values")

    def __init__(self) -> None:
        self.types: dict[str, int] = {}
        self.members: dict[str, Shape] = {}
        self.rest: Shape | None = None
        """The values of keys that are not kept by name."""
        self.items: Shape | None = None
        self.fewest: dict[str, int] = {}
        self.most: dict[str, int] = {}
        """Keys of an object, items of an array: by type."""
        self.lowest: float | None = None
        self.highest: float | None = None
        self.values: dict[str, int] = {}
        """Few short values, and how often each was seen; more than ``FEW_VALUES`` of them when there are many."""
        self.example = ""

    @property
    def count(self) -> int:
        """How many values were seen here."""
        return sum(self.types.values())

    def saw(self, type_: str) -> None:
        """One more value of this type."""
        self.types[type_] = self.types.get(type_, 0) + 1

    def saw_length(self, type_: str, length: int) -> None:
        """One of them had so many keys or items."""
        self.fewest[type_] = min(self.fewest.get(type_, length), length)
        self.most[type_] = max(self.most.get(type_, length), length)

    def saw_scalar(self, type_: str, text: str) -> None:
        """One more value that holds no others."""
        self.types[type_] = self.types.get(type_, 0) + 1
        self.example = self.example or text[:VALUE_CHARACTERS]
        if type_ in (INTEGER, NUMBER):
            self._saw_number(text)
        if text in self.values:
            self.values[text] += 1
        elif len(self.values) <= FEW_VALUES:
            self.values[text[:VALUE_CHARACTERS]] = 1

    def _saw_number(self, text: str) -> None:
        try:
            number = float(text[:VALUE_CHARACTERS])
        except ValueError:
            return
        self.lowest = number if self.lowest is None or number < self.lowest else self.lowest
        self.highest = number if self.highest is None or number > self.highest else self.highest


class ShapeBuilder:
    """Builds the shape of data that comes as a stream of openings, closings and scalars, or as values."""

    def __init__(self) -> None:
        self.root = Shape()
        self.deepest = 0
        self._shapes = 1
        self._open: list[_Open] = []
        self._hidden = 0

    @property
    def depth(self) -> int:
        """How many objects and arrays are open."""
        return len(self._open) + self._hidden

    def open(self, type_: str) -> None:
        """An object or array begins."""
        if self._hidden:
            self._hidden += 1
        elif self._open and self._open[-1].wants_key:
            self._open[-1].key, self._open[-1].wants_key, self._hidden = NAMELESS, False, 1
        else:
            self._open_visible(type_)
        self.deepest = max(self.deepest, self.depth)

    def _open_visible(self, type_: str) -> None:
        shape = self._place()
        shape.saw(type_)
        if len(self._open) < DEPTH:
            self._open.append(_Open(shape, type_))
        else:
            self._hidden = 1

    def close(self, type_: str) -> bool:
        """The last opened one ends. Whether that is possible: one of this type is open."""
        if self._hidden:
            self._hidden -= 1
            return True
        if not self._open or self._open[-1].type != type_:
            return False
        ended = self._open.pop()
        ended.shape.saw_length(type_, ended.length)
        return True

    def scalar(self, type_: str, text: str) -> None:
        """A value that holds no others; in an object, every second one is a key."""
        if self._hidden:
            return
        if self._open and self._open[-1].wants_key:
            self._open[-1].key, self._open[-1].wants_key = text[:KEY_CHARACTERS], False
        else:
            self._place().saw_scalar(type_, text)

    def value(self, value: Any) -> None:
        """A whole value, as ``json.loads`` gives it."""
        self._note(self.root, value, 0)

    def _place(self) -> Shape:
        """The shape of the value that comes now."""
        if not self._open:
            return self.root
        parent = self._open[-1]
        parent.length += 1
        if parent.type == ARRAY:
            return self._item(parent.shape)
        key, parent.key, parent.wants_key = parent.key, "", True
        return self._member(parent.shape, key)

    def _item(self, shape: Shape) -> Shape:
        shape.items = shape.items or Shape()
        return shape.items

    def _member(self, shape: Shape, key: str) -> Shape:
        if (known := shape.members.get(key)) is not None:
            return known
        if len(shape.members) >= KEYS_OF_ONE or self._shapes >= MOST_SHAPES:
            shape.rest = shape.rest or Shape()
            return shape.rest
        self._shapes += 1
        shape.members[key] = Shape()
        return shape.members[key]

    def _note(self, shape: Shape, value: Any, depth: int) -> None:
        type_ = type_of(value)
        if type_ not in (OBJECT, ARRAY):
            shape.saw_scalar(type_, value if isinstance(value, str) else _written(value))
            return
        shape.saw(type_)
        shape.saw_length(type_, len(value))
        self.deepest = max(self.deepest, depth + 1)
        if depth + 1 >= DEPTH:
            return
        if isinstance(value, Mapping):
            for key, member in value.items():
                self._note(self._member(shape, key[:KEY_CHARACTERS]), member, depth + 1)
        else:
            for item in value:
                self._note(self._item(shape), item, depth + 1)


class _Open:
    """An object or array whose end has not come."""

    __slots__ = ("key", "length", "shape", "type", "wants_key")

    def __init__(self, shape: Shape, type_: str) -> None:
        self.shape, self.type, self.length, self.key, self.wants_key = shape, type_, 0, "", type_ == OBJECT


_TYPES = {dict: OBJECT, list: ARRAY, str: STRING, bool: BOOLEAN, int: INTEGER, float: NUMBER, type(None): NULL}


def type_of(value: Any) -> str:
    """The type of a value of JSON."""
    return _TYPES[type(value)]


def _written(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {True: "true", False: "false", None: "null"}[value]
    return str(value)


def merged(shapes: list[Shape]) -> Shape:
    """What was seen at any of several places."""
    whole = Shape()
    for shape in shapes:
        _merge_counts(whole, shape)
    keys = dict.fromkeys(key for shape in shapes for key in shape.members)
    whole.members = {key: merged([shape.members[key] for shape in shapes if key in shape.members]) for key in keys}
    if items := [shape.items for shape in shapes if shape.items is not None]:
        whole.items = merged(items)
    if rest := [shape.rest for shape in shapes if shape.rest is not None]:
        whole.rest = merged(rest)
    return whole


def _merge_counts(whole: Shape, shape: Shape) -> None:
    for type_, count in shape.types.items():
        whole.types[type_] = whole.types.get(type_, 0) + count
    for type_ in shape.fewest:
        whole.saw_length(type_, shape.fewest[type_])
        whole.saw_length(type_, shape.most[type_])
    for text, count in shape.values.items():
        if text in whole.values or len(whole.values) <= FEW_VALUES:
            whole.values[text] = whole.values.get(text, 0) + count
    whole.example = whole.example or shape.example
    lowest = [number for number in (whole.lowest, shape.lowest) if number is not None]
    highest = [number for number in (whole.highest, shape.highest) if number is not None]
    whole.lowest, whole.highest = min(lowest, default=None), max(highest, default=None)


# A shape in words: one line per object or array, the outermost first.

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
