"""The prompt template of an operator: the part of Jinja that prints, chooses and loops, bounded in time and size.

Anyone may write a template, and it is rendered once for each line of a file. So it does not run in a sandbox that must
know every way out: what it may use is listed (``_ALLOWED``, ``FILTERS``, ``TESTS``), and everything else is refused when it is
compiled. It has no functions, variables or Python attributes (``item.items`` is the key of that name), and each loop's step,
filter and comparison is counted.
"""

from __future__ import annotations

import json
import operator
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import lru_cache, reduce
from itertools import islice
from typing import Any, cast

from jinja2 import (
    StrictUndefined,
    Template,
    TemplateError,
    TemplateRuntimeError,
    TemplateSyntaxError,
    Undefined,
    nodes,
    pass_context,
)
from jinja2.meta import find_undeclared_variables
from jinja2.runtime import Context, LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from mnesis_core.errors import InvalidTemplate, gettext_noop

MOST_WORK = 20_000_000  # A character costs 1, a value or a loop's step ``STEP``. A second or two at most.
STEP = 8
WORK_NAME = "the work so far"  # The context's name of the rendering's count; no template can write such a name.
SLICE = "a slice"  # ``value[1:3]`` becomes a filter of this name, so that it is counted.
LONGEST_TEMPLATE = 200_000
LONGEST_PROMPT = 2_000_000  # Characters of one rendering: more than any model reads.
_MOST_NODES = 2_000
_DEEPEST = 40  # Jinja's output for nested tags and expressions is compiled by Python's own compiler.
_LOOPS_IN_LOOPS = 4
_ALLOWED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.CondExpr),
    *(nodes.Name, nodes.Const, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Keyword),
    *(nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Filter, nodes.Test, nodes.Compare, nodes.Operand),
    *(nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos),
    *(nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod),
)
_KEYS_NAMED = 8  # of the object that has no such key
_LONGEST_KEY = 40
_LOOP_WORDS = frozenset({"index", "index0", "revindex", "revindex0", "first", "last", "length"})
# A rendering may end with any of these: a template may add a text to a number.
_FAILURES = (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)


@dataclass(slots=True)
class Work:
    left: int = MOST_WORK

    def charge(self, units: int) -> None:
        """:raises TemplateRuntimeError: it is too much"""
        self.left -= units
        if self.left < 0:
            raise TemplateRuntimeError("it takes too long: loop over less, or use fewer filters")

    def weigh(self, *values: Any) -> None:
        """:raises TemplateRuntimeError: it is too much"""
        waiting = list(values)
        while waiting:
            value = waiting.pop()
            self.charge(STEP + (len(value) if isinstance(value, str) else 0))
            if isinstance(value, dict):
                waiting += [*value, *value.values()]
            elif isinstance(value, list | tuple):
                waiting += value


def shown(value: Any) -> str:
    """Return a value as printed in a prompt: a string as it is, everything else as JSON.

    :raises TemplateRuntimeError: it is not JSON, such as ``loop`` itself
    """
    if isinstance(value, str | Undefined):
        return str(value)
    try:
        return json.dumps(value, ensure_ascii=False)
    except TypeError:
        raise TemplateRuntimeError(f"{type(value).__name__} is nothing that can be printed") from None


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


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TemplateRuntimeError("this filter needs an object")
    return value


def _sequence(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple | dict | str):
        raise TemplateRuntimeError("this filter needs a list")
    return list(value)


def _join(value: Any, between: str = "") -> str:
    pieces, sign = [shown(piece) for piece in _sequence(value)], shown(between)
    _refuse_long(sum(map(len, pieces)) + len(sign) * len(pieces))
    return sign.join(pieces)


def _replace(value: Any, old: str, new: str) -> str:
    text, sought, put = shown(value), shown(old), shown(new)
    _refuse_long(len(text) + text.count(sought) * len(put))
    return text.replace(sought, put)


def _refuse_long(characters: int) -> None:
    if characters > MOST_WORK:
        raise TemplateRuntimeError("a text becomes too long")


def _truncate(value: Any, length: int = 255, end: str = "…") -> str:
    text = shown(value)
    return text if len(text) <= length else text[: max(0, length - len(end))] + shown(end)


def _default(value: Any, instead: Any = "", boolean: bool = False) -> Any:
    return instead if isinstance(value, Undefined) or (boolean and not value) else value


def _sort(value: Any, reverse: bool = False, attribute: str = "") -> list[Any]:
    def key(held: Any) -> Any:
        return _mapping(held).get(attribute) if attribute else held

    return sorted(_sequence(value), key=key, reverse=bool(reverse))


def _number(value: Any, convert: Callable[[Any], Any], instead: Any) -> Any:
    try:
        return convert(value)
    except (TypeError, ValueError, OverflowError):
        return instead


