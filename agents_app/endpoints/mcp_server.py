"""A server of the Model Context Protocol (https://modelcontextprotocol.io), made with the official package, and its tools.

A tool's error is a result, because the model has to see it; an error of a resource is one of the protocol.
"""

from __future__ import annotations

import asyncio
import inspect
import json
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Self

import mcp_types as types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.shared.exceptions import MCPError
from ninja import Field, Schema
from pydantic import BaseModel, ConfigDict, model_validator

from agents_app.endpoints.jsonrpc import METHODS, write
from agents_app.maps import service
from agents_app.maps.api import AgenticMapIn, MapIn
from agents_app.schemas import FileIds, InboxIn, read_said
from agents_app.tools.memory import reading
from agents_app.tools.memory.grepping import tokens_for
from agents_app.tools.memory.reach import find_own
from agents_app.turns import lifecycle
from agents_app.turns.overview import AnswerOut, SessionRead
from files_app.queries import MOST_HITS
from mnesis_core.errors import InvalidRequest, MnesisError, NotFound, ToolNotFoundError
from mnesis_core.facts import LONGEST_SUBJECT
from mnesis_core.files.lines import Mode as LineMode
from mnesis_core.files.pictures import SentPicture
from mnesis_core.maps.values import OperatorKind
from mnesis_core.records import TurnRecord
from mnesis_core.search.ranking import LONGEST_QUESTION
from mnesis_core.text import printable
from sessions_app.api import MessageList, messages_out, session_page
from sessions_app.callers import Caller
from sessions_app.database.outages import to_error
from sessions_app.database.threads import db
from sessions_app.live import check_caller
from sessions_app.operations import Operation, operation, perform
from sessions_app.record.branch_queries import path_in
from sessions_app.record.message_queries import load_messages
from sessions_app.record.session_queries import find_session, load_session
from sessions_app.record.turn_queries import list_turns, load_turn
from sessions_app.schemas import JSONEncoder
from sessions_app.search.ranked import MOST_AROUND
from sessions_app.search.search import Kind, Mode

Context = ServerRequestContext[Any, Any]
Paging = types.PaginatedRequestParams | None
CallerOf = Callable[[Context], Awaitable[Caller]]

INSTRUCTIONS = (
    "Mnesis keeps every conversation whole. mnesis_run and mnesis_resume talk with a model; lcm_grep finds anything "
    "that was ever said; lcm_describe, lcm_expand and lcm_read open what it finds, summaries included."
)
# The first part of a path after ``mnesis://``, with the prefix of the ids that may follow it.
KINDS = {"sessions": "sess", "summaries": "sum", "files": "file"}
PAGE = 50
NEWEST = 20  # messages that a session's resource shows
JSON, TEXT = "application/json", "text/plain"

WaitSeconds = Annotated[
    float, Field(ge=0, le=600, description="How long to wait for the end; the turn goes on after that.")
]
SessionId = Annotated[str, Field(description="The id of a session (sess_…).")]
Message = Annotated[str, Field(description="What to say to the model of the session.")]
Parts = Annotated[
    list[dict[str, Any]] | None,
    Field(
        description="In place of message, the parts of one in the form of OpenAI's Chat Completions: text, and image_url, "
        "file (a PDF) and input_audio with their bytes in Base64, or the first two with an address."
    ),
]
# The parameter is named as in the session's own tools; REST's name for it, ``q``, is accepted too.
Pattern = Annotated[str, Field(min_length=1, max_length=1_000, alias="pattern")]


class Run(Schema):
    """A new session and its first message."""

    model_config = ConfigDict(extra="forbid")
    message: Message = ""
    parts: Parts = None
    assistant: Annotated[
        str, Field(max_length=100, description="The id of an assistant (asst_…) that the session begins with.")
    ] = ""
    model: Annotated[
        str, Field(description="A model's name; empty: the assistant's model if one is named, else the site's default.")
    ] = ""
    title: str = ""
    system_prompt: str = ""
    host: Annotated[str, Field(description="A name: the session stays alive for messages of others to it.")] = ""
    wait_seconds: WaitSeconds = 120


