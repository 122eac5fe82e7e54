"""What a template may do with values: filters, tests and sums, each counted, so that a rendering is bounded.

Values are JSON and nothing else. No Python attribute is ever looked up, so ``item.items`` is the key of that name.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from jinja2 import TemplateRuntimeError, Undefined, pass_context
from jinja2.runtime import Context

MOST_WORK = 20_000_000
"""Of one rendering: a character costs 1, a value or a step of a loop ``STEP``. A second or two at the most."""
STEP = 8
WORK_NAME = "the work so far"
"""Under it a rendering's count stands in its context; no template can write such a name."""


@dataclass(slots=True)
class Work:
    """What one rendering may still do."""

    left: int = MOST_WORK

    def charge(self, units: int) -> None:
        """Count work.

        :raises TemplateRuntimeError: it is too much.
        """
        self.left -= units
        if self.left < 0:
            raise TemplateRuntimeError("it takes too long: loop over less, or use fewer filters")

    def weigh(self, *values: Any) -> None:
        """Count a look at everything in the values, without recursion.

        :raises TemplateRuntimeError: it is too much.
        """
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            self.charge(STEP + (len(value) if isinstance(value, str) else 0))
            if isinstance(value, dict):
                waiting += [*value, *value.values()]
            elif isinstance(value, list | tuple):
                waiting += value


def shown(value: Any) -> str:
    """A value in a prompt: a string as it is, everything else as JSON.

    :raises TemplateRuntimeError: it is no JSON, such as ``loop`` itself.
    """
    if isinstance(value, str | Undefined):
        return str(value)
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        raise TemplateRuntimeError(f"{type(value).__name__} is nothing that can be printed") from None


def sum_of(sign: str, left: Any, right: Any) -> Any:
    """A sum of numbers: nothing else can be added or multiplied.

    :raises TemplateRuntimeError: one of them is no number.
    """
    if not (_is_number(left) and _is_number(right)):
        raise TemplateRuntimeError(f"{sign} needs two numbers")
    return _SUMS[sign](left, right)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_SUMS: dict[str, Callable[[Any, Any], Any]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
SUM_SIGNS = frozenset(_SUMS)


def _counted(word: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def counted(context: Context, value: Any, *arguments: Any, **named: Any) -> Any:
        work = context.resolve(WORK_NAME)
        work.weigh(value, *arguments, *named.values())
        result = word(value, *arguments, **named)
        if isinstance(result, str):
            work.charge(len(result))
        return result

    return counted


def _items(value: dict[str, Any]) -> list[list[Any]]:
    return [[key, held] for key, held in _mapping(value).items()]


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TemplateRuntimeError("this filter needs an object")
    return value


def _sequence(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple | dict | str):
        raise TemplateRuntimeError("this filter needs a list")
    return list(value)


def _text(value: Any) -> str:
    return shown(value)


def _join(value: Any, between: str = "") -> str:
    pieces, sign = [_text(piece) for piece in _sequence(value)], _text(between)
    _refuse_long(sum(map(len, pieces)) + len(sign) * len(pieces))
    return sign.join(pieces)


def _replace(value: Any, old: str, new: str) -> str:
    text, sought, put = _text(value), _text(old), _text(new)
    _refuse_long(len(text) + text.count(sought) * len(put))
    return text.replace(sought, put)


def _refuse_long(characters: int) -> None:
    if characters > MOST_WORK:
        raise TemplateRuntimeError("a text becomes too long")


def _truncate(value: Any, length: int = 255, end: str = "…") -> str:
    text = _text(value)
    return text if len(text) <= length else text[: max(0, length - len(end))] + _text(end)


def _default(value: Any, instead: Any = "", boolean: bool = False) -> Any:
    return instead if isinstance(value, Undefined) or (boolean and not value) else value


def _sort(value: Any, reverse: bool = False, attribute: str = "") -> list[Any]:
    def key(held: Any) -> Any:
        return _mapping(held).get(attribute) if attribute else held

    return sorted(_sequence(value), key=key, reverse=bool(reverse))


def _unique(value: Any) -> list[Any]:
    return list({json.dumps(held, sort_keys=True): held for held in reversed(_sequence(value))}.values())[::-1]


def _number(value: Any, convert: Callable[[Any], Any], instead: Any) -> Any:
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError):
        return instead


def _slice(value: Any, start: int | None, stop: int | None, step: int | None) -> Any:
    return (value if isinstance(value, str) else _sequence(value))[start:stop:step]


def _map(value: Any, attribute: str) -> list[Any]:
    return [_mapping(held).get(attribute) for held in _sequence(value)]


def _counted_all(words: dict[str, Callable[..., Any]]) -> dict[str, Callable[..., Any]]:
    return {name: _counted(word) for name, word in words.items()}


SLICE = "a slice"
"""``value[1:3]`` becomes a filter of this name, so that it is counted."""
FILTERS = _counted_all(
    {
        "capitalize": lambda value: _text(value).capitalize(),
        "count": lambda value: len(_sequence(value)),
        "d": _default,
        "default": _default,
        "first": lambda value: next(iter(_sequence(value)), ""),
        "float": lambda value, instead=0.0: _number(value, float, instead),
        "int": lambda value, instead=0: _number(value, int, instead),
        "items": _items,
        "join": _join,
        "last": lambda value: next(reversed(_sequence(value)), ""),
        "length": lambda value: len(_sequence(value)),
        "list": _sequence,
        "lower": lambda value: _text(value).lower(),
        "map": _map,
        "replace": _replace,
        "reverse": lambda value: value[::-1] if isinstance(value, str) else _sequence(value)[::-1],
        "sort": _sort,
        "string": _text,
        "title": lambda value: _text(value).title(),
        "tojson": lambda value: json.dumps(value, ensure_ascii=False),
        "trim": lambda value: _text(value).strip(),
        "truncate": _truncate,
        "unique": _unique,
        "upper": lambda value: _text(value).upper(),
        SLICE: _slice,
    }
)


def _holds(value: Any, whole: Iterable[Any]) -> bool:
    return (value if not isinstance(whole, str) else _text(value)) in whole


COMPARISONS = _counted_all(
    {
        "eq": operator.eq,
        "ne": operator.ne,
        "lt": operator.lt,
        "lteq": operator.le,
        "gt": operator.gt,
        "gteq": operator.ge,
        "in": _holds,
        "notin": lambda value, whole: not _holds(value, whole),
    }
)
"""By the names that Jinja's syntax tree has for them."""
TESTS: dict[str, Callable[..., bool]] = {
    **COMPARISONS,
    "boolean": lambda value: isinstance(value, bool),
    "defined": lambda value: not isinstance(value, Undefined),
    "list": lambda value: isinstance(value, list),
    "mapping": lambda value: isinstance(value, dict),
    "none": lambda value: value is None,
    "number": _is_number,
    "sequence": lambda value: isinstance(value, list | str),
    "string": lambda value: isinstance(value, str),
    "undefined": lambda value: isinstance(value, Undefined),
}
