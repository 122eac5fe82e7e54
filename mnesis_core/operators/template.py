"""The prompt template of an operator: the part of Jinja that prints, chooses and loops, bounded in time and size.

A template is anybody's, and it is rendered once for each line of a file. So it is not run in a sandbox that must know
every way out: what it may do is named (``_ALLOWED``, ``template_words``), everything else is refused when it is read. It
has no functions, no variables of its own, no attributes of Python's; each loop's step and each filter is counted.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache, reduce
from typing import Any, cast

from jinja2 import StrictUndefined, Template, TemplateError, TemplateRuntimeError, TemplateSyntaxError, Undefined, nodes
from jinja2.meta import find_undeclared_variables
from jinja2.runtime import LoopContext
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from mnesis_core.errors import InvalidTemplate
from mnesis_core.operators.template_words import FILTERS, SLICE, STEP, SUM_SIGNS, TESTS, WORK_NAME, Work, shown, sum_of

LONGEST_TEMPLATE = 200_000
"""Characters."""
LONGEST_PROMPT = 2_000_000
"""Characters of one rendering: more than any model reads."""
_MOST_NODES = 2_000
_DEEPEST = 40
"""Tags and expressions inside each other: Python's own compiler is asked to read what Jinja makes of them."""
_LOOPS_IN_LOOPS = 4
_ALLOWED = (
    *(nodes.Template, nodes.Output, nodes.TemplateData, nodes.If, nodes.For, nodes.CondExpr),
    *(nodes.Name, nodes.Const, nodes.List, nodes.Tuple, nodes.Dict, nodes.Pair, nodes.Keyword),
    *(nodes.Getattr, nodes.Getitem, nodes.Slice, nodes.Filter, nodes.Test, nodes.Compare, nodes.Operand),
    *(nodes.And, nodes.Or, nodes.Not, nodes.Neg, nodes.Pos),
    *(nodes.Add, nodes.Sub, nodes.Mul, nodes.Div, nodes.FloorDiv, nodes.Mod),
)
_LOOP_WORDS = frozenset({"index", "index0", "revindex", "revindex0", "first", "last", "length"})
_FAILURES = (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, AttributeError, RecursionError)
"""What a rendering can end with: the values are other people's, and a template may add a text to a number."""


class _Missing(StrictUndefined):
    """A key that is not there: it cannot be printed, and counts as false."""

    def __bool__(self) -> bool:  # type: ignore[override]
        return False


class _Environment(ImmutableSandboxedEnvironment):
    intercepted_binops = SUM_SIGNS

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
        return sum_of(operator, left, right)


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptTemplate:
    """A template that was read and found good."""

    text: str
    _compiled: Template

    def render(self, item: Any) -> str:
        """The prompt of one item.

        :param item: any JSON value
        :raises InvalidTemplate: it does not fit this item, takes too long or becomes too long; the message says which.
        """
        work, pieces, size = Work(), [], 0
        try:
            for piece in self._compiled.generate({"item": item, WORK_NAME: work}):
                work.charge(STEP)
                pieces.append(piece)
                size += len(piece)
                if size > LONGEST_PROMPT:
                    raise TemplateRuntimeError(f"the prompt becomes longer than {LONGEST_PROMPT:,} characters")
        except _FAILURES as error:
            raise InvalidTemplate(f"The template cannot be rendered for this item: {_said(error)}.") from None
        return "".join(pieces)


@lru_cache(maxsize=64)
def compile_template(text: str) -> PromptTemplate:
    """Read a template.

    :raises InvalidTemplate: it is no Jinja, uses what templates may not, or does not use ``item``; the message says where.
    """
    if len(text) > LONGEST_TEMPLATE:
        raise InvalidTemplate(f"The template is longer than {LONGEST_TEMPLATE:,} characters.", field="template")
    try:
        tree = _ENVIRONMENT.parse(text)
        _refuse(tree)
        compiled = _ENVIRONMENT.from_string(_Counting().visit(tree))
    except TemplateSyntaxError as error:
        raise _invalid(f"{_said(error)} (line {error.lineno})") from None
    except (*_FAILURES, SyntaxError, MemoryError) as error:
        raise _invalid(_said(error)) from None
    return PromptTemplate(text=text, _compiled=compiled)


def _refuse(tree: nodes.Template) -> None:
    _refuse_size(tree)
    for node in tree.find_all(nodes.Node):
        if not isinstance(node, _ALLOWED):
            raise _not_allowed(node)
        if isinstance(node, nodes.For) and (node.test or node.recursive):
            raise TemplateSyntaxError("a loop takes no condition: put an {% if %} into it", node.lineno)
        if isinstance(node, nodes.Filter | nodes.Test):
            _refuse_word(node)
    unknown = find_undeclared_variables(tree)
    if others := sorted(unknown - {"item"}):
        raise TemplateSyntaxError(f"there is no {others[0]!r} here, only 'item'", 1)
    if not unknown:
        raise TemplateSyntaxError("the template must use 'item', such as {{ item }} or {{ item.text }}", 1)


def _refuse_size(tree: nodes.Template) -> None:
    """Without recursion: what is too deep must not be walked by it."""
    waiting: list[tuple[nodes.Node, int, int]] = [(tree, 0, 0)]
    count = 0
    while waiting:
        node, depth, loops = waiting.pop()
        count, loops = count + 1, loops + isinstance(node, nodes.For)
        if count > _MOST_NODES or depth > _DEEPEST or loops > _LOOPS_IN_LOOPS:
            raise TemplateSyntaxError("the template is too large or nested too deeply", node.lineno or 1)
        waiting += [(child, depth + 1, loops) for child in node.iter_child_nodes()]


def _refuse_word(node: nodes.Filter | nodes.Test) -> None:
    known, kind = (FILTERS, "filter") if isinstance(node, nodes.Filter) else (TESTS, "test")
    if node.name not in known or node.dyn_args or node.dyn_kwargs:
        names = ", ".join(sorted(name for name in known if name != SLICE))
        raise TemplateSyntaxError(f"there is no {kind} {node.name!r}; there are: {names}", node.lineno)


def _not_allowed(node: nodes.Node) -> TemplateSyntaxError:
    advice = "; for the entries of an object write item|items" if isinstance(node, nodes.Call) else ""
    return TemplateSyntaxError(
        f"a template may print, choose and loop ({{{{ … }}}}, {{% if %}}, {{% for %}}); "
        f"{type(node).__name__} is not among what it may do{advice}",
        node.lineno or 1,
    )


class _Counting(NodeTransformer):
    """The same template with a sign of life in each step of a loop, and each comparison and slice by way of a filter."""

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
    return InvalidTemplate(f"The template cannot be used: {problem}.", field="template")


def _said(error: BaseException) -> str:
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
