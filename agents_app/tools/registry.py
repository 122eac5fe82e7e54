"""The registry: a tool is a Python function with type hints, registered by one decorator.

@tool(timeout_seconds=5)
def word_count(context: ToolContext, text: str) -> str:
    \"\"\"Count the words of a text.\"\"\"
    return str(len(text.split()))
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, get_type_hints

from pydantic import BaseModel, ConfigDict, ValidationError, create_model

from mnesis_core.errors import InvalidRequest, ToolNotFoundError
from mnesis_core.llm import ToolSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolContext:
    """On whose behalf a tool runs: it sees this session and nothing else."""

    session_id: str
    owner_id: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Tool:
    """One registered tool."""

    spec: ToolSpec
    run: Callable[..., str]
    arguments: type[BaseModel]
    timeout_seconds: float

    def call(self, context: ToolContext, arguments: str) -> str:
        """Check the arguments (JSON) and run.

        :raises InvalidRequest: they are no JSON, or do not fit the schema; the message says where.
        """
        try:
            values = self.arguments.model_validate_json(arguments or "{}")
        except ValidationError as error:
            problems = "; ".join(f"{'.'.join(map(str, e['loc'])) or 'arguments'}: {e['msg']}" for e in error.errors())
            raise InvalidRequest(f"the arguments do not fit: {problems}") from None
        return self.run(context, **{name: getattr(values, name) for name in type(values).model_fields})


_TOOLS: dict[str, Tool] = {}


def tool(*, timeout_seconds: float = 60.0) -> Callable[[Callable[..., str]], Callable[..., str]]:
    """Register a function whose first parameter is the ``ToolContext``; its docstring tells the model what it does."""

    def register(function: Callable[..., str]) -> Callable[..., str]:
        hints = get_type_hints(function)
        parameters = list(inspect.signature(function).parameters.values())[1:]
        fields: dict[str, Any] = {
            parameter.name: (hints[parameter.name], ... if parameter.default is parameter.empty else parameter.default)
            for parameter in parameters
        }
        arguments = create_model(function.__name__, __config__=ConfigDict(extra="forbid"), **fields)
        schema = arguments.model_json_schema()
        schema.pop("title", None)
        spec = ToolSpec(name=function.__name__, description=inspect.getdoc(function) or "", parameters=schema)
        _TOOLS[function.__name__] = Tool(spec=spec, run=function, arguments=arguments, timeout_seconds=timeout_seconds)
        return function

    return register


def find_tool(name: str) -> Tool:
    """The tool of this name.

    :raises ToolNotFoundError: there is none.
    """
    if name not in _TOOLS:
        raise ToolNotFoundError(f"no tool is called {name!r}; there are: {', '.join(sorted(_TOOLS))}")
    return _TOOLS[name]


def tool_specs(names: Iterable[str]) -> tuple[ToolSpec, ...]:
    """How a model sees the tools of these names; unknown names are left out, so that a removed tool breaks no session."""
    return tuple(_TOOLS[name].spec for name in names if name in _TOOLS)
