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

from mnesis_core.errors import InvalidTemplate, Number, Phrase, Values, gettext_noop

MOST_WORK = 20_000_000  # A character costs 1, a value or a loop's step ``STEP``. A second or two at most.
STEP = 8
WORK_NAME = "the work so far"  # The context's name of the rendering's count; no template can write such a name.
SLICE = "[:]"  # ``value[1:3]`` becomes a filter of this name, so that it is counted.
_LOOP = "{% for %}"  # What is looped over passes through a filter of this name, which says what does not fit.
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
_KINDS_NAMED = 8  # of the values that do not fit
_LONGEST_NAME = 40
_WRITTEN = {
    "Assign": "{% set %}",
    "AssignBlock": "{% set %}",
    "Call": "f()",
    "CallBlock": "{% call %}",
    "Concat": "~",
    "FilterBlock": "{% filter %}",
    "FromImport": "{% from %}",
    "Pow": "**",
    "Scope": "{% autoescape %}",
}
"""How a template writes what it may not do, by the name in Jinja's syntax tree. Of the rest the name is the tag's."""
_LOOP_WORDS = frozenset({"index", "index0", "revindex", "revindex0", "first", "last", "length"})
_MISFITS = (TypeError, ValueError, ArithmeticError, LookupError, AttributeError)
_FAILURES = (TemplateError, *_MISFITS, RecursionError)  # A rendering may end with any of these.
_KINDS: dict[type, Phrase] = {
    str: Phrase(gettext_noop("a text")),
    list: Phrase(gettext_noop("a list")),
    tuple: Phrase(gettext_noop("a list")),
    dict: Phrase(gettext_noop("an object")),
    bool: Phrase(gettext_noop("true or false")),
    int: Phrase(gettext_noop("a number")),
    float: Phrase(gettext_noop("a number")),
    type(None): Phrase(gettext_noop("null")),
    LoopContext: Phrase(gettext_noop("the loop")),
}


def _kind(value: Any) -> Phrase:
    return _KINDS.get(type(value)) or Phrase(gettext_noop("this"))


def _failure(text: str, **values: str | Number) -> TemplateRuntimeError:
    return TemplateRuntimeError(Phrase(text, values))


@dataclass(slots=True)
class Work:
    left: int = MOST_WORK

    def charge(self, units: int) -> None:
        """:raises TemplateRuntimeError: it is too much"""
        self.left -= units
        if self.left < 0:
            raise _failure(gettext_noop("it takes too long: loop over less, or use fewer filters"))

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
        raise _failure(gettext_noop("%(kind)s cannot be printed"), kind=_kind(value)) from None


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


def _counted(name: str, word: Callable[..., Any]) -> Callable[..., Any]:
    @pass_context
    def counted(context: Context, value: Any, *arguments: Any, **named: Any) -> Any:
        work = context.resolve(WORK_NAME)
        work.weigh(value, *arguments, *named.values())
        try:
            result = word(value, *arguments, **named)
        except _MISFITS:
            kinds = reduce(_listed, map(_kind, (value, *arguments, *named.values())[:_KINDS_NAMED]))
            text = gettext_noop("'%(name)s' does not work with these values (%(kinds)s)")
            raise _failure(text, name=name, kinds=kinds) from None
        if isinstance(result, str):
            work.charge(len(result))
        return result

    return counted


def _listed(one: Phrase, other: Phrase) -> Phrase:
    return Phrase("%(one)s, %(other)s", {"one": one, "other": other})


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise _failure(gettext_noop("this filter needs an object, and this is %(kind)s"), kind=_kind(value))
    return value


def _sequence(value: Any) -> list[Any]:
    if not isinstance(value, list | tuple | dict | str):
        raise _failure(gettext_noop("this filter needs a list, and this is %(kind)s"), kind=_kind(value))
    return list(value)


def _looped(value: Any) -> Any:
    if isinstance(value, list | tuple | dict | str | Undefined):
        return value
    raise _failure(gettext_noop("a loop needs a list, and this is %(kind)s"), kind=_kind(value))


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
        raise _failure(gettext_noop("a text becomes too long"))


def _truncate(value: Any, length: int = 255, end: str = "…") -> str:
    text = shown(value)
    return text if len(text) <= length else text[: max(0, length - len(end))] + shown(end)


def _default(value: Any, instead: Any = "", boolean: bool = False) -> Any:
    return instead if isinstance(value, Undefined) or (boolean and not value) else value


def _sort(value: Any, reverse: bool = False, attribute: str = "") -> list[Any]:
    def key(held: Any) -> Any:
        return _mapping(held).get(attribute) if attribute else held

    try:
        return sorted(_sequence(value), key=key, reverse=bool(reverse))
    except TypeError:
        raise _failure(gettext_noop("values of different kinds cannot be sorted")) from None


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
FILTERS = {name: _counted(name, word) for name, word in _FILTERS.items()}


def _holds(value: Any, whole: Iterable[Any]) -> bool:
    return (value if not isinstance(whole, str) else shown(value)) in whole


# By their names in Jinja's syntax tree.
COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": _counted("==", operator.eq),
    "ne": _counted("!=", operator.ne),
    "lt": _counted("<", operator.lt),
    "lteq": _counted("<=", operator.le),
    "gt": _counted(">", operator.gt),
    "gteq": _counted(">=", operator.ge),
    "in": _counted("in", _holds),
    "notin": _counted("not in", lambda value, whole: not _holds(value, whole)),
}
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


