"""Operations that are called by name, at JSON-RPC and MCP: made from the functions and schemas of the REST endpoint.

``by_name`` above a REST call publishes it. Its parameters become one schema: those of the path and the query, and the
fields of the body. What a name has and REST has not is a function of its own, published by ``operation``.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from functools import wraps
from typing import Annotated, Any, TypeVar, get_args, get_origin

from ninja import Status
from pydantic import BaseModel, TypeAdapter, create_model

from mnesis_core.errors import InvalidRequest
from sessions_app.callers import Caller, check_may_write
from sessions_app.database.threads import db, waiting_for, work
from sessions_app.record.actor import identified_as

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    params: type[BaseModel]
    call: Callable[[Caller, Any], Any]  # Coroutine functions run in the event loop, others in a database thread
    result: TypeAdapter[Any]
    description: str = ""
    writes: bool = False
    may_wait: bool = False  # whether the answer may take minutes; other requests need not wait for it


Operations = Mapping[str, Operation]
OPERATIONS: dict[str, Operation] = {}  # those of JSON-RPC that need no standing connection


def operation(
    name: str, *, result: Any, writes: bool = False, may_wait: bool = False, table: dict[str, Operation] = OPERATIONS
) -> Callable[[F], F]:
    """Publish a function of the caller and of what is ``asked``; the annotation of ``asked`` is the schema."""

    def register(call: F) -> F:
        table[name] = Operation(
            params=inspect.get_annotations(call, eval_str=True)["asked"],
            call=call,
            result=TypeAdapter(result),
            description=inspect.getdoc(call) or "",
            writes=writes,
            may_wait=may_wait,
        )
        return call

    return register


def by_name(
    name: str,
    *,
    result: Any = None,
    may_wait: bool = False,
    renamed: Mapping[str, str] | None = None,
    **defaults: Any,
) -> Callable[[F], F]:
    """Publish a REST call, which may take nothing of its request but the user.

    :param result: the schema of the answer, where it is not the one of REST
    :param renamed: parameters that have another name here
    :param defaults: parameters that have another default here; ``None``: they may be left out
    """

    def register(view: F) -> F:
        function = inspect.unwrap(view)
        params, arguments = _parameters_of(function, renamed or {}, defaults)

        async def wait(caller: Caller, asked: BaseModel) -> Any:
            return _without_status(await function(caller, **arguments(asked)))

        def call(caller: Caller, asked: BaseModel) -> Any:
            return _without_status(function(caller, **arguments(asked)))

        rest = view._ninja_operation  # type: ignore[attr-defined]
        answer = next(model for status, model in rest.response_models.items() if status < 300)
        schema: Any = result or answer.model_fields["response"].annotation
        OPERATIONS[name] = Operation(
            params=params,
            call=wait if inspect.iscoroutinefunction(function) else call,
            result=TypeAdapter(schema),
            description=inspect.getdoc(view) or "",
            writes="GET" not in rest.methods,
            may_wait=may_wait,
        )
        return view

    return register


def _parameters_of(
    function: Callable[..., Any], renamed: Mapping[str, str], defaults: Mapping[str, Any]
) -> tuple[type[BaseModel], Callable[[BaseModel], dict[str, Any]]]:
    """Return one schema of all that a REST call takes, and what makes the call's arguments of a value of it."""
    fields: dict[str, Any] = {}
    names: dict[str, str] = {}
    body: inspect.Parameter | None = None
    for parameter in list(inspect.signature(function, eval_str=True).parameters.values())[1:]:
        kind, default = parameter.annotation, defaults.get(parameter.name, parameter.default)
        # ``Query[Schema]`` is a schema with a note to ninja.
        schema = get_args(kind)[0] if get_origin(kind) is Annotated else kind
        if isinstance(schema, type) and issubclass(schema, BaseModel):
            body = parameter.replace(annotation=schema)
            continue
        public = renamed.get(parameter.name, parameter.name)
        names[public] = parameter.name
        fields[public] = (kind if default is not None else kind | None, ... if default is parameter.empty else default)

    def arguments(asked: BaseModel) -> dict[str, Any]:
        # MCP leaves some out, which have their default then.
        values = {names[name]: getattr(asked, name) for name in names if name in type(asked).model_fields}
        if body is not None:
            schema = body.annotation
            values[body.name] = schema.model_construct(**{name: getattr(asked, name) for name in schema.model_fields})
        return values

    title = "".join(word.capitalize() for word in function.__name__.split("_"))
    return create_model(title, __base__=body.annotation if body else None, **fields), arguments


def waited_for(call: Callable[..., Awaitable[Any]]) -> Callable[..., Any]:
    """Have the thread of a request wait for an asynchronous call; by name the call itself runs in the event loop."""
    wait = wraps(call)(waiting_for(call))
    # ninja would look the names of annotations up in another module.
    wait.__signature__ = inspect.signature(call, eval_str=True)  # type: ignore[attr-defined]
    return wait


def _without_status(answer: Any) -> Any:
    return answer.value if isinstance(answer, Status) else answer


async def perform(operation: Operation, params: Any, caller: Caller) -> Any:
    """Check who asks and what for, make the call, and return its result as plain values.

    :raises PermissionDenied: the caller may only read, and this writes.
    :raises InvalidRequest: the parameters are no object.
    :raises pydantic.ValidationError: they do not fit the schema.
    """
    if not isinstance(params, dict):
        raise InvalidRequest("params must be an object: parameters have names here", field="params")
    check_may_write(caller.may_write or not operation.writes)
    asked = operation.params.model_validate(params)

    def write(value: Any) -> Any:
        # As ninja does it: what was read already is only written.
        read = value if isinstance(value, BaseModel) else operation.result.validate_python(value)
        return operation.result.dump_python(read)

    with identified_as(caller.actor):
        if inspect.iscoroutinefunction(operation.call):
            # A schema may ask the database for what a record does not have.
            return await db(write, await operation.call(caller, asked))
        return await (work if operation.may_wait else db)(lambda: write(operation.call(caller, asked)))
