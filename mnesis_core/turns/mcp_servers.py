"""Tool servers: how one is reached, and which of its tools sessions are offered.

A server speaks the Model Context Protocol, or has an OpenAPI document (``mnesis_core.turns.openapi``).

A server's description of its tools is untrusted text: it is bounded here, and updated only at an administrator's request.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any
from urllib.parse import urlsplit

from mnesis_core.errors import InvalidRequest, gettext_noop
from mnesis_core.llm.interface import DEEPEST_SCHEMA, ToolSpec
from mnesis_core.text import encode_text, nests_within, without_hidden

SEPARATOR = "__"  # Between the server's name and the tool's own.
MOST_TOOLS = 128  # Of one server: no provider takes more in one call.
MOST_LISTED = 4 * MOST_TOOLS  # Tools that are read at all; of these the first MOST_TOOLS good ones are taken.
LONGEST_NAME = 64  # Characters of ``server__tool`` that providers accept.
LONGEST_DESCRIPTION = 4_000
LONGEST_SCHEMA = 20_000
LONGEST_ARGUMENT, MOST_ARGUMENTS, LONGEST_ADDRESS = 4_000, 100, 2_000
LONGEST_WAIT_SECONDS = 3_600.0
READ_ONLY = "readOnlyHint"
# The protocol's hints, and in words what yes and no mean.
HINTS = {
    READ_ONLY: ("changes nothing", "changes something"),
    "destructiveHint": ("may destroy", "only adds"),
    "idempotentHint": ("does nothing more when repeated", "does it again when repeated"),
    "openWorldHint": ("reaches other systems", "reaches no other systems"),
}

_SERVER_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
HEADER = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9_-]")


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerAddress:
    name: str
    # The program to start, for a server on standard input and output; empty for one over HTTP.
    argv: tuple[str, ...] = ()
    url: str = ""  # The address of a server over streamable HTTP, or of an OpenAPI document.
    # Environment variables of the program (or headers of the requests), each with our variable that holds the value.
    secrets: Mapping[str, str] = field(default_factory=dict)
    timeout_seconds: float = 60.0
    needs_approval: bool = False
    is_openapi: bool = False  # Whether the address is that of an OpenAPI document, whose operations are the tools.
    trust_annotations: bool = False  # Whether the server's ``readOnlyHint`` is believed.
    entered_on_host: bool = False  # Set by a command on the host. What a page entered is bound by the host's lists.

    @property
    def reached(self) -> tuple[tuple[str, ...], str, dict[str, str], bool]:
        return self.argv, self.url, dict(self.secrets), self.is_openapi


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """The HTTP request that calls a tool of an OpenAPI document."""

    method: str
    url: str  # A name in braces stands for an argument.
    places: Mapping[str, Sequence[str]]  # Argument -> ``path``, ``query`` or ``header``, and its name there.
    body: str = ""  # The argument that is the body; empty: there is none.
    media_type: str = ""  # Of the body.


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedTool:
    name: str
    description: str
    schema: Any
    # The hints that the server gives, by the protocol's names (``HINTS``).
    hints: Mapping[str, bool] = field(default_factory=dict)
    operation: Operation | None = None
    problem: str = ""  # Why it cannot be offered, where that is known already.


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedTool:
    remote_name: str
    spec: ToolSpec
    hints: Mapping[str, bool] = field(default_factory=dict)
    operation: Operation | None = None

    @property
    def digest(self) -> str:
        """Return the digest of the whole listing. A tool that is listed differently is another tool."""
        listed = [
            self.remote_name,
            asdict(self.spec),
            dict(self.hints),
            *([asdict(self.operation)] if self.operation else []),
        ]
        said = json.dumps(listed, sort_keys=True)
        return hashlib.sha256(said.encode()).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Listing:
    tools: tuple[AttachedTool, ...] = ()
    left_out: tuple[str, ...] = ()  # A sentence each, at most ``MOST_TOOLS``.


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachedServer:
    id: str
    address: ServerAddress
    listing: Listing
    listed_at: datetime | None  # When the server last answered with its tools.
    problem: str  # What went wrong at the last request; empty if nothing did.
    unreachable_since: datetime | None
    # Tools that an administrator declared read-only: the server's name and the ``digest`` at that time.
    read_only_tools: Mapping[str, str] = field(default_factory=dict)
    is_restricted: bool = False  # Whether only some users' sessions may be offered its tools.
    created_at: datetime
    removed_at: datetime | None = None

    def is_read_only(self, tool: AttachedTool) -> bool:
        """Return whether a tool is known to change nothing. A declaration is void once the tool is listed differently."""
        if self.read_only_tools.get(tool.remote_name) == tool.digest:
            return True
        return self.address.trust_annotations and tool.hints.get(READ_ONLY) is True


def check_address(address: ServerAddress) -> None:
    """:raises InvalidRequest: a value is missing or out of bounds; the message names it"""
    if not _SERVER_NAME.fullmatch(address.name):
        raise InvalidRequest(gettext_noop("name must be 1 to 32 lower-case letters, digits and hyphens"), field="name")
    if bool(address.argv) == bool(address.url):
        raise InvalidRequest(gettext_noop("give either the program to start or the url, not both"), field="url")
    if not 1 <= address.timeout_seconds <= LONGEST_WAIT_SECONDS:
        raise InvalidRequest(
            gettext_noop("timeout_seconds must lie between 1 and %(most)s"),
            {"most": f"{LONGEST_WAIT_SECONDS:,.0f}"},
            field="timeout_seconds",
        )
    if address.is_openapi and not address.url:
        raise InvalidRequest(gettext_noop("give the address of the OpenAPI document"), field="url")
    _check_url(address.url)
    argv = address.argv
    if len(argv) > MOST_ARGUMENTS or any(len(item) > LONGEST_ARGUMENT or encode_text(item) != item for item in argv):
        raise InvalidRequest(gettext_noop("the program has too many, too long or unusable arguments"), field="argv")
    if argv and not argv[0].strip():
        raise InvalidRequest(gettext_noop("the program has no name"), field="argv")
    for name, variable in address.secrets.items():
        pattern = HEADER if address.url else _VARIABLE
        if not pattern.fullmatch(name) or not _VARIABLE.fullmatch(variable):
            raise InvalidRequest(
                gettext_noop("one of the secrets is not NAME=VARIABLE: the name of a variable, not its value"),
                field="secrets",
            )


def _check_url(url: str) -> None:
    if not url:
        return
    try:
        parts = urlsplit(url)
        is_good = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_good = False
    if not is_good or len(url) > LONGEST_ADDRESS or without_hidden(url) != url or " " in url:
        raise InvalidRequest(gettext_noop("url must be an http or https address"), field="url")
    if parts.username or parts.password:
        raise InvalidRequest(gettext_noop("url must hold no password; name a variable that holds it"), field="url")


def take_listing(server_name: str, listed: Iterable[ListedTool]) -> Listing:
    """Return a server's tools for sessions: each within bounds, each name once, as ``server__tool``."""
    tools: dict[str, AttachedTool] = {}
    left_out: list[str] = []
    for item in listed:
        name = f"{server_name}{SEPARATOR}{_NOT_IN_NAMES.sub('_', item.name)}"
        problem = _problem(item, name, tools)
        if problem:
            left_out.append(f"{_plain(item.name)[:LONGEST_NAME]}: {problem}")
            continue
        plain = _plain(item.description)
        spec = ToolSpec(
            name=name,
            description=plain if len(plain) <= LONGEST_DESCRIPTION else f"{plain[:LONGEST_DESCRIPTION]} [cut]",
            parameters=item.schema,
        )
        tools[name] = AttachedTool(remote_name=item.name, spec=spec, hints=dict(item.hints), operation=item.operation)
    return Listing(tools=tuple(tools.values()), left_out=tuple(left_out[:MOST_TOOLS]))