def _quoted(name: Any) -> str:
    return repr(name[:_LONGEST_NAME] if isinstance(name, str) else name)


class _Missing(StrictUndefined):
    """A missing key: it cannot be printed, and counts as false."""

    @property
    def _undefined_message(self) -> str:
        name, whole = _quoted(self._undefined_name), self._undefined_obj
        if not isinstance(whole, dict):
            return Phrase(gettext_noop("%(kind)s has no %(name)s"), {"kind": _kind(whole), "name": name})
        if not whole:
            return Phrase(gettext_noop("there is no %(name)s in an empty object"), {"name": name})
        keys = ", ".join(map(_quoted, islice(whole, _KEYS_NAMED))) + (", …" if len(whole) > _KEYS_NAMED else "")
        return Phrase(gettext_noop("there is no %(name)s, only %(keys)s"), {"name": name, "keys": keys})

    def __bool__(self) -> bool:  # type: ignore[override]
        return False


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = frozenset(_SUMS)
    intercepted_unops = frozenset("+-")

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
            raise _failure(gettext_noop("%(operator)s needs two numbers"), operator=operator)
        if operator in "//%" and not right:
            raise _failure(gettext_noop("division by zero"))
        return _SUMS[operator](left, right)

    def call_unop(self, context: Any, operator: str, arg: Any) -> Any:
        if not _is_number(arg):
            raise _failure(gettext_noop("%(operator)s needs a number"), operator=operator)
        return super().call_unop(context, operator, arg)


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
                    text = gettext_noop("the prompt becomes longer than %(most)s characters")
                    raise _failure(text, most=LONGEST_PROMPT)
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
        placed: Values = {"problem": _message(error), "line": error.lineno}
        raise _invalid(Phrase(gettext_noop("%(problem)s (line %(line)s)"), placed)) from None
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
            raise _refusal(node, gettext_noop("the template is too large or nested too deeply"))
        waiting += [(child, depth + 1, loops) for child in node.iter_child_nodes()]
    for node in tree.find_all(nodes.Node):
        _refuse_node(node)
    unknown = find_undeclared_variables(tree)
    if others := sorted(unknown - {"item"}):
        raise _refusal(tree, gettext_noop("there is no %(name)s here, only 'item'"), name=_quoted(others[0]))
    if not unknown:
        raise _refusal(tree, gettext_noop("the template must use 'item', such as {{ item }} or {{ item.text }}"))


def _refuse_node(node: nodes.Node) -> None:
    if not isinstance(node, _ALLOWED):
        written = _WRITTEN.get(type(node).__name__, f"{{% {type(node).__name__.lower()} %}}")
        text = gettext_noop(
            "a template prints, chooses and loops ({{ … }}, {%% if %%}, {%% for %%}) and has no %(written)s"
        )
        if isinstance(node, nodes.Call):
            text = gettext_noop("a template has no %(written)s; for the entries of an object write item|items")
        raise _refusal(node, text, written=written)
    if isinstance(node, nodes.For) and (node.test or node.recursive):
        raise _refusal(node, gettext_noop("a loop takes no condition: put an {% if %} into it"))
    if isinstance(node, nodes.Filter | nodes.Test):
        known, text = TESTS, gettext_noop("there is no test %(name)s; there are: %(names)s")
        if isinstance(node, nodes.Filter):
            known, text = FILTERS, gettext_noop("there is no filter %(name)s; there are: %(names)s")
        if node.name not in known:
            names = ", ".join(sorted(filter(str.isidentifier, known)))
            raise _refusal(node, text, name=_quoted(node.name), names=names)
        if node.dyn_args or node.dyn_kwargs:
            text = gettext_noop("the arguments of %(name)s must be written one by one")
            raise _refusal(node, text, name=_quoted(node.name))


def _refusal(node: nodes.Node, text: str, **values: str | Number) -> TemplateSyntaxError:
    return TemplateSyntaxError(Phrase(text, values), node.lineno or 1)


class _Counting(NodeTransformer):
    """Adds an empty output to each loop's step, and turns comparisons and slices into tests and filters, to count them.

    What a loop is over passes through a filter as well, which refuses what is no list.
    """

    def visit_For(self, node: nodes.For) -> nodes.Node:
        changed = cast(nodes.For, self.generic_visit(node))
        changed.iter = nodes.Filter(changed.iter, _LOOP, [], [], None, None, lineno=node.lineno)
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
        return Phrase(gettext_noop("it is nested too deeply"))
    said = error.message if isinstance(error, TemplateError) else str(error)
    return said if isinstance(said, Phrase) else (said or type(error).__name__).rstrip(".")[:500]


# Nothing is worked out while a template is read (optimized): what it says is counted only when it is rendered.
_ENVIRONMENT = _Environment(
    optimized=False, undefined=_Missing, finalize=shown, autoescape=False, keep_trailing_newline=True, cache_size=0
)
_ENVIRONMENT.filters = FILTERS | {_LOOP: _looped}
_ENVIRONMENT.tests = dict(TESTS)
_ENVIRONMENT.globals = {}
