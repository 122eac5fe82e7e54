"""Tools that a model may call. Importing the package registers the built-in ones."""

from __future__ import annotations

import ast
import operator
from collections.abc import Callable

from django.utils.translation import gettext_noop

from agents_app.tools import memory  # noqa: F401
from agents_app.tools.registry import ToolContext, tool
from mnesis_core.errors import InvalidRequest, PermissionDenied, reason_of
from mnesis_core.turns.questions import Questions

Number = int | float
_BINARY: dict[type[ast.operator], Callable[[Number, Number], Number]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.FloorDiv: operator.floordiv,
    ast.Mod: operator.mod,
}
_LONGEST = 500


# Sums, done by Python instead of guessed by a model.


@tool(timeout_seconds=5, read_only=True)
def calculator(context: ToolContext, expression: str) -> str:
    """Compute an arithmetic expression with + - * / // % and parentheses, such as (3 + 4) * 12."""
    if len(expression) > _LONGEST:
        raise InvalidRequest(gettext_noop("the expression is longer than %(most)s characters"), {"most": str(_LONGEST)})
    try:
        value = _value(ast.parse(expression.strip(), mode="eval").body)
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise InvalidRequest(
            gettext_noop("%(expression)s is no arithmetic expression"), {"expression": repr(expression)}
        ) from error
    except (ZeroDivisionError, OverflowError) as error:
        raise InvalidRequest(
            gettext_noop("%(expression)s has no value: %(reason)s"),
            {"expression": repr(expression), "reason": reason_of(error)},
        ) from error
    # Fifteen digits are what a double holds; more would show the error of binary fractions.
    return f"{value:.15g}" if isinstance(value, float) else str(value)


# Questions to the user. The turn is suspended at such a call, and the answer is its result (``claim.answer_tools``).


@tool(timeout_seconds=None, read_only=True)
def ask_user(context: ToolContext, questions: Questions) -> str:
    """Ask the user one or more questions in a form, and wait for the answers.

    Offer options where likely answers are known; the user can always answer in other words, or not at all. Ask only what
    you can neither find out nor sensibly assume.
    """
    raise PermissionDenied(gettext_noop("No one can be asked here. Go on with what you know."))


def _value(node: ast.expr) -> Number:
    if isinstance(node, ast.Constant) and isinstance(node.value, int | float) and not isinstance(node.value, bool):
        return node.value
    if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
        return _BINARY[type(node.op)](_value(node.left), _value(node.right))
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
        return -_value(node.operand) if isinstance(node.op, ast.USub) else _value(node.operand)
    raise ValueError("not arithmetic")