_FILTERS: dict[str, Callable[..., Any]] = {
    "capitalize": lambda value: shown(value).capitalize(),
    "count": lambda value: len(_sequence(value)),
    "d": _default,
    "default": _default,
    "first": lambda value: next(iter(_sequence(value)), ""),
    "float": lambda value, instead=0.0: _number(value, float, instead),
    "int": lambda value, instead=0: _number(value, int, instead),
    "items": lambda value: [[key, held] for key, held in _mapping(value).items()],
    "join": _join,
    "last": lambda value: next(reversed(_sequence(value)), ""),
    "length": lambda value: len(_sequence(value)),
    "list": _sequence,
    "lower": lambda value: shown(value).lower(),
    "map": lambda value, attribute: [_mapping(held).get(attribute) for held in _sequence(value)],
    "replace": _replace,
    "reverse": lambda value: value[::-1] if isinstance(value, str) else _sequence(value)[::-1],
    "sort": _sort,
    "string": shown,
    "title": lambda value: shown(value).title(),
    "tojson": lambda value: json.dumps(value, ensure_ascii=False),
    "trim": lambda value: shown(value).strip(),
    "truncate": _truncate,
    "unique": lambda value: [*{json.dumps(one, sort_keys=True): one for one in _sequence(value)[::-1]}.values()][::-1],
    "upper": lambda value: shown(value).upper(),
    SLICE: lambda value, *bounds: (value if isinstance(value, str) else _sequence(value))[slice(*bounds)],
}
FILTERS = {name: _counted(word) for name, word in _FILTERS.items()}


def _holds(value: Any, whole: Iterable[Any]) -> bool:
    return (value if not isinstance(whole, str) else shown(value)) in whole


# By their names in Jinja's syntax tree.
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "lteq": operator.le,
    "gt": operator.gt,
    "gteq": operator.ge,
    "in": _holds,
    "notin": lambda value, whole: not _holds(value, whole),
}
COMPARISONS = {name: _counted(word) for name, word in _COMPARISONS.items()}
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


_KINDS = {str: "a text", list: "a list", bool: "true or false", int: "a number", float: "a number", type(None): "null"}


class _Missing(StrictUndefined):
    """A missing key: it cannot be printed, and counts as false."""

    @property
    def _undefined_message(self) -> str:
        name, whole = self._undefined_name, self._undefined_obj
        if not isinstance(whole, dict):
            return f"{_KINDS.get(type(whole), 'this')} has no {name!r}"
        if not whole:
            return f"there is no {name!r} in an empty object"
        keys = ", ".join(repr(key[:_LONGEST_KEY]) for key in islice(whole, _KEYS_NAMED))
        return f"there is no {name!r}, only {keys}{', …' if len(whole) > _KEYS_NAMED else ''}"

    def __bool__(self) -> bool:  # type: ignore[override]
        return False


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(_SUMS)

    def getattr(self, obj: Any, attribute: str) -> Any:
        if isinstance(obj, LoopContext) and attribute in _LOOP_WORDS:
            return getattr(obj, attribute)
        return self.getitem(obj, attribute)

    def getitem(self, obj: Any, argument: Any) -> Any:
        if isinstance(obj, Undefined):
            return str(obj)  # raises, and says which key was missing
        try:
            if isinstance(obj, dict | list | str) and isinstance(argument, str | int):
                return obj[argument]  # type: ignore[index]
        except (LookupError, TypeError):
            pass
        return self.undefined(obj=obj, name=argument)

    def call_binop(self, context: Any, operator: str, left: Any, right: Any) -> Any:
        if not (_is_number(left) and _is_number(right)):
            raise TemplateRuntimeError(f"{operator} needs two numbers")
        return _SUMS[operator](left, right)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplate:
    text: str
    _compiled: Template

    def render(self, item: Any) -> str:
        """:raises InvalidTemplate: the template does not fit this item, or takes too long or becomes too long"""
        work, pieces, size = Work(), [], 0
        try:
            for piece in self._compiled.generate({"item": item, WORK_NAME: work}):
                work.charge(STEP)
                pieces.append(piece)
                size += len(piece)
                if size > LONGEST_PROMPT:
                    raise TemplateRuntimeError(f"the prompt becomes longer than {LONGEST_PROMPT:,} characters")
        except _FAILURES as error:
            raise InvalidTemplate(
                gettext_noop("The template cannot be rendered for this item: %(reason)s."),
                {"reason": _message(error)},
            ) from None
        return "".join(pieces)