class Resume(Schema):
    """One more message of a session, or none, to wait for the newest turn."""

    model_config = ConfigDict(extra="forbid")  # such as another assistant: a session keeps the one that it began with
    session_id: SessionId
    message: Annotated[
        str, Field(description="What to say; empty, without parts and files: only wait for the newest turn.")
    ] = ""
    parts: Parts = None
    files: Annotated[FileIds, Field(description="Ids of files (file_…) of the session that go with the message.")] = []
    wait_seconds: WaitSeconds = 120


class Interrupt(Schema):
    session_id: SessionId


class Send(InboxIn):
    """A message for a session in host mode."""

    session_id: SessionId


class LlmMap(MapIn):
    """A run over many items, and how long to wait for its end."""

    wait_seconds: WaitSeconds = 120


class AgenticMap(AgenticMapIn):
    """A run with a sub-agent for each item, and how long to wait for its end."""

    wait_seconds: WaitSeconds = 120


class Sessions(Schema):
    q: Annotated[str, Field(max_length=200, description="A word of the title.")] = ""
    label: Annotated[str | None, Field(description="key=value")] = None
    archived: Annotated[bool | None, Field(description="null: archived ones too")] = False
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    cursor: str | None = None


class Grep(Schema):
    """What to find. Without a session, all sessions are searched."""

    model_config = ConfigDict(populate_by_name=True)
    q: Annotated[str, Field(min_length=1, max_length=LONGEST_QUESTION, alias="pattern")]
    session_id: str | None = None
    mode: Mode = "ranked"
    scope: Kind = "all"
    summary_id: str | None = None
    since: Annotated[str, Field(description="2026-11-26, or a time")] = ""
    until: str = ""
    speaker: Annotated[str, Field(description="A name, user or assistant.")] = ""
    tool: Annotated[str, Field(description="The name of a tool.")] = ""
    file: Annotated[str, Field(description="A part of its path.")] = ""
    branch: int | None = None
    project_id: Annotated[str, Field(max_length=100, description="Only sessions in this project.")] = ""
    compacted: Annotated[bool | None, Field(description="true: only what has left the context")] = None
    around: Annotated[int | None, Field(ge=0, le=MOST_AROUND, description="Messages shown on both sides.")] = None
    limit: Annotated[int, Field(ge=1, le=100)] = 20
    max_tokens: Annotated[
        int | None, Field(ge=1, le=100_000, description="By default 1,000, and 200 for each hit of a larger limit.")
    ] = None
    cursor: str | None = None

    @model_validator(mode="after")
    def _bound(self) -> Self:
        if self.max_tokens is None:
            self.max_tokens = tokens_for(self.limit if "limit" in self.model_fields_set else None)
        return self


class GrepFile(Schema):
    """The text to find in a file."""

    model_config = ConfigDict(populate_by_name=True)
    file_id: str
    q: Pattern
    mode: LineMode = "text"
    limit: Annotated[int, Field(ge=1, le=MOST_HITS)] = 50
    cursor: str | None = None


class Described(Schema):
    """The id to describe."""

    id: Annotated[
        str, Field(description="An id: sum_, file_, msg_, part_, run_, map_, turn_, call_, sess_ or sess_…#418.")
    ]
    offset: Annotated[int, Field(ge=0, le=2**53, description="Of a list of files: where to go on.")] = 0


class FactsOf(Schema):
    """The session, and which of its facts."""

    session_id: SessionId
    query: Annotated[str, Field(max_length=LONGEST_QUESTION, description="Words that a fact has.")] = ""
    subject: Annotated[str, Field(max_length=LONGEST_SUBJECT, description="What it is about.")] = ""
    at: Annotated[str, Field(max_length=100, description="2026-11-26, or a time")] = ""


class Expanded(Schema):
    summary_id: Annotated[str, Field(description="The id of a summary (sum_…).")]
    cursor: Annotated[int, Field(ge=0, le=2**53)] = 0
    tokens: Annotated[int, Field(ge=200, le=20_000, description="How large the answer may be.")] = 4_000


