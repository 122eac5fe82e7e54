"""The schema of nested data: which keys hold values of which types, how many, how deep. Bounded however large the data."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

from mnesis_core.files.source import counted, shown

OBJECT, ARRAY, STRING = "object", "array", "string"
INTEGER, NUMBER, BOOLEAN, NULL = "integer", "number", "boolean", "null"
DEPTH = 5  # Deeper levels are only counted.
KEYS_OF_ONE = 200  # Keys of one object that are kept by name.
MOST_SCHEMAS = 10_000
NAMELESS = "?"  # Stands for a key that is itself an object or array, which YAML allows.
KEY_CHARACTERS = 200
VALUE_CHARACTERS = 60
FEW_VALUES = 8  # A key's values are all listed if they are no more.
# A schema is described in lines of so many characters, each of which begins with the path of an object or array.
LINE_CHARACTERS = 800
PATH_CHARACTERS = 120
MOST_LINES = 40
MANY_KEYS = 20  # An object with more keys, whose values are alike, is described as a map.
_SHOWN_KEY_CHARACTERS = 50
_TYPES = {dict: OBJECT, list: ARRAY, str: STRING, bool: BOOLEAN, int: INTEGER, float: NUMBER, type(None): NULL}
_PLURALS = {OBJECT: "objects", ARRAY: "arrays", STRING: "strings"}


class Schema:
    """The values seen at one place: the root, a key, or all items of an array."""

    __slots__ = ("example", "fewest", "highest", "items", "lowest", "members", "most", "rest", "types", "values")

    def __init__(self) -> None:
        self.types: Counter[str] = Counter()
        self.members: dict[str, Schema] = {}
        self.rest: Schema | None = None  # The values of keys that are not kept by name.
        self.items: Schema | None = None
        self.fewest: dict[str, int] = {}
        self.most: dict[str, int] = {}  # Numbers of an object's keys and an array's items, by type.
        self.lowest: float | None = None
        self.highest: float | None = None
        # Short values and how often each was seen; more than ``FEW_VALUES`` when there are many.
        self.values: Counter[str] = Counter()
        self.example = ""

    @property
    def count(self) -> int:
        return self.types.total()

    def item(self) -> Schema:
        self.items = self.items or Schema()
        return self.items

    def saw_length(self, type_: str, length: int) -> None:
        self.fewest[type_] = min(self.fewest.get(type_, length), length)
        self.most[type_] = max(self.most.get(type_, length), length)

    def saw_number(self, number: float) -> None:
        self.lowest = number if self.lowest is None else min(self.lowest, number)
        self.highest = number if self.highest is None else max(self.highest, number)

    def saw_scalar(self, type_: str, text: str) -> None:
        self.types[type_] += 1
        self.example = self.example or text[:VALUE_CHARACTERS]
        if type_ in (INTEGER, NUMBER):
            with suppress(ValueError):
                self.saw_number(float(text[:VALUE_CHARACTERS]))
        if text in self.values:
            self.values[text] += 1
        elif len(self.values) <= FEW_VALUES:
            self.values[text[:VALUE_CHARACTERS]] = 1


class _Open:
    __slots__ = ("key", "length", "schema", "type", "wants_key")

    def __init__(self, schema: Schema, type_: str) -> None:
        self.schema, self.type, self.length, self.key, self.wants_key = schema, type_, 0, "", type_ == OBJECT


class SchemaBuilder:
    def __init__(self) -> None:
        self.root = Schema()
        self.deepest = 0
        self._schemas = 1
        self._open: list[_Open] = []
        self._hidden = 0

    @property
    def depth(self) -> int:
        return len(self._open) + self._hidden

    def open(self, type_: str) -> None:
        if self._hidden:
            self._hidden += 1
        elif self._open and self._open[-1].wants_key:
            self._open[-1].key, self._open[-1].wants_key, self._hidden = NAMELESS, False, 1
        else:
            schema = self._place()
            schema.types[type_] += 1
            if len(self._open) < DEPTH:
                self._open.append(_Open(schema, type_))
            else:
                self._hidden = 1
        self.deepest = max(self.deepest, self.depth)

    def close(self, type_: str) -> bool:
        """Close the innermost object or array. Return False if none of this type is open."""
        if self._hidden:
            self._hidden -= 1
            return True
        if not self._open or self._open[-1].type != type_:
            return False
        ended = self._open.pop()
        ended.schema.saw_length(type_, ended.length)
        return True

    def scalar(self, type_: str, text: str) -> None:
        """Add a value that holds no others; in an object, every second one is a key."""
        if self._hidden:
            return
        if self._open and self._open[-1].wants_key:
            self._open[-1].key, self._open[-1].wants_key = text[:KEY_CHARACTERS], False
        else:
            self._place().saw_scalar(type_, text)

    def value(self, value: Any) -> None:
        self._note(self.root, value, 0)

    def _place(self) -> Schema:
        if not self._open:
            return self.root
        parent = self._open[-1]
        parent.length += 1
        if parent.type == ARRAY:
            return parent.schema.item()
        key, parent.key, parent.wants_key = parent.key, "", True
        return self._member(parent.schema, key)

    def _member(self, schema: Schema, key: str) -> Schema:
        if (known := schema.members.get(key)) is not None:
            return known
        if len(schema.members) >= KEYS_OF_ONE or self._schemas >= MOST_SCHEMAS:
            schema.rest = schema.rest or Schema()
            return schema.rest
        self._schemas += 1
        schema.members[key] = Schema()
        return schema.members[key]

    def _note(self, schema: Schema, value: Any, depth: int) -> None:
        type_ = _TYPES[type(value)]
        if type_ not in (OBJECT, ARRAY):
            is_word = isinstance(value, bool) or value is None
            schema.saw_scalar(type_, {True: "true", False: "false", None: "null"}[value] if is_word else str(value))
            return
        schema.types[type_] += 1
        schema.saw_length(type_, len(value))
        self.deepest = max(self.deepest, depth + 1)
        if depth + 1 >= DEPTH:
            return
        if isinstance(value, Mapping):
            for key, member in value.items():
                self._note(self._member(schema, key[:KEY_CHARACTERS]), member, depth + 1)
        else:
            for item in value:
                self._note(schema.item(), item, depth + 1)


def merged(schemas: list[Schema]) -> Schema:
    whole = Schema()
    for schema in schemas:
        whole.types.update(schema.types)
        for type_ in schema.fewest:
            whole.saw_length(type_, schema.fewest[type_])
            whole.saw_length(type_, schema.most[type_])
        for text, count in schema.values.items():
            if text in whole.values or len(whole.values) <= FEW_VALUES:
                whole.values[text] += count
        whole.example = whole.example or schema.example
        if schema.lowest is not None and schema.highest is not None:
            whole.saw_number(schema.lowest)
            whole.saw_number(schema.highest)
    keys = dict.fromkeys(key for schema in schemas for key in schema.members)
    whole.members = {key: merged([schema.members[key] for schema in schemas if key in schema.members]) for key in keys}
    if items := [schema.items for schema in schemas if schema.items is not None]:
        whole.items = merged(items)
    if rest := [schema.rest for schema in schemas if schema.rest is not None]:
        whole.rest = merged(rest)
    return whole


def schema_lines(root: Schema, *, name: str = "") -> list[str]:
    """Describe a schema, which is called ``name`` (with its colon), in one line for each object or array, the outermost first."""
    lines: list[str] = []
    waiting: deque[tuple[str, Schema]] = deque([("", root)])
    while waiting and len(lines) < MOST_LINES:
        path, schema = waiting.popleft()
        title = shown(path, characters=PATH_CHARACTERS) or f"{name} {_kind(schema)}".strip()
        if OBJECT in schema.types:
            lines.append(f"{title}: {_members(schema)}" if schema.members else title)
        elif not path or path.endswith("[]"):
            lines.append(f"{title}: {_kind(schema)}" if path else f"{title}{_item_values(schema)}")
        waiting.extend(_inside(path, schema))
    return lines


def _inside(path: str, schema: Schema) -> Iterator[tuple[str, Schema]]:
    if schema.items is not None and _holds_more(schema.items):
        yield f"{path}[]", schema.items
    if (every := _value_of_map(schema)) is not None:
        yield f"{path}.*".lstrip("."), every
        return
    for key, member in schema.members.items():
        if _holds_more(member):
            yield f"{path}.{key}".lstrip("."), member


def _holds_more(schema: Schema) -> bool:
    return OBJECT in schema.types or schema.items is not None


def _value_of_map(schema: Schema) -> Schema | None:
    """Return what every value is, if the object maps many names to values of one kind."""
    every = [*schema.members.values(), *([] if schema.rest is None else [schema.rest])]
    alike = sum(OBJECT in member.types or ARRAY in member.types for member in every)
    return merged(every) if len(every) > MANY_KEYS and alike * 10 >= len(every) * 9 else None


def _members(schema: Schema) -> str:
    is_map = _value_of_map(schema) is not None
    said: list[str] = []
    length = 0
    for key, member in schema.members.items():
        name = shown(key, characters=_SHOWN_KEY_CHARACTERS) or "''"
        said.append(name if is_map else f"{name} {_member_text(member, of=schema)}")
        length += len(said[-1]) + 2
        if length > LINE_CHARACTERS:
            break
    rest = schema.most.get(OBJECT, 0) - len(said)
    return ", ".join(said) + (f" and {rest:,} more keys" if rest > 0 and schema.types[OBJECT] == 1 else "")


def _member_text(schema: Schema, *, of: Schema) -> str:
    types = set(schema.types)
    is_nested = bool(types & {OBJECT, ARRAY})
    share = f", in {schema.count:,} of {of.types[OBJECT]:,}" if schema.count < of.types[OBJECT] else ""
    example = shown(schema.example, characters=VALUE_CHARACTERS)
    if schema.count == 1 and not share and not is_nested:
        return f'"{example}"' if STRING in types else example
    if is_nested or types <= {NULL} or not schema.example:
        values = _item_values(schema)
    elif schema.count == 1:
        values = f" {example}"
    elif len(schema.values) <= FEW_VALUES and len(schema.values) * 2 <= schema.count:
        values = f": {_few(schema)}"
    elif types <= {INTEGER, NUMBER} and schema.lowest is not None and schema.highest is not None:
        values = f" {schema.lowest:.12g}–{schema.highest:.12g}"
    else:
        values = f" as {shown(schema.example, characters=VALUE_CHARACTERS // 2)}"
    return f"({_kind(schema)}{values}{share})"


def _item_values(schema: Schema) -> str:
    items = schema.items
    if items is None or _holds_more(items) or not 0 < len(items.values) <= FEW_VALUES:
        return ""
    return ": " + (_few(items) if items.count > len(items.values) else ", ".join(map(_short, items.values)))


def _kind(schema: Schema) -> str:
    """Return ``string``, ``array of 3–20 objects or null``."""
    kinds = []
    for type_, _ in schema.types.most_common():
        if type_ not in schema.most:
            kinds.append(type_)
            continue
        fewest, most = schema.fewest[type_], schema.most[type_]
        things = "keys" if type_ == OBJECT else _items(schema.items)
        one = things.replace("items", "item").removesuffix("s")
        if fewest != most:
            kinds.append(f"{type_} of {fewest:,}–{most:,} {things}")
        else:
            kinds.append(f"{type_} of {counted(most, one, things)}" if most else f"empty {type_}")
    return " or ".join(kinds) or "nothing"


def _items(items: Schema | None) -> str:
    if items is None or len(items.types) != 1:
        return "items" if items is None else f"items ({' or '.join(items.types)})"
    type_ = next(iter(items.types))
    return _PLURALS.get(type_, f"{type_}s")


def _few(schema: Schema) -> str:
    return ", ".join(f"{_short(text)} ×{count:,}" for text, count in schema.values.most_common())


def _short(text: str) -> str:
    return shown(text, characters=24) or "(empty)"