@lru_cache(maxsize=64)
def compile_template(text: str) -> PromptTemplate:
    """:raises InvalidTemplate: it is not Jinja, uses what templates may not, or does not use ``item``; the message names the line"""
    if len(text) > LONGEST_TEMPLATE:
        raise InvalidTemplate(
            gettext_noop("The template is longer than %(most)s characters."),
            {"most": LONGEST_TEMPLATE},
            field="template",
        )
    try:
        tree = _ENVIRONMENT.parse(text)
        _refuse(tree)
        compiled = _ENVIRONMENT.from_string(_Counting().visit(tree))
    except TemplateSyntaxError as error:
        raise _invalid(f"{_message(error)} (line {error.lineno})") from None
    except (*_FAILURES, SyntaxError, MemoryError) as error:
        raise _invalid(_message(error)) from None
    return PromptTemplate(text=text, _compiled=compiled)


def _refuse(tree: nodes.Template) -> None:
    waiting: list[tuple[nodes.Node, int, int]] = [(tree, 0, 0)]  # No recursion: the tree may be too deep for it.
    count = 0
    while waiting:
        node, depth, loops = waiting.pop()
        count, loops = count + 1, loops + isinstance(node, nodes.For)
        if count > _MOST_NODES or depth > _DEEPEST or loops > _LOOPS_IN_LOOPS:
            raise TemplateSyntaxError("the template is too large or nested too deeply", node.lineno or 1)
        waiting += [(child, depth + 1, loops) for child in node.iter_child_nodes()]
    for node in tree.find_all(nodes.Node):
        if not isinstance(node, _ALLOWED):
            advice = "; for the entries of an object write item|items" if isinstance(node, nodes.Call) else ""
            raise TemplateSyntaxError(
                f"a template may print, choose and loop ({{{{ … }}}}, {{% if %}}, {{% for %}}); "
                f"{type(node).__name__} is not among what it may do{advice}",
                node.lineno or 1,
            )
        if isinstance(node, nodes.For) and (node.test or node.recursive):
            raise TemplateSyntaxError("a loop takes no condition: put an {% if %} into it", node.lineno)
        if isinstance(node, nodes.Filter | nodes.Test):
            known, kind = (FILTERS, "filter") if isinstance(node, nodes.Filter) else (TESTS, "test")
            if node.name not in known or node.dyn_args or node.dyn_kwargs:
                names = ", ".join(sorted(name for name in known if name != SLICE))
                raise TemplateSyntaxError(f"there is no {kind} {node.name!r}; there are: {names}", node.lineno)
    unknown = find_undeclared_variables(tree)
    if others := sorted(unknown - {"item"}):
        raise TemplateSyntaxError(f"there is no {others[0]!r} here, only 'item'", 1)
    if not unknown:
        raise TemplateSyntaxError("the template must use 'item', such as {{ item }} or {{ item.text }}", 1)


class _Counting(NodeTransformer):
    """Adds an empty output to each loop's step, and turns comparisons and slices into tests and filters, to count them."""

    def visit_For(self, node: nodes.For) -> nodes.Node:
        changed = cast(nodes.For, self.generic_visit(node))
        changed.body.insert(0, nodes.Output([nodes.TemplateData("")], lineno=node.lineno))
        return changed

    def visit_Compare(self, node: nodes.Compare) -> nodes.Node:
        changed = cast(nodes.Compare, self.generic_visit(node))
        lefts = [changed.expr, *(operand.expr for operand in changed.ops)]
        tests: list[nodes.Expr] = [
            nodes.Test(left, operand.op, [operand.expr], [], None, None, lineno=node.lineno)
            for left, operand in zip(lefts, changed.ops, strict=False)
        ]
        return reduce(lambda one, other: nodes.And(one, other, lineno=node.lineno), tests)

    def visit_Getitem(self, node: nodes.Getitem) -> nodes.Node:
        changed = cast(nodes.Getitem, self.generic_visit(node))
        if not isinstance(changed.arg, nodes.Slice):
            return changed
        bounds: list[nodes.Expr] = [
            bound or nodes.Const(None, lineno=node.lineno)
            for bound in (changed.arg.start, changed.arg.stop, changed.arg.step)
        ]
        return nodes.Filter(changed.node, SLICE, bounds, [], None, None, lineno=node.lineno)


def _invalid(problem: str) -> InvalidTemplate:
    return InvalidTemplate(
        gettext_noop("The template cannot be used: %(reason)s."), {"reason": problem}, field="template"
    )


def _message(error: BaseException) -> str:
    if isinstance(error, RecursionError | MemoryError):
        return "it is nested too deeply"
    return (getattr(error, "message", None) or str(error) or type(error).__name__).rstrip(".")[:500]


# Nothing is worked out while a template is read (optimized): what it says is counted only when it is rendered.
_ENVIRONMENT = _Environment(
    optimized=False, undefined=_Missing, finalize=shown, autoescape=False, keep_trailing_newline=True, cache_size=0
)
_ENVIRONMENT.filters = dict(FILTERS)
_ENVIRONMENT.tests = dict(TESTS)
_ENVIRONMENT.globals = {}