class Read(Schema):
    """The id to read, and which part of it."""

    id: Annotated[str, Field(description="An id: msg_, part_, file_, sum_ or sess_…#418.")]
    offset: Annotated[int, Field(ge=0, le=2**53)] = 0
    limit: Annotated[int, Field(ge=1, le=40_000)] = 8_000
    first_line: Annotated[int, Field(ge=0, le=2**53, description="Of a file: numbered lines from this one on.")] = 0


TOOLS: dict[str, Operation] = {}
_tool = partial(operation, table=TOOLS)


def _publish(name: str, method: str, params: type[BaseModel], description: str) -> None:
    """Have a tool do what a method of JSON-RPC does, with parameters that are described for a model."""
    TOOLS[name] = replace(METHODS[method], params=params, description=inspect.cleandoc(description))


@_tool("mnesis_run", result=AnswerOut, writes=True)
async def run(caller: Caller, asked: Run) -> Any:
    """Start a session with a language model and wait for its answer. The whole conversation is kept."""
    message, pictures = _said(asked)
    _, started = await lifecycle.begin_session(
        owner=caller.user,
        assistant_id=asked.assistant,
        model=asked.model,
        title=asked.title,
        system_prompt=asked.system_prompt,
        message=message,
        pictures=pictures,
        host_mode=bool(asked.host),
        peer_name=asked.host,
    )
    return await _answer(started.turn, caller, asked.wait_seconds)


@_tool("mnesis_resume", result=AnswerOut, writes=True)
async def resume(caller: Caller, asked: Resume) -> Any:
    """Go on with a session and wait for the answer; without a message, for that of its newest turn."""
    session = await db(find_session, asked.session_id, owner_id=caller.owner_id)
    if asked.message or asked.files or asked.parts is not None:
        message, pictures = _said(asked)
        started = await lifecycle.start_turn(
            session.id, owner_id=caller.owner_id, message=message, pictures=pictures, files=asked.files
        )
        return await _answer(started.turn, caller, asked.wait_seconds)
    turns = await db(list_turns, session.id, limit=1)
    if not turns:
        raise InvalidRequest("Nothing was said in this session yet. Send a message.", field="message")
    return await _answer(turns[0], caller, asked.wait_seconds)


_publish(
    "mnesis_interrupt", "session/interrupt", Interrupt, "End the turn that runs in a session; what was said is kept."
)
_publish(
    "mnesis_send",
    "inbox/send",
    Send,
    "Leave a message for a session in host mode, which reads it when it is idle. Nobody waits for an answer.",
)


@_tool("mnesis_llm_map", result=str, writes=True)
async def llm_map(caller: Caller, asked: LlmMap) -> str:
    """Ask a model the same about each of many items, and get a file of checked results.

    Give file_id (a JSON Lines file) or items, a Jinja template that uses item, and the output_schema that each answer must
    fit. You get the run's id, counts, the first failures and the results' file; lcm_describe says how far a run is.
    """
    return await _run_map(asked, OperatorKind.LLM, caller)


@_tool("mnesis_agentic_map", result=str, writes=True)
async def agentic_map(caller: Caller, asked: AgenticMap) -> str:
    """Like mnesis_llm_map, but each item is given to a sub-agent with its own session and tools."""
    return await _run_map(asked, OperatorKind.AGENTIC, caller)


_publish("mnesis_sessions", "session/list", Sessions, "List your sessions, the latest first.")
_publish(
    "lcm_grep",
    "search",
    Grep,
    """Search everything that was ever said in your sessions, or in one of them, in context or not.

    Mode ranked takes a question, as a person asks it, and returns the passages that answer it best. Mode text finds all
    the words of the pattern; "in quotes" side by side; begin* of words. Mode regex takes a regular expression (RE2).
    covered_by names the summary that stands for a hit; lcm_read reads on at its message_id, or at its session_id with
    the handle behind it (sess_…#418). next_cursor goes on.
    """,
)
_publish(
    "lcm_grep_file",
    "files/search",
    GrepFile,
    """Search what a file (file_) holds, line by line; lcm_read reads around a line with first_line.

    Mode text finds lines with all the words of the pattern, in any case, also as parts of longer words; "in quotes" with their
    spaces. Mode regex takes a regular expression (RE2). next_cursor goes on.
    """,
)


