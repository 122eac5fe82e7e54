"""The base of commands about sessions: their user, JSON on request, errors with the registry's exit status, turns that print."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sys
from argparse import ArgumentParser
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from itertools import chain
from pathlib import Path
from typing import IO, Any

from django.core.management.base import CommandError

from agents_app.schemas import DecisionIn
from agents_app.turns import lifecycle
from agents_app.turns.claim import ToolResult
from agents_app.turns.runner import runner
from files_app.intake import CHUNK_BYTES, chunks_of, keep_file
from mnesis_core.errors import InvalidRequest, MnesisError, SessionNotRunning, TurnCancelled
from mnesis_core.events import EventType
from mnesis_core.messages import ToolPart, ToolState
from mnesis_core.providers.litellm_ import close_connections
from mnesis_core.records import TurnRecord, TurnState
from mnesis_core.text import excerpt, printable
from sessions_app.database.outages import to_error
from sessions_app.database.threads import db
from sessions_app.live import Frame, follow
from sessions_app.management.acting import RecordCommand
from sessions_app.pages.markdown import show_invisible
from sessions_app.record.message_queries import load_part
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import load_turn, open_turn
from sessions_app.schemas import JSONEncoder

PIPED = "-"  # the word of a message, or the path, that stands for what is piped in
LINE = 100  # characters of a tool's arguments that are shown
Begin = Callable[[], Awaitable[TurnRecord]]
Show = Callable[[str], None]  # takes pieces of the answer, or lines about what happens beside it


class EndpointCommand(RecordCommand):
    def add_common(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", help="whose sessions (default: the first administrator)")
        parser.add_argument("--json", action="store_true", dest="as_json", help="print JSON, errors too")

    def add_files(self, parser: ArgumentParser) -> None:
        told = "a file that goes with the message, such as a picture or a PDF; give it again for another"
        parser.add_argument("--file", metavar="PATH", action="append", default=[], dest="files", help=told)

    def execute(self, *args: Any, **options: Any) -> str | None:
        """Run, and turn any error into an exit status and a line on standard error.

        :raises CommandError: the command failed.
        """
        try:
            return super().execute(*args, **options)
        except CommandError:
            raise
        except KeyboardInterrupt:
            raise SystemExit(TurnCancelled.exit_status) from None
        except BrokenPipeError:
            # The reader of the output has enough of it; Python would write the rest at its end, and complain.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            raise SystemExit(1) from None
        except Exception as exception:
            error = to_error(exception, asked=f"the command {self.__module__.rpartition('.')[2]}")
            if options.get("as_json"):
                self.print_json({"error": error.as_dict()})
            raise failed(error) from None

    def handle(self, *args: Any, **options: Any) -> None:
        """Run the verb of a command that has several, such as ``do_list`` for ``list``."""
        getattr(self, f"do_{options['verb']}")(options)

    def show(self, value: Callable[[], Any], lines: Callable[[], Iterable[str]], *, as_json: bool) -> None:
        """Print a value as JSON, or else lines about it for people; only the one that is printed is made."""
        if as_json:
            self.print_json(value())
            return
        for line in lines():
            self.stdout.write(self.readable(line))

    def print_json(self, value: Any) -> None:
        # Lone surrogates stay escaped.
        self.stdout.write(json.dumps(value, cls=JSONEncoder, indent=2))

    def print_text(self, text: str) -> None:
        self.stdout.write(self.readable(text), ending="")
        self.stdout.flush()

    def print_note(self, text: str) -> None:
        self.stderr.write(show_invisible(text), style_func=str)

    def readable(self, text: str) -> str:
        """Return a text for the output: whole for a program, and without control characters for a terminal."""
        return show_invisible(text) if self.stdout.isatty() else printable(text)


def failed(error: MnesisError) -> CommandError:
    return CommandError(show_invisible(f"{error.code}: {error.message}"), returncode=error.exit_status)


def read_message(words: Sequence[str], source: IO[str] | None = None, *, may_be_silent: bool = False) -> str:
    """Return the message of a command's words; ``-``, or no word at all, stands for what is piped in.

    :param may_be_silent: whether the message may be empty at a terminal, where files say what there is to say
    :raises InvalidRequest: there is neither a word nor a pipe.
    """
    source = source or sys.stdin
    if words and PIPED not in words:
        return " ".join(words)
    if source.isatty():
        if may_be_silent and not words:
            return ""
        raise InvalidRequest("Say something: as an argument, or piped into this command.", field="message")
    said = [" ".join(word for word in words if word != PIPED), source.read()]
    return "\n\n".join(text for text in said if text.strip())


@contextmanager
def opened(path: str) -> Iterator[IO[bytes]]:
    """Open a file of this machine, or standard input for ``-``.

    :raises InvalidRequest: the file cannot be opened.
    """
    if path == PIPED:
        yield sys.stdin.buffer
        return
    try:
        file = Path(path).open("rb")  # noqa: SIM115 - closed below; what is done with it may fail otherwise
    except (OSError, ValueError) as problem:  # ValueError: it is no path at all
        reason = problem.strerror if isinstance(problem, OSError) else "it is not a path"
        raise InvalidRequest(f"{path} cannot be read: {reason}", field="path") from None
    with file:
        yield file


def keep_attached(session_id: str, paths: Sequence[str], *, owner_id: int) -> list[str]:
    """Keep files of this machine that go with a message of a session, and return their ids.

    :raises InvalidRequest: there are too many, or one cannot be opened, or is empty. Nothing is kept then.
    :raises MnesisError: see ``keep_file``
    """
    lifecycle.check_count(paths, "file")
    ids = []
    with ExitStack() as stack:
        sources = {path: stack.enter_context(opened(path)) for path in paths}
        beginnings = {path: source.read(CHUNK_BYTES) for path, source in sources.items()}
        if empty := next((path for path, beginning in beginnings.items() if not beginning), None):
            raise InvalidRequest(f"{empty} is empty", field="file")
        for path, source in sources.items():
            chunks = chain([beginnings[path]], chunks_of(source))
            ids.append(keep_file(session_id, owner_id=owner_id, path=path, chunks=chunks).id)
    return ids


def starting(session_id: str, owner_id: int, message: str, files: Sequence[str] = ()) -> Begin:
    """Return what starts a turn, for ``watch``; it raises as ``lifecycle.start_turn`` does."""

    async def begin() -> TurnRecord:
        return (await lifecycle.start_turn(session_id, owner_id=owner_id, message=message, files=files)).turn

    return begin


def replying(session_id: str, owner_id: int, replies: Sequence[DecisionIn | ToolResult]) -> Begin:
    """Return what decides on tool calls and answers questions of the turn that a session waits in, for ``watch``.

    It raises as ``lifecycle.decide_approval`` and ``lifecycle.answer_tools`` do.
    """

    async def begin() -> TurnRecord:
        for reply in replies:
            if isinstance(reply, DecisionIn):
                turn = await lifecycle.decide_approval(session_id, owner_id=owner_id, **reply.dict())
                continue
            found = await db(open_turn, session_id)
            if found is None:
                raise SessionNotRunning(session_id=session_id)
            turn = (await lifecycle.answer_tools(session_id, found[0], owner_id=owner_id, results=[reply])).turn
        return turn

    return begin


async def watch(session_id: str, owner_id: int, begin: Begin, *, text: Show, note: Show) -> TurnRecord:
    """Start a turn and show all of it, however soon it ends; return it when it has ended or waits. Ctrl-C interrupts it."""
    loop = asyncio.get_running_loop()
    interrupts: set[asyncio.Task[None]] = set()  # the loop itself keeps no reference to its tasks

    async def interrupt() -> None:
        with contextlib.suppress(SessionNotRunning):
            await db(lifecycle.interrupt, session_id, owner_id=owner_id)

    try:
        after = (await db(load_session, session_id, owner_id=owner_id)).event_seq
        turn = await begin()
        loop.add_signal_handler(signal.SIGINT, lambda: interrupts.add(loop.create_task(interrupt())))
        if turn.state == TurnState.RUNNING:
            await _show(turn, after, text, note)
        return await lifecycle.wait_turn(session_id, turn.id, owner_id=owner_id)
    finally:
        loop.remove_signal_handler(signal.SIGINT)
        await runner.shutdown()
        await close_connections()


async def _show(turn: TurnRecord, after: int, text: Show, note: Show) -> None:
    async with contextlib.aclosing(follow(turn.session_id, after=after, whole_texts=True)) as frames:  # type: ignore[type-var]
        async for frame in frames:
            if frame["type"] == "delta" and frame["part_type"] == "text":
                text(frame["text"])
            elif frame["type"] in (EventType.PART_STATE_CHANGED, EventType.DELEGATION_SUSPENDED):
                for line in await db(notes, frame, turn.session_id):
                    note(line)
            elif frame["type"] in lifecycle.TURN_STOPS and frame["data"]["turn_id"] == turn.id:
                return


def notes(frame: Frame, session_id: str) -> list[str]:
    """Return lines about what happens beside the answer: a tool that starts, a sub-agent that waits for a person."""
    if frame["type"] == EventType.PART_STATE_CHANGED and frame["data"]["state"] == ToolState.RUNNING:
        part = load_part(frame["data"]["part_id"], session_id=session_id).part
        return [f"[{part.tool_name} {excerpt(part.input, LINE)}]"] if isinstance(part, ToolPart) else []
    if frame["type"] != EventType.DELEGATION_SUSPENDED:
        return []
    child_id = frame["data"]["child_id"]
    child = load_turn(frame["data"]["child_turn_id"], session_id=child_id)
    return [
        f"[a sub-agent waits: {waiting.tool_name} {excerpt(waiting.input, LINE)}; answer it in the browser, or with "
        f"'manage.py sessions approve|refuse|answer {child_id} {waiting.part_id}']"
        for waiting in child.waits_for
    ]