def _problem(item: ListedTool, name: str, taken: Mapping[str, AttachedTool]) -> str:
    if item.problem:
        return item.problem
    if len(taken) >= MOST_TOOLS:
        return f"the server has more than {MOST_TOOLS} tools"
    if not item.name or len(name) > LONGEST_NAME:
        return f"with the server's name it is longer than {LONGEST_NAME} characters, or empty"
    if name in taken:
        return "another tool has this name"
    if not isinstance(item.schema, dict) or item.schema.get("type") != "object":
        return "its schema does not describe an object"
    try:
        length = len(json.dumps(item.schema, allow_nan=False, ensure_ascii=False).encode())
    except (ValueError, TypeError, RecursionError):
        return "its schema is no JSON"
    if not nests_within(item.schema, DEEPEST_SCHEMA):
        return f"its schema is nested deeper than {DEEPEST_SCHEMA}"
    return "" if length <= LONGEST_SCHEMA else f"its schema is longer than {LONGEST_SCHEMA:,} characters"


def hints_in_words(hints: Mapping[str, bool]) -> str:
    """Return a tool's hints in words: ``changes something, may destroy``; empty without hints."""
    return ", ".join(words[0 if hints[name] else 1] for name, words in HINTS.items() if name in hints)


def _plain(text: str) -> str:
    # Invisible characters are removed, so that an administrator reads the same as the model.
    return without_hidden(text[: LONGEST_DESCRIPTION * 2])


def write_listing(listing: Listing) -> str:
    tools = [
        {
            "remote_name": tool.remote_name,
            "hints": dict(tool.hints),
            **asdict(tool.spec),
            **({"operation": asdict(tool.operation)} if tool.operation else {}),
        }
        for tool in listing.tools
    ]
    return json.dumps({"tools": tools, "left_out": listing.left_out})


def read_listing(text: str) -> Listing:
    if not text:
        return Listing()
    values = json.loads(text)
    tools = [
        AttachedTool(
            remote_name=item.pop("remote_name"),
            hints=item.pop("hints", {}),
            operation=Operation(**operation) if (operation := item.pop("operation", None)) else None,
            spec=ToolSpec(**item),
        )
        for item in values["tools"]
    ]
    return Listing(tools=tuple(tools), left_out=tuple(values["left_out"]))