@_tool("lcm_describe", result=str)
def describe(caller: Caller, asked: Described) -> str:
    """Tell what an id names: of a summary what it stands for, what stands for it, and its text."""
    return reading.describe(find_own(asked.id, owner_id=caller.owner_id), offset=asked.offset)


@_tool("lcm_expand", result=str)
def expand(caller: Caller, asked: Expanded) -> str:
    """Read what a summary was made of, one step down: messages, or summaries to expand further."""
    found = find_own(asked.summary_id, owner_id=caller.owner_id)
    if found.kind != "sum":
        raise InvalidRequest(f"{found.id} is no summary; lcm_read reads it", field="summary_id")
    return reading.expand(found, cursor=asked.cursor, tokens=asked.tokens)


@_tool("lcm_facts", result=str)
def facts(caller: Caller, asked: FactsOf) -> str:
    """Look up facts of a session: preferences, decisions, constraints, what something is, open tasks, instructions.

    Each comes with its date and the words that it rests on. They are those that hold now, or with at those that held then.
    """
    load_session(asked.session_id, owner_id=caller.owner_id)
    return reading.tell_facts(asked.session_id, query=asked.query, subject=asked.subject, at=asked.at)


@_tool("lcm_read", result=str)
def read(caller: Caller, asked: Read) -> str:
    """Read the original of a message, a part or tool output, a file or a summary, as it was written."""
    found = find_own(asked.id, owner_id=caller.owner_id)
    return reading.read(found, offset=asked.offset, limit=asked.limit, first_line=asked.first_line)


def _said(asked: Run | Resume) -> tuple[str, tuple[SentPicture, ...]]:
    # Models send empty texts for what they leave out.
    is_in_parts = asked.parts is not None and not asked.message
    return read_said(None if is_in_parts else asked.message, asked.parts)


async def _run_map(asked: LlmMap | AgenticMap, kind: OperatorKind, caller: Caller) -> str:
    begun = await db(service.start, asked.request(kind), owner_id=caller.owner_id)
    run = await service.wait(begun.id, owner_id=caller.owner_id, seconds=asked.wait_seconds)
    return await db(reading.describe_operator_run, run)


async def _answer(turn: TurnRecord, caller: Caller, seconds: float) -> TurnRecord:
    """Return the turn when it has ended or waits for a person, or as it is after this number of seconds."""
    try:
        async with asyncio.timeout(seconds):
            turn = await lifecycle.wait_turn(turn.session_id, turn.id, owner_id=caller.owner_id)
    except TimeoutError:
        turn = await db(load_turn, turn.id, session_id=turn.session_id)
    return turn


def always(caller: Caller) -> CallerOf:
    """Let every request act for one person, as long as their account is open."""

    async def caller_of(context: Context) -> Caller:
        try:
            return await db(check_caller, caller)
        except MnesisError as error:
            raise protocol_error(error) from None

    return caller_of


def make_server(caller_of: CallerOf) -> Server[Any]:
    """Return a server. ``caller_of`` finds for whom a request acts, and raises an ``MCPError`` if the account was closed."""

    def acting(handler: Callable[[Caller, Any], Awaitable[Any]]) -> Callable[[Context, Any], Awaitable[Any]]:
        async def handle(context: Context, params: Any) -> Any:
            return await handler(await caller_of(context), params)

        return handle

    return Server(
        "mnesis",
        version="1",
        instructions=INSTRUCTIONS,
        on_list_tools=list_tools,
        on_call_tool=acting(run_tool),
        on_list_resources=acting(list_resources),
        on_list_resource_templates=list_templates,
        on_read_resource=acting(read_resource),
    )


async def list_tools(context: Context, params: Paging) -> types.ListToolsResult:
    tools = [
        types.Tool(
            name=name,
            description=known.description,
            input_schema=known.params.model_json_schema(),
            annotations=types.ToolAnnotations(read_only_hint=not known.writes, destructive_hint=False),
        )
        for name, known in TOOLS.items()
    ]
    return types.ListToolsResult(tools=tools)


