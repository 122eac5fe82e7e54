"""Operations of an OpenAPI document (3.0 or 3.1) as tools, and the HTTP request that a call of one becomes.

The document is another's text. References are followed inside it alone, and every request goes to the origin of the
document's own address: a document that changes cannot lead the site's credentials elsewhere.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote, urlencode, urljoin, urlsplit

from mnesis_core.errors import InvalidRequest, ToolFailed, gettext_noop
from mnesis_core.text import printable
from mnesis_core.turns.mcp_servers import HEADER, LONGEST_NAME, SEPARATOR, ListedTool, Operation, ServerAddress

METHODS = {
    "get": {"readOnlyHint": True},
    "head": {"readOnlyHint": True},
    "post": {"readOnlyHint": False},
    "put": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True},
    "patch": {"readOnlyHint": False, "destructiveHint": True},
    "delete": {"readOnlyHint": False, "destructiveHint": True, "idempotentHint": True},
}
"""Each with what it says of an operation (RFC 9110, 9.2), by the names of MCP's hints."""
PLACES = ("path", "query", "header", "cookie")
JSON, FORM = "application/json", "application/x-www-form-urlencoded"
MOST_REFERENCES = 20  # of which one leads to the next
DEEPEST = 40  # schemas inside each other; what lies deeper, as in a schema that contains itself, may be anything
MOST_SCHEMAS = 2_000  # of one operation, written out
_NOT_PARAMETERS = {"accept", "content-type", "authorization"}  # as the specification says (Parameter Object, name)
_OF_CONNECTION = {"host", "connection", "content-length", "transfer-encoding", "cookie", "upgrade", "te", "trailer"}
_SCHEMA = ("items", "additionalProperties", "not", "contains", "propertyNames", "if", "then", "else")
_SCHEMAS = ("allOf", "anyOf", "oneOf", "prefixItems")
_NAMED_SCHEMAS = ("properties", "patternProperties")
_KEPT = {
    *("type", "format", "enum", "const", "default", "required", "title", "description", "pattern", "uniqueItems"),
    *("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum", "multipleOf", "minLength", "maxLength"),
    *("minItems", "maxItems", "minProperties", "maxProperties"),
}
_NOT_IN_ARGUMENTS = re.compile(r"[^A-Za-z0-9_.-]")  # which providers refuse
_VARIABLE = re.compile(r"\{([^{}]*)\}")
_NOT_IN_HEADERS = re.compile(r"[^\t\x20-\x7e]")


@dataclass(frozen=True, slots=True, kw_only=True)
class OperationRequest:
    method: str
    url: str
    headers: Mapping[str, str]
    content: bytes | None


class _Unusable(Exception):
    """Says why an operation cannot be a tool."""


def read_operations(document: Any, address: ServerAddress) -> Iterator[ListedTool]:
    """Yield the operations of a document, in its order. Names that would be too long are cut.

    :raises ToolFailed: it is no OpenAPI document of version 3.
    """
    if not isinstance(document, dict) or not str(document.get("openapi", "")).startswith("3."):
        raise ToolFailed(gettext_noop("This is not an OpenAPI document of version 3."))
    read = _Document(document, given={name.lower() for name in address.secrets})
    for path, held in _members(document.get("paths")):
        try:
            item = read.resolved(held)
        except _Unusable as problem:
            yield ListedTool(name=path, description="", schema={}, problem=str(problem))
            continue
        for method in METHODS:
            if isinstance(item.get(method), dict):
                yield _found(read, address, path, method, item)


def _found(read: _Document, address: ServerAddress, path: str, method: str, item: Mapping[str, Any]) -> ListedTool:
    said = item[method]
    name = re.sub(r"[^A-Za-z0-9-]+", "_", str(said.get("operationId") or f"{method} {path}")).strip("_")
    longest = LONGEST_NAME - len(address.name) - len(SEPARATOR)
    about: dict[str, Any] = {"name": name[:longest], "hints": METHODS[method]}
    told = (f"{method.upper()} {path}", said.get("summary"), said.get("description"))
    about["description"] = "\n".join(text for text in told if isinstance(text, str) and text)
    try:
        if not path.startswith("/") or "?" in path or "#" in path:
            raise _Unusable("its path does not begin with a slash, or is more than a path")
        base = _base(address.url, said.get("servers") or item.get("servers") or read.root.get("servers"))
        schema, operation = _arguments(read, item, said, method=method.upper(), url=f"{base}{path}")
    except _Unusable as problem:
        return ListedTool(**about, schema={}, problem=str(problem))
    return ListedTool(**about, schema=schema, operation=operation)


