"""``manage.py run "message"``."""

from __future__ import annotations

import asyncio
import sys
from argparse import ArgumentParser
from functools import partial
from typing import Any

from agents_app.endpoints import terminal
from agents_app.schemas import DecisionIn
from agents_app.turns import lifecycle
from agents_app.turns.claim import ToolResult
from agents_app.turns.overview import AnswerOut
from mnesis_core.errors import MnesisError, TurnCancelled, TurnSuspended, error_of
from mnesis_core.records import TurnRecord, TurnState, Waiting, WaitsFor
from mnesis_core.turns.questions import read_questions
from sessions_app.management.acting import find_user
from sessions_app.pages.markdown import show_invisible


class Command(terminal.EndpointCommand):
    help = (
        "Start a session with one message and print the answer as it comes. Ctrl-C interrupts and keeps what was said."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("message", nargs="*", help="the message; '-' or nothing reads standard input")
        parser.add_argument("--assistant", metavar="ID", default="", help="begin with this assistant (asst_…)")
        parser.add_argument("--model", default="", help="default: the assistant's model, else the site's")
        parser.add_argument("--title", default="")
        parser.add_argument("--system-prompt", default="")
        parser.add_argument("--host", metavar="NAME", default="", help="stay alive for messages of peers, by this name")
        self.add_files(parser)
        self.add_common(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        user, paths = find_user(options["user"]), options["files"]
        message = terminal.read_message(options["message"], may_be_silent=bool(paths))
        session = lifecycle.create_session(
            owner=user,
            assistant_id=options["assistant"],
            model=options["model"],
            title=options["title"],
            system_prompt=options["system_prompt"],
            first_message=None if paths and not message else message,
            host_mode=bool(options["host"]),
            peer_name=options["host"],
        )
        try:
            files = terminal.keep_attached(session.id, paths, owner_id=user.pk)
        except MnesisError:
            lifecycle.discard_session(session.id, owner_id=user.pk)
            raise
        self.turn(
            session.id, user.pk, terminal.starting(session.id, user.pk, message, files), as_json=options["as_json"]
        )

    def turn(self, session_id: str, owner_id: int, begin: terminal.Begin, *, as_json: bool) -> None:
        """Run one turn at the terminal, with questions where a person must decide.

        :raises CommandError: it did not come to a good end.
        """
        show = partial(terminal.watch, text=(lambda text: None) if as_json else self.print_text, note=self.print_note)
        turn = asyncio.run(show(session_id, owner_id, begin))
        may_ask = not as_json and sys.stdin.isatty()
        while may_ask and (asked := [one for one in turn.waits_for if one.reason != WaitsFor.CALLER]):
            try:
                replies = [self.ask(one) if one.reason == WaitsFor.ANSWER else self.allow(one) for one in asked]
            except (KeyboardInterrupt, EOFError):
                turn = lifecycle.interrupt(session_id, owner_id=owner_id)
            else:
                turn = asyncio.run(show(session_id, owner_id, terminal.replying(session_id, owner_id, replies)))
        if as_json:
            self.print_json(AnswerOut.model_validate(turn).dict())
        else:
            self.stdout.write("")
        usage = turn.usage
        tokens = f"{usage.tokens_input or 0:,} + {usage.tokens_output or 0:,} tokens"
        self.print_note(f"{turn.session_id}  {turn.state}, {tokens} ({usage.usage_source or 'unknown'})")
        if turn.state != TurnState.COMPLETED:
            raise terminal.failed(_error_of(turn))

    def allow(self, waiting: Waiting) -> DecisionIn:
        self.print_note(f"\n{waiting.tool_name} {waiting.input}")
        answer = input(f"Allow {show_invisible(waiting.tool_name)}? [y/N, or why not] ").strip()
        approved, refused = answer.lower() in ("y", "yes"), answer.lower() in ("n", "no")
        note = "" if approved or refused else answer
        return DecisionIn(part_id=waiting.part_id, approved=approved, note=note)

    def ask(self, waiting: Waiting) -> ToolResult:
        answers = []
        for asked in read_questions(waiting.input):
            self.print_note(f"\n{asked.question}")
            for number, option in enumerate(asked.options, 1):
                self.print_note(f"  {number}. {option}")
            answers.append(asked.chosen(input("Number or words, nothing to skip: " if asked.options else "> ")))
        return ToolResult(tool_call_id=waiting.part_id, answers=answers)


def _error_of(turn: TurnRecord) -> MnesisError:
    if turn.state == TurnState.CANCELLED:
        return TurnCancelled(turn_id=turn.id)
    if turn.state != TurnState.SUSPENDED:
        return error_of(turn.error_code or "", turn.error_message or "")
    calls = ", ".join(f"{waiting.tool_name} ({waiting.part_id})" for waiting in turn.waits_for)
    return TurnSuspended(
        f"The turn is waiting for an answer, and this terminal is not interactive: {calls}. Approve, refuse or answer with "
        f"'manage.py sessions approve|refuse|answer {turn.session_id} PART', or in the browser.",
        turn_id=turn.id,
    )