async def run_tool(caller: Caller, params: types.CallToolRequestParams) -> types.CallToolResult:
    """Call a tool; return its result as text, and as structured content unless it is a text.

    :raises MCPError: there is no such tool.
    """
    known = TOOLS.get(params.name)
    if known is None:
        raise protocol_error(ToolNotFoundError())
    try:
        result, is_error = await perform(known, params.arguments or {}, caller), False
        value = None if isinstance(result, str) else _plain(result)
        text = result if isinstance(result, str) else json.dumps(value, ensure_ascii=False)
    except Exception as exception:
        error = to_error(exception, asked=f"MCP {params.name}")
        text, value, is_error = f"{error.code}: {error.message}", _plain({"error": error.as_dict()}), True
    content: list[types.ContentBlock] = [types.TextContent(text=printable(text))]
    return types.CallToolResult(content=content, structured_content=value, is_error=is_error)


async def list_templates(context: Context, params: Paging) -> types.ListResourceTemplatesResult:
    templates = [
        types.ResourceTemplate(
            uri_template=f"mnesis://{kind}/{{id}}", name=kind, mime_type=JSON if kind == "sessions" else TEXT
        )
        for kind in KINDS
    ]
    return types.ListResourceTemplatesResult(resource_templates=templates)


async def list_resources(caller: Caller, params: Paging) -> types.ListResourcesResult:
    """:raises MCPError: the cursor is not valid."""
    try:
        page = await db(
            session_page,
            owner_id=caller.owner_id,
            archived=None,
            label=None,
            q="",
            parent_id=None,
            limit=PAGE,
            cursor=params.cursor if params else None,
        )
    except MnesisError as error:
        raise protocol_error(error) from None
    resources = [
        types.Resource(uri=f"mnesis://sessions/{item.id}", name=printable(item.title) or item.id, mime_type=JSON)
        for item in page["items"]
    ]
    return types.ListResourcesResult(resources=resources, next_cursor=page["next_cursor"])


async def read_resource(caller: Caller, params: types.ReadResourceRequestParams) -> types.ReadResourceResult:
    """Return a session with its newest messages, a summary, a file, or what is known of a file.

    :raises MCPError: there is no such resource, or it belongs to another person.
    """
    uri = str(params.uri)
    try:
        contents = await db(_read, uri, caller.owner_id)
    except Exception as exception:
        raise protocol_error(to_error(exception, asked=f"MCP resource {uri[:100]}")) from None
    return types.ReadResourceResult(contents=[contents])


def protocol_error(error: MnesisError) -> MCPError:
    """Return an error as one of the protocol: the registry's number and message, with the code and details as data."""
    return MCPError(error.rpc_code, printable(error.message), _plain({"code": error.code, "details": error.details}))


def _read(uri: str, owner_id: int) -> types.TextResourceContents:
    scheme, _, rest = uri.partition("://")
    kind, _, id = rest.partition("/")
    if scheme != "mnesis" or kind not in KINDS:
        raise NotFound(f"There is nothing here but mnesis://{', mnesis://'.join(KINDS)}.")
    if id.partition("_")[0] != KINDS[kind]:
        raise InvalidRequest(f"This is no id of {kind}.", field="uri")
    if kind == "sessions":
        session = load_session(id, owner_id=owner_id)
        newest = load_messages(id, limit=NEWEST, newest=True, path=path_in(session))
        page = {"items": messages_out(id, newest), "next_cursor": None}
        messages = MessageList.model_validate(page).model_dump()["items"]
        text = write(SessionRead.model_validate(session).dict() | {"messages": messages})
        return types.TextResourceContents(uri=uri, mime_type=JSON, text=text)
    found = find_own(id, owner_id=owner_id)
    told = reading.describe(found) if kind == "summaries" else reading.read(found, offset=0, limit=40_000)
    return types.TextResourceContents(uri=uri, mime_type=TEXT, text=printable(told))


def _plain(value: Any) -> Any:
    """Return a value that the package can write: times as texts, and no lone surrogates."""
    return json.loads(printable(json.dumps(value, cls=JSONEncoder, ensure_ascii=False)))
