"""What a door that calls by name offers: each name a schema, one domain call, and what it gives."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, TypeAdapter

from mnesis_core.errors import InvalidRequest
from sessions_app.asking import Caller, check_may_write
from sessions_app.database import db, work


@dataclass(frozen=True, slots=True, kw_only=True)
class Method:
    """One thing that may be asked for."""

    params: type[BaseModel]
    call: Callable[[Caller, Any], Any]
    """Coroutines run in the event loop, the rest in a database thread."""
    result: TypeAdapter[Any]
    description: str = ""
    writes: bool = False
    may_wait: bool = False
    """Whether the answer may take minutes; others need not wait for it."""


Table = dict[str, Method]
Methods = Mapping[str, Method]
Call = Callable[[Caller, Any], Any]


def method(
    table: Table, name: str, *, result: Any, writes: bool = False, may_wait: bool = False
) -> Callable[[Call], Call]:
    """Put a function of the caller and what is ``asked`` into a table; its hints say the schema."""

    def register(call: Call) -> Call:
        table[name] = Method(
            params=inspect.get_annotations(call, eval_str=True)["asked"],
            call=call,
            result=TypeAdapter(result),
            description=inspect.getdoc(call) or "",
            writes=writes,
            may_wait=may_wait,
        )
        return call

    return register


async def perform(method: Method, params: Any, caller: Caller) -> Any:
    """Check who asks and what for, make the call, and give its result as plain values.

    :raises PermissionDenied: the caller may only read, and this writes.
    :raises InvalidRequest: the parameters are no object.
    :raises pydantic.ValidationError: they do not fit the schema.
    """
    if not isinstance(params, dict):
        raise InvalidRequest("params must be an object: parameters have names here", field="params")
    check_may_write(caller.may_write or not method.writes)
    asked = method.params.model_validate(params)
    if inspect.iscoroutinefunction(method.call):
        value = await method.call(caller, asked)
    else:
        value = await (work if method.may_wait else db)(method.call, caller, asked)
    return method.result.dump_python(method.result.validate_python(value))
