"""The client. Made from aio.py: do not edit."""

from __future__ import annotations

import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import closing
from typing import Any, Unpack, cast

import httpx

from mnesis_client import requests
from mnesis_client.connection_sync import read_answer
from mnesis_client.errors import ConnectionFailed
from mnesis_client.files_sync import Files
from mnesis_client.inputs import (
    RecordedValues,
    SearchOptions,
    SessionChanges,
    SessionFilters,
    SessionValues,
    Spoken,
    ToolResult,
    TurnOptions,
)
from mnesis_client.maps_sync import Maps
from mnesis_client.moves_sync import Moves
from mnesis_client.streams import PAUSE_SECONDS, Follower, stops, text_of
from mnesis_client.values import (
    Answer,
    Compaction,
    Context,
    Event,
    Expanded,
    Found,
    Frame,
    InboxMessage,
    Message,
    Model,
    ModelCall,
    Session,
    Summary,
    Turn,
    Verified,
)


class Client(Maps, Files, Moves):
    """Talks to one server with one key. Close it, or use it as a context manager.

    Every method raises the error that the server's code stands for, and ``ConnectionFailed`` when there is no answer.
    """

    def models(self) -> list[Model]:
        """The models that a session may use."""
        return cast(list[Model], (self._send(requests.get("models")))["items"])

    def create_session(self, **values: Unpack[SessionValues]) -> Session:
        """Create a session."""
        return cast(Session, self._send(requests.post("sessions", **values)))

    def sessions(self, **filters: Unpack[SessionFilters]) -> Iterator[Session]:
        """Every session that passes the filters, the latest first."""
        for session in self._all(requests.get("sessions", **filters)):
            yield cast(Session, session)

    def read_session(self, session_id: str) -> Session:
        """A session with its context meter and its bill. Never waits for a running turn."""
        return cast(Session, self._send(requests.get("sessions", session_id)))

    def update_session(self, session_id: str, **changes: Unpack[SessionChanges]) -> Session:
        """Rename, relabel or reconfigure a session."""
        return cast(Session, self._send(requests.patch("sessions", session_id, **changes)))

    def archive_session(self, session_id: str) -> Session:
        """Close a session for new turns; it stays readable."""
        return cast(Session, self._send(requests.post("sessions", session_id, "archive")))

    def reopen_session(self, session_id: str) -> Session:
        """Let an archived session take turns again."""
        return cast(Session, self._send(requests.post("sessions", session_id, "reopen")))

    def fork_session(
        self, session_id: str, *, at_message_id: str | None = None, before_message_id: str | None = None
    ) -> Session:
        """A new session with everything up to and including one message, or before one; a long one is waited for."""
        where = {"at_message_id": at_message_id, "before_message_id": before_message_id}
        made = self._send(requests.post("sessions", session_id, "fork", **where))
        while made.get("copied", 0) < made.get("messages", 0):
            time.sleep(PAUSE_SECONDS)
            made = self._send(requests.get("sessions", made["id"], "fork"))
        return self.read_session(made["id"])

    def start_turn(self, session_id: str, message: str, **options: Unpack[TurnOptions]) -> Turn:
        """Start a turn and return at once."""
        return cast(Turn, self._send(requests.start_turn(session_id, message, options)))

    def stream(self, session_id: str, message: str, **options: Unpack[TurnOptions]) -> Generator[Frame, None, None]:
        """Start a turn and follow it until it stops."""
        after = (self.read_session(session_id))["last_seq"]
        turn = self.start_turn(session_id, message, **options)
        with closing(self._follow(session_id, Follower(after, wants_whole_texts=True))) as frames:
            for frame in frames:
                yield frame
                if stops(frame, turn["id"]):
                    return

    def say(self, session_id: str, message: str, **options: Unpack[TurnOptions]) -> Answer:
        """Start a turn and wait until it stops."""
        return self.wait(self.start_turn(session_id, message, **options))

    def wait(self, turn: Turn) -> Answer:
        """Wait until a turn stops: it has ended, or waits for the caller or for a person."""
        session_id, turn_id = turn["session_id"], turn["id"]
        session = self.read_session(session_id)
        turn = self.read_turn(session_id, turn_id)
        if turn["state"] == "running":
            with closing(self.follow(session_id, after=session["last_seq"])) as frames:
                for frame in frames:
                    if stops(frame, turn_id):
                        break
            turn = self.read_turn(session_id, turn_id)
        return Answer(turn=turn, text=text_of(self._messages_of(turn)))

    def answer_tools(self, session_id: str, turn_id: str, results: Sequence[ToolResult]) -> Turn:
        """Give a suspended turn the results of tools that the caller runs."""
        return cast(Turn, self._send(requests.answer_tools(session_id, turn_id, results)))

    def decide_approval(self, session_id: str, part_id: str, *, approved: bool, note: str = "") -> Turn:
        """Say yes or no to a tool call that waits for it."""
        request = requests.post("sessions", session_id, "approvals", part_id, approved=approved, note=note)
        return cast(Turn, self._send(request))

    def read_turn(self, session_id: str, turn_id: str) -> Turn:
        """A turn with its state, usage and cost."""
        return cast(Turn, self._send(requests.get("sessions", session_id, "turns", turn_id)))

    def turns(self, session_id: str) -> Iterator[Turn]:
        """Every turn, newest first."""
        for turn in self._all(requests.get("sessions", session_id, "turns")):
            yield cast(Turn, turn)

    def send_message(
        self, session_id: str, text: str, *, kind: str = "message", in_reply_to: str | None = None
    ) -> InboxMessage:
        """Leave a message for a session in host mode, which reads it in a turn when it is idle."""
        return cast(InboxMessage, self._send(requests.send_message(session_id, text, kind, in_reply_to)))

    def inbox(self, session_id: str, *, waiting: bool | None = None) -> Iterator[InboxMessage]:
        """Every message to a session, oldest first: those that wait, those that were taken, or all."""
        request = requests.get("sessions", session_id, "inbox", waiting=waiting)
        for message in self._all(request, place="after", first=0):
            yield cast(InboxMessage, message)

    def interrupt(self, session_id: str) -> Turn:
        """End the running turn; what was said is kept."""
        return cast(Turn, self._send(requests.post("sessions", session_id, "interrupt")))

    def record_turn(self, session_id: str, *, user: Spoken, assistant: Spoken, **known: Unpack[RecordedValues]) -> Turn:
        """Record a turn that you ran with your own model."""
        return cast(Turn, self._send(requests.record_turn(session_id, user, assistant, known)))

    def context(self, session_id: str, *, format: str = "mnesis", at: int | None = None) -> Context:
        """What the model would see now, or saw as of event ``at``, in the format of a provider."""
        return cast(Context, self._send(requests.get("sessions", session_id, "context", format=format, at=at)))

    def messages(self, session_id: str, *, after: int = 0) -> Iterator[Message]:
        """The record after message ``after``, oldest first."""
        for message in self._all(requests.get("sessions", session_id, "messages"), place="after", first=after):
            yield cast(Message, message)

    def events(self, session_id: str, *, after: int = 0) -> Iterator[Event]:
        """The ledger after event ``after``, as far as it goes."""
        for event in self._all(requests.get("sessions", session_id, "events"), place="after", first=after):
            yield cast(Event, event)

    def follow(self, session_id: str, *, after: int = 0) -> Generator[Frame, None, None]:
        """Events after ``after``, then live ones with the running answer's text, without end.

        After a lost connection it goes on where it was. Of a text that was whole before this was asked no delta comes.

        :raises ConnectionFailed: several connections in a row brought nothing
        """
        with closing(self._follow(session_id, Follower(after))) as frames:
            for frame in frames:
                yield frame

    def calls(self, session_id: str) -> Iterator[ModelCall]:
        """Every model call, newest first."""
        for call in self._all(requests.get("sessions", session_id, "calls")):
            yield cast(ModelCall, call)

    def call_payload(self, call_id: str) -> dict[str, Any]:
        """What a model was sent, rebuilt, with its digest."""
        return cast(dict[str, Any], self._send(requests.get("calls", call_id, "payload")))

    def compact(self, session_id: str, *, wait: bool = False) -> dict[str, Any]:
        """Ask for a compaction; with ``wait``, until it is done."""
        return cast(dict[str, Any], self._send(requests.post("sessions", session_id, "compact", wait=wait)))

    def compactions(self, session_id: str) -> list[Compaction]:
        """The compactions of a session."""
        return cast(list[Compaction], (self._send(requests.get("sessions", session_id, "compactions")))["items"])

    def summaries(self, session_id: str) -> list[Summary]:
        """The summaries of a session."""
        return cast(list[Summary], (self._send(requests.get("sessions", session_id, "summaries")))["items"])

    def expand(self, summary_id: str, *, deep: bool | None = None, cursor: str | None = None) -> Expanded:
        """What a summary stands for, one step down; with ``deep``, the messages."""
        request = requests.get("summaries", summary_id, "expand", deep=deep, cursor=cursor)
        return cast(Expanded, self._send(request))

    def search(self, q: str, *, session_id: str | None = None, **options: Unpack[SearchOptions]) -> Found:
        """Search one session or all."""
        steps = ("sessions", session_id, "search") if session_id else ("search",)
        return cast(Found, self._send(requests.get(*steps, q=q, **options)))

    def verify(self, session_id: str) -> Verified:
        """Prove that a session's record is as it was written."""
        return cast(Verified, self._send(requests.post("sessions", session_id, "verify")))

    def _messages_of(self, turn: Turn) -> list[Message]:
        """The messages of a turn: near the end, unless others came after it."""
        count = (self.read_session(turn["session_id"]))["message_count"]
        for after in (max(0, count - len(turn["message_ids"])), 0):
            messages = self.messages(turn["session_id"], after=after)
            found = [message for message in messages if message["turn_id"] == turn["id"]]
            if len(found) >= len(turn["message_ids"]):
                break
        return found

    def _follow(self, session_id: str, follower: Follower) -> Generator[Frame, None, None]:
        while True:
            try:
                with closing(self._connection(session_id, follower)) as frames:
                    for frame in frames:
                        yield frame
            except httpx.TransportError as problem:
                if not follower.lost():
                    raise ConnectionFailed(str(problem)) from problem
            time.sleep(PAUSE_SECONDS)

    def _connection(self, session_id: str, follower: Follower) -> Generator[Frame, None, None]:
        """What one connection brings, until it ends."""
        request = requests.follow(session_id, after=follower.seq)
        with self._http.stream(
            "GET", request.path, params=request.params, headers=requests.EVENTS, timeout=self._following
        ) as answer:
            if answer.status_code != httpx.codes.OK:
                answer.read()
                read_answer(answer)
            for line in answer.iter_lines():
                frame = follower.read(line)
                if frame is None:
                    continue
                if seq := follower.missed(frame):
                    for text in follower.texts_of(self._message(session_id, seq)):
                        yield text
                yield frame
        raise httpx.ReadError("the server ended the stream")

    def _message(self, session_id: str, seq: int) -> Message:
        request = requests.get("sessions", session_id, "messages", after=seq - 1, limit=1)
        return cast(Message, (self._send(request))["items"][0])