def _base(url: str, servers: Any) -> str:
    server = servers[0] if isinstance(servers, list) and servers and isinstance(servers[0], dict) else {}
    variables = dict(_members(server.get("variables")))

    def value(found: re.Match[str]) -> str:
        variable = variables.get(found[1])
        return str(variable.get("default", "")) if isinstance(variable, dict) else ""

    try:
        base = urljoin(url, _VARIABLE.sub(value, str(server.get("url", ""))) or "/")
        is_same = urlsplit(base)[:2] == urlsplit(url)[:2]
    except ValueError:
        is_same = False
    if not is_same:
        raise _Unusable("its server is not the one that the document comes from")
    return base.partition("?")[0].partition("#")[0].rstrip("/")


def _arguments(
    read: _Document, item: Mapping[str, Any], said: Mapping[str, Any], *, method: str, url: str
) -> tuple[dict[str, Any], Operation]:
    schemas = _Schemas(read)
    properties: dict[str, Any] = {}
    places: dict[str, tuple[str, str]] = {}
    required = []
    for (place, name), parameter in _parameters(read, item, said).items():
        is_required = place == "path" or parameter.get("required") is True
        if place == "cookie" or (place == "header" and not _can_be_sent(name)):
            if is_required:
                raise _Unusable(f"it needs the {place} {name}")
            continue
        argument = _NOT_IN_ARGUMENTS.sub("_", name)[:LONGEST_NAME]
        if argument in properties:
            argument = f"{place}_{argument}"[:LONGEST_NAME]
        if argument in properties:
            raise _Unusable(f"more than one of its parameters would be called {argument}")
        schema = parameter.get("schema", next(_contents(parameter), ("", {}))[1])
        properties[argument] = _told(schemas.plain(schema), parameter)
        places[argument] = (place, name)
        required += [argument] * is_required
    if missing := set(_VARIABLE.findall(url)) - {name for place, name in places.values() if place == "path"}:
        raise _Unusable(f"it does not describe {min(missing)} of its path")
    body, media_type = "", ""
    if request := read.resolved(said.get("requestBody")):
        contents = {kind.partition(";")[0].strip().lower(): schema for kind, schema in _contents(request)}
        media_type = next((kind for kind in contents if kind in (JSON, FORM) or kind.endswith("+json")), "")
        if not media_type and request.get("required") is True:
            raise _Unusable("its body is neither JSON nor a form")
        if media_type:
            body = "body" if "body" not in properties else "request_body"
            properties[body] = _told(schemas.plain(contents[media_type]), request)
            required += [body] * (request.get("required") is True)
    schema = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
    return schema, Operation(method=method, url=url, places=places, body=body, media_type=media_type)


def _parameters(
    read: _Document, item: Mapping[str, Any], said: Mapping[str, Any]
) -> dict[tuple[str, str], dict[str, Any]]:
    """Return the parameters of an operation by place and name; its own replace those of its path."""
    found = {}
    for holder in (item, said):
        held = holder.get("parameters")
        for parameter in map(read.resolved, held if isinstance(held, list) else ()):
            place, name = parameter.get("in"), parameter.get("name")
            if place not in PLACES or not isinstance(name, str) or not name:
                continue
            if place != "header" or name.lower() not in read.given | _NOT_PARAMETERS:
                found[place, name] = parameter
    return found


def _can_be_sent(header: str) -> bool:
    return HEADER.fullmatch(header) is not None and header.lower() not in _OF_CONNECTION


def _told(schema: dict[str, Any], holder: Mapping[str, Any]) -> dict[str, Any]:
    about = holder.get("description")
    return (
        schema | {"description": about} if isinstance(about, str) and about and "description" not in schema else schema
    )


