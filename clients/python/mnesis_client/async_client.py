"""The client: its connection to one server with one key, and its methods in the order of the REST API.

client.py, the one that blocks, is made from async_client.py: edit that one and run make format.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import aclosing
from pathlib import Path
from typing import Any, Literal, Self, TypeVar, Unpack, cast

import httpx

from mnesis_client import requests, values
from mnesis_client.errors import ConnectionFailed, MnesisError, read_answer
from mnesis_client.streams import ATTEMPTS, PAUSE_SECONDS, READ_SECONDS, Follower, stops, text_of

LOOK_SECONDS = 0.5
LONGEST_QUESTION = 1_000
"""Characters of a question that are sent to find passages for it; it goes into an address."""
T = TypeVar("T")


class AsyncConnection:
    """One server, asked with one key. Close it, or use it as a context manager."""

    def __init__(self, url: str, *, key: str, timeout_seconds: float = 60.0) -> None:
        headers = {"Authorization": f"Bearer {key}"}
        self._follow_timeout = httpx.Timeout(timeout_seconds, read=READ_SECONDS)
        self._http = httpx.AsyncClient(base_url=url, headers=headers, timeout=timeout_seconds)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        await self._http.aclose()

    async def _send(self, kind: type[T], request: requests.Request) -> T:
        return cast(T, read_answer(await self._answer(request)))

    async def _items(self, request: requests.Request) -> list[Any]:
        return (await self._send(values.Page[Any], request))["items"]

    async def _pages(
        self, request: requests.Request, *, parameter: str = "cursor", first: int | None = None
    ) -> AsyncIterator[Any]:
        cursor: str | int | None = first
        while True:
            page = await self._send(values.Page[Any], request.page(parameter, cursor))
            for item in page["items"]:
                yield item
            cursor = page["next_cursor"]
            if cursor is None:
                return

    async def _answer(self, request: requests.Request) -> httpx.Response:
        """Return a successful answer; a safe request is sent again after a lost connection."""
        left = ATTEMPTS if request.is_safe else 1
        while True:
            left -= 1
            try:
                answer = await self._http.request(
                    request.method,
                    request.path,
                    params=request.params,
                    json=request.body,
                    headers=request.headers,
                    content=request.content,
                    data=request.form,
                    files=request.attached,
                )
            except httpx.TransportError as problem:
                if not left:
                    raise ConnectionFailed(str(problem)) from problem
                await asyncio.sleep(PAUSE_SECONDS)
            else:
                return answer if answer.is_success else read_answer(answer)

    async def _bytes(self, request: requests.Request) -> AsyncGenerator[bytes, None]:
        try:
            async with self._http.stream(request.method, request.path, params=request.params) as answer:
                if not answer.is_success:
                    await answer.aread()
                    read_answer(answer)
                async for piece in answer.aiter_bytes():
                    yield piece
        except httpx.TransportError as problem:
            raise ConnectionFailed(str(problem)) from problem

    async def _frames(self, session_id: str, follower: Follower) -> AsyncGenerator[values.Frame, None]:
        while True:
            try:
                async with aclosing(self._frames_of_connection(session_id, follower)) as frames:
                    async for frame in frames:
                        yield frame
            except httpx.TransportError as problem:
                if not follower.lost():
                    raise ConnectionFailed(str(problem)) from problem
            await asyncio.sleep(PAUSE_SECONDS)

    async def _frames_of_connection(self, session_id: str, follower: Follower) -> AsyncGenerator[values.Frame, None]:
        request = requests.get("sessions", session_id, "events", after=follower.seq)
        headers = {"Accept": "text/event-stream"}
        async with self._http.stream(
            "GET", request.path, params=request.params, headers=headers, timeout=self._follow_timeout
        ) as answer:
            if answer.status_code != httpx.codes.OK:
                await answer.aread()
                read_answer(answer)
            async for line in answer.aiter_lines():
                frame = follower.read(line)
                if frame is None:
                    continue
                if seq := follower.missed(frame):
                    found = requests.get("sessions", session_id, "messages", after=seq - 1, limit=1)
                    [message] = await self._items(found)
                    for text in follower.missed_texts(message):
                        yield text
                yield frame
        raise httpx.ReadError("the server ended the stream")


class AsyncClient(AsyncConnection):
    """Talks to one server with one key. Close it, or use it as a context manager.

    :raises MnesisError: from every method, when the server answers an error
    :raises ConnectionFailed: from every method, when no answer arrives
    """

    async def models(self) -> list[values.Model]:
        return await self._items(requests.get("models"))

    async def create_session(self, **given: Unpack[requests.SessionValues]) -> values.Session:
        return await self._send(values.Session, requests.post("sessions", **given))

    def sessions(self, **filters: Unpack[requests.SessionFilters]) -> AsyncIterator[values.Session]:
        """Iterate over every session that passes the filters, latest first."""
        return self._pages(requests.get("sessions", **filters))

    async def read_session(self, session_id: str) -> values.Session:
        """Return a session with its context meter and its bill. This never waits for a running turn."""
        return await self._send(values.Session, requests.get("sessions", session_id))

    async def update_session(self, session_id: str, **changes: Unpack[requests.SessionChanges]) -> values.Session:
        return await self._send(values.Session, requests.patch("sessions", session_id, **changes))

    async def archive_session(self, session_id: str) -> values.Session:
        """Close a session for new turns; it stays readable."""
        return await self._send(values.Session, requests.post("sessions", session_id, "archive"))

    async def reopen_session(self, session_id: str) -> values.Session:
        """Let an archived session take turns again."""
        return await self._send(values.Session, requests.post("sessions", session_id, "reopen"))

    async def keep_session(self, session_id: str) -> values.Session:
        """Let a temporary chat be a session like any other."""
        return await self._send(values.Session, requests.post("sessions", session_id, "keep"))

    async def trash_session(self, session_id: str) -> values.Session:
        """Hide a session and those of its sub-agents until they are restored."""
        return await self._send(values.Session, requests.post("sessions", session_id, "trash"))

    async def restore_session(self, session_id: str) -> values.Session:
        """Take a session out of the trash, with the sub-agents' that were moved there with it."""
        return await self._send(values.Session, requests.post("sessions", session_id, "restore"))

    async def delete_session(self, session_id: str) -> None:
        """Hide a session for good, in the trash or not."""
        await self._send(dict[str, Any], requests.delete("sessions", session_id))

    async def share_session(self, session_id: str, **share: Unpack[requests.ShareValues]) -> values.Share:
        """Make a link to a session as it is now, up to one message."""
        return await self._send(values.Share, requests.post("sessions", session_id, "shares", **share))

    def shares(self, session_id: str) -> AsyncIterator[values.Share]:
        """Iterate over the links to a session, newest first; revoked and expired ones too."""
        return self._pages(requests.get("sessions", session_id, "shares"))

    async def revoke_share(self, session_id: str, share_id: str) -> values.Share:
        """Let a link open nothing any more."""
        return await self._send(values.Share, requests.delete("sessions", session_id, "shares", share_id))

    async def rate_answer(
        self, session_id: str, message_id: str, thumb: Literal["up", "down", ""], *, comment: str = ""
    ) -> values.Rating:
        """Say that an answer is good or not; an empty thumb takes an earlier rating back."""
        body = {"thumb": thumb, "comment": comment}
        return await self._send(
            values.Rating, requests.put("sessions", session_id, "messages", message_id, "rating", **body)
        )

    def ratings(self, session_id: str) -> AsyncIterator[values.Rating]:
        """Iterate over the ratings of a session's answers that count, newest first."""
        return self._pages(requests.get("sessions", session_id, "ratings"))

    def assistants(self) -> AsyncIterator[values.Assistant]:
        """Iterate over the assistants that you may use, newest first, each as its newest version."""
        return self._pages(requests.get("assistants"))

    async def create_assistant(self, **settings: Unpack[requests.AssistantSettings]) -> values.Assistant:
        return await self._send(values.Assistant, requests.post("assistants", **settings))

    async def read_assistant(self, assistant_id: str) -> values.Assistant:
        return await self._send(values.Assistant, requests.get("assistants", assistant_id))

    async def update_assistant(
        self, assistant_id: str, **settings: Unpack[requests.AssistantSettings]
    ) -> values.Assistant:
        """Make a new version of an assistant of yours, or change who may use it; sessions keep the version they have."""
        return await self._send(values.Assistant, requests.patch("assistants", assistant_id, **settings))

    async def delete_assistant(self, assistant_id: str) -> None:
        """Remove an assistant of yours. Its sessions keep what they had."""
        await self._send(dict[str, Any], requests.delete("assistants", assistant_id))

    def assistant_versions(self, assistant_id: str) -> AsyncIterator[values.Assistant]:
        """Iterate over the versions of an assistant, newest first."""
        return self._pages(requests.get("assistants", assistant_id, "versions"))

    async def add_assistant_file(
        self, assistant_id: str, path: str | Path, *, name: str | None = None
    ) -> values.Assistant:
        """Make a new version of an assistant of yours, with a file of this machine, in place of one of the same name."""
        with requests.opened_files([path]) as [(own_name, file)]:
            request = requests.upload_of_assistant(assistant_id, "files", name or own_name, file)
            return await self._send(values.Assistant, request)

    async def remove_assistant_file(self, assistant_id: str, file_id: str) -> values.Assistant:
        """Make a new version of an assistant of yours, without a file. Sessions that have it keep it."""
        return await self._send(values.Assistant, requests.delete("assistants", assistant_id, "files", file_id))

    async def set_assistant_picture(self, assistant_id: str, path: str | Path) -> values.Assistant:
        """Make a new version of an assistant of yours, with a picture of this machine beside its name, at most 1 MB."""
        with requests.opened_files([path]) as [(name, file)]:
            request = requests.upload_of_assistant(assistant_id, "picture", name, file)
            return await self._send(values.Assistant, request)

    async def remove_assistant_picture(self, assistant_id: str) -> values.Assistant:
        """Make a new version of an assistant of yours, without its picture."""
        return await self._send(values.Assistant, requests.delete("assistants", assistant_id, "picture"))

    def prompts(self, *, q: str = "") -> AsyncIterator[values.SavedPrompt]:
        """Iterate over the saved prompts that you may use, newest first; ``q`` is part of a name or a title."""
        return self._pages(requests.get("prompts", q=q or None))

    async def create_prompt(self, **settings: Unpack[requests.PromptSettings]) -> values.SavedPrompt:
        return await self._send(values.SavedPrompt, requests.post("prompts", **settings))

    async def read_prompt(self, prompt_id: str) -> values.SavedPrompt:
        return await self._send(values.SavedPrompt, requests.get("prompts", prompt_id))

    async def update_prompt(self, prompt_id: str, **settings: Unpack[requests.PromptSettings]) -> values.SavedPrompt:
        return await self._send(values.SavedPrompt, requests.patch("prompts", prompt_id, **settings))

    async def delete_prompt(self, prompt_id: str) -> None:
        await self._send(dict[str, Any], requests.delete("prompts", prompt_id))

    def projects(self) -> AsyncIterator[values.Project]:
        """Iterate over the projects of which you are a member, newest first."""
        return self._pages(requests.get("projects"))

    async def create_project(self, **settings: Unpack[requests.ProjectSettings]) -> values.Project:
        return await self._send(values.Project, requests.post("projects", **settings))

    async def read_project(self, project_id: str) -> values.Project:
        return await self._send(values.Project, requests.get("projects", project_id))

    async def update_project(self, project_id: str, **settings: Unpack[requests.ProjectSettings]) -> values.Project:
        """Change a project of yours; new instructions hold from the next message on."""
        return await self._send(values.Project, requests.patch("projects", project_id, **settings))

    async def delete_project(self, project_id: str) -> None:
        """Delete a project of yours. Its sessions stay, and are in none."""
        await self._send(dict[str, Any], requests.delete("projects", project_id))

    async def leave_project(self, project_id: str) -> None:
        """Stop being a member. Your sessions stay yours, and are in no project."""
        await self._send(dict[str, Any], requests.post("projects", project_id, "leave"))

    def project_files(self, project_id: str) -> AsyncIterator[values.ProjectFile]:
        """Iterate over the files that the sessions of a project are given."""
        return self._pages(requests.get("projects", project_id, "files"))

    async def remove_project_file(self, project_id: str, file_id: str) -> None:
        """Give a file to no more sessions; those that have it keep it."""
        await self._send(dict[str, Any], requests.delete("projects", project_id, "files", file_id))

    def project_members(self, project_id: str) -> AsyncIterator[values.ProjectMember]:
        """Iterate over those who have a project, its owner first."""
        return self._pages(requests.get("projects", project_id, "members"))

    async def add_project_member(self, project_id: str, name: str) -> None:
        """Let the person of this username have a project of yours."""
        await self._send(dict[str, Any], requests.post("projects", project_id, "members", name=name))

    async def remove_project_member(self, project_id: str, member_id: str) -> None:
        await self._send(dict[str, Any], requests.delete("projects", project_id, "members", member_id))

    async def fork_session(
        self, session_id: str, *, at_message_id: str | None = None, before_message_id: str | None = None
    ) -> values.Session:
        """Copy a session up to and including one message, or up to before one, and wait until all is copied."""
        where = {"at_message_id": at_message_id, "before_message_id": before_message_id}
        made = await self._send(dict[str, Any], requests.post("sessions", session_id, "fork", **where))
        while made.get("copied", 0) < made.get("messages", 0):
            await asyncio.sleep(PAUSE_SECONDS)
            made = await self._send(dict[str, Any], requests.get("sessions", made["id"], "fork"))
        return await self.read_session(made["id"])

    async def start_turn(
        self, session_id: str, message: str | None, **options: Unpack[requests.TurnOptions]
    ) -> values.Turn:
        """Start a turn and return at once.

        With ``parent_id`` it continues that message, on a branch of its own where others do so already. Without a message
        and ``parts`` it answers again what a user said there.
        """
        request = requests.post_keyed("sessions", session_id, "turns", message=message, **options)
        return await self._send(values.Turn, request)

    async def stream(
        self, session_id: str, message: str | None, **options: Unpack[requests.TurnOptions]
    ) -> AsyncGenerator[values.Frame, None]:
        """Start a turn and follow it until it stops."""
        after = (await self.read_session(session_id))["last_seq"]
        turn = await self.start_turn(session_id, message, **options)
        async with aclosing(self._frames(session_id, Follower(after, wants_whole_texts=True))) as frames:
            async for frame in frames:
                yield frame
                if stops(frame, turn["id"]):
                    return

    async def say(self, session_id: str, message: str | None, **options: Unpack[requests.TurnOptions]) -> values.Answer:
        """Start a turn and wait until it stops."""
        return await self.wait(await self.start_turn(session_id, message, **options))

    async def wait(self, turn: values.Turn) -> values.Answer:
        """Wait until a turn stops: it has ended, or waits for the caller or for a person."""
        session_id, turn_id = turn["session_id"], turn["id"]
        session = await self.read_session(session_id)
        turn = await self.read_turn(session_id, turn_id)
        if turn["state"] == "running":
            async with aclosing(self.follow(session_id, after=session["last_seq"])) as frames:
                async for frame in frames:
                    if stops(frame, turn_id):
                        break
            turn = await self.read_turn(session_id, turn_id)
        # Its messages are the last of the session, unless another turn came after this one.
        count = (await self.read_session(session_id))["message_count"]
        for after in (max(0, count - len(turn["message_ids"])), 0):
            found = [one async for one in self.messages(session_id, after=after) if one["turn_id"] == turn_id]
            if len(found) >= len(turn["message_ids"]):
                break
        return values.Answer(turn=turn, text=text_of(found))

    async def answer_tools(self, session_id: str, turn_id: str, results: Sequence[requests.ToolResult]) -> values.Turn:
        """Give a suspended turn the results of tools that the caller runs, or a person's answers to ``ask_user``."""
        request = requests.post("sessions", session_id, "turns", turn_id, "tool-results", results=[*results])
        return await self._send(values.Turn, request)

    async def decide_approval(self, session_id: str, part_id: str, *, approved: bool, note: str = "") -> values.Turn:
        """Approve or refuse a tool call that waits for a decision."""
        request = requests.post("sessions", session_id, "approvals", part_id, approved=approved, note=note)
        return await self._send(values.Turn, request)

    async def read_turn(self, session_id: str, turn_id: str) -> values.Turn:
        return await self._send(values.Turn, requests.get("sessions", session_id, "turns", turn_id))

    def turns(self, session_id: str) -> AsyncIterator[values.Turn]:
        """Iterate over every turn, newest first."""
        return self._pages(requests.get("sessions", session_id, "turns"))

    async def send_message(
        self, session_id: str, text: str, *, kind: str = "message", in_reply_to: str | None = None
    ) -> values.InboxMessage:
        """Leave a message for a session in host mode, which reads it in a turn when it is idle."""
        request = requests.post_keyed("sessions", session_id, "inbox", text=text, kind=kind, in_reply_to=in_reply_to)
        return await self._send(values.InboxMessage, request)

    def inbox(self, session_id: str, *, waiting: bool | None = None) -> AsyncIterator[values.InboxMessage]:
        """Iterate over the messages to a session, oldest first: those that wait, those that were read, or all."""
        request = requests.get("sessions", session_id, "inbox", waiting=waiting)
        return self._pages(request, parameter="after", first=0)

    async def interrupt(self, session_id: str) -> values.Turn:
        """End the running turn. What the model wrote is kept."""
        return await self._send(values.Turn, requests.post("sessions", session_id, "interrupt"))

    async def record_turn(
        self,
        session_id: str,
        *,
        user: requests.Spoken,
        assistant: requests.Spoken,
        **known: Unpack[requests.RecordedValues],
    ) -> values.Turn:
        """Record a turn that you ran with your own model."""
        request = requests.post_keyed("sessions", session_id, "record", user=user, assistant=assistant, **known)
        return await self._send(values.Turn, request)

    async def context(
        self, session_id: str, *, format: str = "mnesis", at: int | None = None, question: str = ""
    ) -> values.Context:
        """Return what the model would see now, or saw as of event ``at``, in the format of a provider.

        With the beginning of the ``question`` that will be asked next, passages that may answer it are at the end.
        """
        asked = question[:LONGEST_QUESTION] or None
        request = requests.get("sessions", session_id, "context", format=format, at=at, question=asked)
        return await self._send(values.Context, request)

    def messages(self, session_id: str, *, after: int = 0, branch: int | None = None) -> AsyncIterator[values.Message]:
        """Iterate over the messages after message ``after``, oldest first: all of them, or those to the end of a branch."""
        request = requests.get("sessions", session_id, "messages", branch=branch)
        return self._pages(request, parameter="after", first=after)

    def tool_interactions(
        self, session_id: str, **filters: Unpack[requests.InteractionFilters]
    ) -> AsyncIterator[values.ToolInteraction]:
        """Iterate over tool calls with their results, oldest first."""
        return self._pages(requests.get("sessions", session_id, "tool-interactions", **filters))

    def facts(self, session_id: str, **filters: Unpack[requests.FactFilters]) -> AsyncIterator[values.Fact]:
        """Iterate over facts of a session, newest first, those that hold no longer among them."""
        return self._pages(requests.get("sessions", session_id, "facts", **filters))

    async def remember(
        self, session_id: str, statement: str, *, kind: str, **given: Unpack[requests.FactValues]
    ) -> values.Fact:
        """Write a fact. With a ``quote`` it is refused unless these words were said."""
        request = requests.post("sessions", session_id, "facts", statement=statement, kind=kind, **given)
        return await self._send(values.Fact, request)

    async def correct_fact(
        self, session_id: str, fact_id: str, statement: str, **given: Unpack[requests.FactValues]
    ) -> values.Fact:
        """Write another fact that supersedes this one, and return it."""
        request = requests.post("sessions", session_id, "facts", fact_id, "correct", statement=statement, **given)
        return await self._send(values.Fact, request)

    async def withdraw_fact(self, session_id: str, fact_id: str) -> values.Fact:
        """Say that a fact does not hold. It stays readable."""
        return await self._send(values.Fact, requests.post("sessions", session_id, "facts", fact_id, "withdraw"))

    async def forbid_fact(self, session_id: str, fact_id: str) -> values.Fact:
        """Withdraw a fact, and keep what it says from being noted again in the session."""
        return await self._send(values.Fact, requests.post("sessions", session_id, "facts", fact_id, "forbid"))

    async def allow_fact(self, session_id: str, fact_id: str) -> values.Fact:
        """Let what a forbidden fact says be noted again. The fact itself stays withdrawn."""
        return await self._send(values.Fact, requests.post("sessions", session_id, "facts", fact_id, "allow"))

    async def hold_fact(
        self, session_id: str, fact_id: str, held_for: Literal["session", "person", "project", "organisation"]
    ) -> values.Fact:
        """Let a fact reach the prompts of other sessions: yours, the project's or the organisation's; ``session`` lets it go."""
        request = requests.post("sessions", session_id, "facts", fact_id, "hold", held_for=held_for)
        return await self._send(values.Fact, request)

    def held_facts(self, *, project_id: str | None = None) -> AsyncIterator[values.HeldFact]:
        """Iterate over the facts that reach your sessions, or those held for one of your projects, the newest first."""
        return self._pages(requests.get("memory", project_id=project_id))

    async def let_go(self, fact_id: str) -> values.LetGo:
        """Let a held fact reach no session but its own."""
        return await self._send(values.LetGo, requests.post("memory", fact_id, "let-go"))

    async def branches(self, session_id: str) -> list[values.Branch]:
        """Return every branch of a session, beginning with the one that it began with."""
        return await self._items(requests.get("sessions", session_id, "branches"))

    async def choose_branch(self, session_id: str, branch: int) -> list[values.Branch]:
        """Choose the branch that the next message continues and that models see, and return every branch."""
        return await self._items(requests.post("sessions", session_id, "branches", "choose", branch=branch))

    def events(self, session_id: str, *, after: int = 0) -> AsyncIterator[values.Event]:
        """Iterate over the events after event ``after`` that are in the ledger now."""
        return self._pages(requests.get("sessions", session_id, "events"), parameter="after", first=after)

    def follow(self, session_id: str, *, after: int = 0) -> AsyncGenerator[values.Frame, None]:
        """Iterate without end over the events after ``after``, then over new ones and the running answer's text.

        A lost connection is opened again where it broke off. A text that was complete before the call has no deltas.

        :raises ConnectionFailed: several connections in a row brought nothing
        """
        return self._frames(session_id, Follower(after))

    def calls(self, session_id: str) -> AsyncIterator[values.ModelCall]:
        """Iterate over every model call, newest first."""
        return self._pages(requests.get("sessions", session_id, "calls"))

    async def call_payload(self, call_id: str) -> dict[str, Any]:
        """Return what a model was sent, rebuilt from the record, with its digest."""
        return await self._send(dict[str, Any], requests.get("calls", call_id, "payload"))

    async def compact(
        self, session_id: str, *, wait: bool = False, turn_ids: Sequence[str] | None = None
    ) -> dict[str, Any]:
        """Ask for a compaction, of these turns alone if some are named, and with ``wait`` return only when it is done."""
        asked = requests.post("sessions", session_id, "compact", wait=wait, turn_ids=turn_ids and list(turn_ids))
        return await self._send(dict[str, Any], asked)

    async def compactions(self, session_id: str) -> list[values.Compaction]:
        return await self._items(requests.get("sessions", session_id, "compactions"))

    async def summaries(self, session_id: str) -> list[values.Summary]:
        return await self._items(requests.get("sessions", session_id, "summaries"))

    async def expand(self, summary_id: str, *, deep: bool | None = None, cursor: str | None = None) -> values.Expanded:
        """Return what a summary stands for, one level down, or the messages with ``deep``."""
        request = requests.get("summaries", summary_id, "expand", deep=deep, cursor=cursor)
        return await self._send(values.Expanded, request)

    def claims(self, summary_id: str) -> AsyncIterator[values.Claim]:
        """Iterate over the sentences of a summary, each with the messages that it rests on; none before a worker found them."""
        return self._pages(requests.get("summaries", summary_id, "claims"))

    async def search(
        self, q: str, *, session_id: str | None = None, **options: Unpack[requests.SearchOptions]
    ) -> values.Found:
        steps = ("sessions", session_id, "search") if session_id else ("search",)
        return await self._send(values.Found, requests.get(*steps, q=q, **options))

    async def verify(self, session_id: str) -> values.Verified:
        """Prove that a session's record is as it was written."""
        return await self._send(values.Verified, requests.post("sessions", session_id, "verify"))

    async def upload_file(self, session_id: str, path: str | Path, *, name: str | None = None) -> values.File:
        """Give a session a file of this machine. A large one resumes after a lost connection."""
        source = requests.LocalFile(path, name)
        if source.size <= requests.PIECE_BYTES:
            return await self._send(values.File, requests.upload(session_id, source.name, source.piece(0)))
        begun = await self._answer(requests.begin_upload(session_id, source.name, source.size))
        upload_id, offset, left = begun.headers["Location"].rpartition("/")[2], 0, ATTEMPTS
        while True:
            try:
                answer = await self._answer(requests.upload_piece(upload_id, offset, source.piece(offset)))
                left = ATTEMPTS
            except MnesisError as problem:
                left -= 1
                # A request that was cut off may hold the upload for a moment; conflicts with another code stay.
                if not left or not (isinstance(problem, ConnectionFailed) or problem.code == "CONFLICT"):
                    raise
                await asyncio.sleep(PAUSE_SECONDS)
                try:
                    answer = await self._answer(requests.upload_offset(upload_id))
                except MnesisError as gone:
                    if gone.status != httpx.codes.NOT_FOUND:
                        raise
                    return await self._uploaded(session_id, source)
            offset = int(answer.headers["Upload-Offset"])
            if file_id := answer.headers.get("Mnesis-File"):
                return await self.read_file(file_id)

    def files(self, session_id: str | None = None) -> AsyncIterator[values.File]:
        """Iterate over every file of a session, or of all, newest first."""
        return self._pages(requests.get("files", session_id=session_id))

    async def read_file(self, file_id: str) -> values.File:
        """Return what is known of a file, not its content."""
        return await self._send(values.File, requests.get("files", file_id))

    async def file_lines(self, file_id: str, *, first: int = 1, limit: int | None = None) -> values.FileLines:
        return await self._send(values.FileLines, requests.get("files", file_id, "lines", first=first, limit=limit))

    async def search_file(
        self, file_id: str, q: str, **options: Unpack[requests.FileSearchOptions]
    ) -> values.FileFound:
        return await self._send(values.FileFound, requests.get("files", file_id, "search", q=q, **options))

    async def llm_map(self, template: str, **given: Unpack[requests.MapValues]) -> values.MapRun:
        """Begin to ask a model about each item; workers do it after this returns."""
        return await self._send(values.MapRun, requests.post_keyed("operators", "llm-map", template=template, **given))

    async def agentic_map(self, template: str, **given: Unpack[requests.AgenticMapValues]) -> values.MapRun:
        """Begin to have a sub-agent work on each item; workers do it after this returns."""
        request = requests.post_keyed("operators", "agentic-map", template=template, **given)
        return await self._send(values.MapRun, request)

    async def read_map(self, run_id: str) -> values.MapRun:
        """Return a run with its progress and its first failures."""
        return await self._send(values.MapRun, requests.get("operators", run_id))

    def maps(self, session_id: str | None = None) -> AsyncIterator[values.MapRun]:
        """Iterate over every run of a session, or of all, newest first."""
        return self._pages(requests.get("operators", session_id=session_id))

    async def wait_map(self, run: values.MapRun) -> values.MapRun:
        """Wait until a run is over or paused."""
        while (run := await self.read_map(run["id"]))["state"] in ("pending", "running"):
            await asyncio.sleep(LOOK_SECONDS)
        return run

    async def pause_map(self, run_id: str) -> values.MapRun:
        """Begin no more items of a run; those that have begun are completed."""
        return await self._send(values.MapRun, requests.post("operators", run_id, "pause"))

    async def resume_map(self, run_id: str) -> values.MapRun:
        """Go on with a run that was paused or cancelled."""
        return await self._send(values.MapRun, requests.post("operators", run_id, "resume"))

    async def cancel_map(self, run_id: str) -> values.MapRun:
        """Stop a run; its results are kept."""
        return await self._send(values.MapRun, requests.post("operators", run_id, "cancel"))

    async def retry_map(self, run_id: str) -> values.MapRun:
        """Try the failed items again."""
        return await self._send(values.MapRun, requests.post("operators", run_id, "retry"))

    def map_items(self, run_id: str, *, state: str | None = None) -> AsyncIterator[values.MapItem]:
        """Iterate over all items or those in one state, in the order of the input."""
        return self._pages(requests.get("operators", run_id, "items", state=state), parameter="after", first=0)

    async def read_map_item(self, run_id: str, item: int) -> values.MapItem:
        """Return one item with every try at it."""
        return await self._send(values.MapItem, requests.get("operators", run_id, "items", str(item)))

    def map_results(self, run_id: str) -> AsyncGenerator[values.MapResult, None]:
        """Iterate over the results that there are now, in the order of the input."""
        return self._results(requests.get("operators", run_id, "output.jsonl"))

    def follow_map(self, run_id: str, *, after: int = 0) -> AsyncGenerator[values.MapResult, None]:
        """Iterate over results as their items end, until the run is over. A paused run is waited for.

        :param after: the ``seq`` of a result; only results of later events come
        :raises ConnectionFailed: the connection broke off; go on after the ``seq`` before the last one
        """
        return self._results(requests.get("operators", run_id, "results.jsonl", after=after))

    async def export_session(
        self, session_id: str, path: str | Path, *, format: Literal["jsonl", "markdown", "html"] = "jsonl"
    ) -> Path:
        """Write a whole session into a file. Only ``jsonl`` may be imported again."""
        return await self._save(requests.get("sessions", session_id, "export", format=format), path)

    async def export_all(self, path: str | Path, *, format: Literal["jsonl", "markdown", "html"] = "jsonl") -> Path:
        """Write all sessions but the deleted ones into a file: as ``jsonl``, which may be imported again, or as a zip to read."""
        return await self._save(requests.get("export", format=format), path)

    async def _save(self, request: requests.Request, path: str | Path) -> Path:
        with requests.whole_file(path) as file:
            async with aclosing(self._bytes(request)) as pieces:
                async for piece in pieces:
                    file.write(piece)
        return Path(path)

    async def import_files(self, *paths: str | Path, model: str | None = None) -> values.Import:
        """Begin to import exports of a site and conversations of other programs; a worker does it after this returns.

        Repeating an import adds only what is new.

        :param model: the model of the sessions that conversations of other programs become
        """
        with requests.opened_files(paths) as files:
            return await self._send(values.Import, requests.import_files(files, model))

    async def read_import(self, import_id: str) -> values.Import:
        """Return the progress of an import, which is known for a day."""
        return await self._send(values.Import, requests.get("sessions", "import", import_id))

    async def wait_import(self, begun: values.Import) -> values.Import:
        """Wait until an import is done or has failed."""
        while (begun := await self.read_import(begun["id"]))["state"] in ("waiting", "running"):
            await asyncio.sleep(LOOK_SECONDS)
        return begun

    async def _uploaded(self, session_id: str, source: requests.LocalFile) -> values.File:
        """Return the file of an upload that was complete when only the answer was lost."""
        digest = source.digest()
        async for file in self.files(session_id):
            if file["content_id"] == digest:
                return file
        raise MnesisError("UPLOAD_NOT_FOUND", "The upload is gone. Begin it again.", status=httpx.codes.NOT_FOUND)

    async def _results(self, request: requests.Request) -> AsyncGenerator[values.MapResult, None]:
        async with aclosing(self._bytes(request)) as pieces:
            rest = b""
            async for piece in pieces:
                *lines, rest = (rest + piece).split(b"\n")
                for line in lines:
                    yield cast(values.MapResult, json.loads(line))