def _contents(holder: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    for kind, media in _members(holder.get("content")):
        yield kind, media.get("schema", {}) if isinstance(media, dict) else {}


def _members(value: Any) -> Iterator[tuple[str, Any]]:
    yield from ((str(name), held) for name, held in value.items()) if isinstance(value, dict) else ()


class _Document:
    def __init__(self, root: dict[str, Any], *, given: set[str]) -> None:
        """:param given: headers that the server is sent anyway, in lower case"""
        self.root, self.given = root, given

    def resolved(self, value: Any) -> dict[str, Any]:
        """Return an object, or the one that it refers to; empty if it is none.

        :raises _Unusable: the reference leads out of the document, to nothing or in a circle.
        """
        for _ in range(MOST_REFERENCES):
            if not isinstance(value, dict) or "$ref" not in value:
                return value if isinstance(value, dict) else {}
            value = self._at(value["$ref"])
        raise _Unusable("it has references that lead in a circle")

    def _at(self, reference: Any) -> Any:
        if not isinstance(reference, str) or not reference.startswith("#/"):
            raise _Unusable("it refers to another document")
        value: Any = self.root
        for step in reference[2:].split("/"):
            name = step.replace("~1", "/").replace("~0", "~")
            if not isinstance(value, dict) or name not in value:
                raise _Unusable(f"it refers to nothing: {reference[:200]}")
            value = value[name]
        return value


class _Schemas:
    """Schemas of one operation with their references written out, since a provider takes a schema without a document."""

    def __init__(self, read: _Document) -> None:
        self._read = read
        self._left = MOST_SCHEMAS

    def plain(self, value: Any, depth: int = 0) -> dict[str, Any]:
        """:raises _Unusable: there are too many schemas, or one refers to nothing."""
        self._left -= 1
        if self._left < 0:
            raise _Unusable(f"its schema has more than {MOST_SCHEMAS:,} parts")
        if depth > DEEPEST:
            return {}
        schema = self._read.resolved(value)
        # Some write ``required`` of the property itself.
        plain: dict[str, Any] = {
            name: held
            for name, held in schema.items()
            if name in _KEPT and (name != "required" or isinstance(held, list))
        }
        for name in _SCHEMA:
            if isinstance(schema.get(name), bool | dict):
                plain[name] = schema[name] if isinstance(schema[name], bool) else self.plain(schema[name], depth + 1)
        for name in _SCHEMAS:
            if isinstance(schema.get(name), list):
                plain[name] = [self.plain(held, depth + 1) for held in schema[name]]
        for name in _NAMED_SCHEMAS:
            if isinstance(schema.get(name), dict):
                plain[name] = {key: self.plain(held, depth + 1) for key, held in _members(schema[name])}
        if schema.get("nullable") is True and isinstance(plain.get("type"), str):  # of version 3.0
            plain["type"] = [plain["type"], "null"]
        return plain


def request_of(operation: Operation, arguments: Mapping[str, Any]) -> OperationRequest:
    """Return the request that a call becomes.

    :raises InvalidRequest: an argument is unknown, missing in the path, or cannot stand where it belongs.
    """
    if unknown := [name for name in arguments if name not in operation.places and name != operation.body]:
        raise InvalidRequest(gettext_noop("there is no argument %(name)s"), {"name": unknown[0]}, field=unknown[0])
    url, query, headers = operation.url, list[tuple[str, str]](), dict[str, str]()
    for argument, (place, name) in operation.places.items():
        value = arguments.get(argument)
        if place == "path":
            url = url.replace(f"{{{name}}}", quote(_in_path(argument, value), safe=""))
        elif place == "query" and value is not None:
            query += [(name, _text(one)) for one in (value if isinstance(value, list) else [value])]
        elif value is not None:
            headers[name] = _in_header(argument, value)
    content = None
    if operation.body in arguments and operation.body:
        headers["Content-Type"] = operation.media_type
        content = _encoded(operation.media_type, arguments[operation.body], field=operation.body)
    return OperationRequest(
        method=operation.method, url=f"{url}?{urlencode(query)}" if query else url, headers=headers, content=content
    )


def _in_path(argument: str, value: Any) -> str:
    text = "" if value is None else _text(value)
    if text in ("", ".", ".."):  # a server would read another path
        raise InvalidRequest(
            gettext_noop("the argument %(name)s must be a text that can stand in a path"),
            {"name": argument},
            field=argument,
        )
    return text


def _in_header(argument: str, value: Any) -> str:
    text = _text(value)
    if _NOT_IN_HEADERS.search(text):
        raise InvalidRequest(
            gettext_noop("the argument %(name)s must be a text that can stand in a header"),
            {"name": argument},
            field=argument,
        )
    return text


def _encoded(media_type: str, value: Any, *, field: str) -> bytes:
    if media_type != FORM:
        return json.dumps(value).encode()
    if not isinstance(value, dict):
        raise InvalidRequest(gettext_noop("%(name)s must be an object"), {"name": field}, field=field)
    return urlencode({name: _text(held) for name, held in value.items()}).encode()


def _text(value: Any) -> str:
    return printable(value) if isinstance(value, str) else json.dumps(value)
