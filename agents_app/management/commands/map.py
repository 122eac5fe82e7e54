"""``manage.py map llm|agentic|list|show|watch|pause|resume|cancel|retry|output``."""

from __future__ import annotations

import sys
import time
from argparse import ArgumentParser
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from agents_app.endpoints.terminal import PIPED, EndpointCommand, opened
from agents_app.maps import service
from agents_app.maps.api import MapRunList, MapRunRead, run_page
from agents_app.maps.output import output_lines, readable_run, table_rows
from agents_app.queries import load_run
from agents_app.tools.memory.reading import describe_operator_run
from files_app.intake import chunks_of, keep_file
from mnesis_core.errors import InvalidRequest, InvalidSchema
from mnesis_core.maps.throughput import Throughput, progress_line
from mnesis_core.maps.values import OperatorKind, RunRecord, RunState
from mnesis_core.spending import TurnLimits
from mnesis_core.text import read_json
from sessions_app.management.acting import find_user
from sessions_app.record.session_queries import find_session

LOOK_SECONDS = 0.25
QUIET_SECONDS = 10.0  # after so long without any news, a note says what may be missing
STEPS: dict[str, Callable[..., RunRecord]] = {
    "pause": partial(service.set_state, state=RunState.PAUSED),
    "resume": partial(service.set_state, state=RunState.RUNNING),
    "cancel": partial(service.set_state, state=RunState.CANCELLED),
    "retry": service.retry_failed,
}


class Command(EndpointCommand):
    help = (
        "Ask a model, or run a sub-agent, for each line of a JSON Lines file. Follow the progress and get the results."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        subs = parser.add_subparsers(dest="verb", required=True)
        for kind in OperatorKind:
            sub = subs.add_parser(kind.value)
            sub.add_argument(
                "template", help="a Jinja template that uses item, such as 'Translate: {{ item.text }}', or '@FILE'"
            )
            sub.add_argument("--input", required=True, help="a JSON Lines file on this machine, '-', or a file_ id")
            sub.add_argument("--session", help="an id, 'last', or '~N' (default: a new one)")
            sub.add_argument("--schema", help="a file with the JSON Schema of the results")
            sub.add_argument("--model", default="")
            sub.add_argument("--system-prompt", default="")
            sub.add_argument("--concurrency", type=int)
            sub.add_argument("--max-retries", type=int)
            sub.add_argument("--timeout", type=float, help="seconds for one attempt")
            sub.add_argument("--temperature", type=float)
            sub.add_argument("--most-tokens", type=int, help="the most tokens for the whole run")
            sub.add_argument(
                "--most-micros",
                type=int,
                help="the most that the whole run may cost, in millionths of the currency unit",
            )
            sub.add_argument("--no-wait", action="store_true", help="start the run and print its id")
            if kind is OperatorKind.AGENTIC:
                sub.add_argument("--tools", nargs="*", help="the tools of its sub-agents (default: the session's)")
                sub.add_argument("--may-write", action="store_true", help="also allow tools that change something")
                sub.add_argument("--max-turns", type=int, help="the most model calls for one answer")
        listing = subs.add_parser("list")
        listing.add_argument("session", nargs="?", help="only runs of this session")
        listing.add_argument("--limit", type=int, default=50)
        for verb in ("show", "watch", *STEPS, "output"):
            sub = subs.add_parser(verb)
            sub.add_argument("run", help="a map_ id")
            if verb == "output":
                sub.add_argument("--csv", action="store_true", help="CSV instead of JSON Lines")
        for sub in subs.choices.values():
            self.add_common(sub)

    def do_llm(self, options: dict[str, Any]) -> None:
        owner_id = find_user(options["user"]).pk
        run = service.start(_request(options, owner_id), owner_id=owner_id)
        if not options["no_wait"]:
            run = self._watch(run, owner_id)
        self._print(run, options)
        if not options["no_wait"] and (run.state is not RunState.COMPLETED or run.counts.failed):
            sys.exit(1)

    do_agentic = do_llm

    def do_pause(self, options: dict[str, Any]) -> None:
        self._print(STEPS[options["verb"]](options["run"], owner_id=find_user(options["user"]).pk), options)

    do_resume = do_cancel = do_retry = do_pause

    def do_show(self, options: dict[str, Any]) -> None:
        self._print(load_run(options["run"], owner_id=find_user(options["user"]).pk), options)

    def do_watch(self, options: dict[str, Any]) -> None:
        owner_id = find_user(options["user"]).pk
        self._print(self._watch(load_run(options["run"], owner_id=owner_id), owner_id), options)

    def _watch(self, run: RunRecord, owner_id: int) -> RunRecord:
        """Return the run when it goes on no more by itself, and show its progress on a terminal meanwhile."""
        pace, news, moved = Throughput(), run, time.monotonic()
        try:
            while run.state.is_live:
                time.sleep(LOOK_SECONDS)
                news, now = load_run(run.id, owner_id=owner_id), time.monotonic()
                if (news.state, news.counts) != (run.state, run.counts):
                    moved = now
                elif moved and now - moved > QUIET_SECONDS:
                    self.print_note("\nNo progress. Is a worker running? 'manage.py up' starts one with the server.")
                    moved = now + 3_600
                run = news
                pace.see(run.counts.ended, now=now)
                if self.stderr.isatty():
                    line = progress_line(run.counts, state=run.state.value, per_second=pace.per_second)
                    self.stderr.write(f"\r\x1b[K{line}", ending="", style_func=str)
                    self.stderr.flush()
        except KeyboardInterrupt:
            self.print_note(f"\nThe run continues. 'manage.py map watch {run.id}' shows it, 'cancel' stops it.")
            raise
        if self.stderr.isatty():
            self.stderr.write("")
        return run

    def do_list(self, options: dict[str, Any]) -> None:
        owner_id, session = find_user(options["user"]).pk, options["session"]
        page = run_page(
            owner_id=owner_id,
            session_id=find_session(session, owner_id=owner_id).id if session else None,
            limit=min(max(options["limit"], 1), 500),
            cursor=None,
        )
        lines = []
        for run in page["items"]:
            done = f"{run.counts.completed:,} of {run.counts.items if run.counts.items is not None else '?'}"
            lines.append(f"{run.id}  {run.kind:8} {run.state:10} {done:>16}  {run.counts.failed:,} failed")
        self.show(
            lambda: MapRunList.model_validate(page).model_dump()["items"], lambda: lines, as_json=options["as_json"]
        )

    def do_output(self, options: dict[str, Any]) -> None:
        run = readable_run(options["run"], owner_id=find_user(options["user"]).pk)
        for piece in table_rows(run) if options["csv"] else output_lines(run):
            self.stdout.write(self.readable(piece.decode()), ending="")

    def _print(self, run: RunRecord, options: dict[str, Any]) -> None:
        if options["as_json"]:
            self.print_json(MapRunRead.model_validate(run).dict())
        else:
            self.stdout.write(self.readable(describe_operator_run(run)))


def _request(options: dict[str, Any], owner_id: int) -> service.MapRequest:
    is_agentic, session, template = options["verb"] == OperatorKind.AGENTIC, options["session"], options["template"]
    if template.startswith("@"):
        template = _read(template[1:]).decode(errors="replace")
    session_id = find_session(session, owner_id=owner_id).id if session else None
    schema = None
    if path := options["schema"]:
        text = _read(path)
        try:
            schema = read_json(text)
        except InvalidRequest as error:
            raise InvalidSchema(f"{path}: {error.message}") from None
    asked = service.MapRequest(
        kind=OperatorKind(options["verb"]),
        template=template,
        session_id=session_id,
        schema=schema,
        model=options["model"],
        system_prompt=options["system_prompt"],
        concurrency=options["concurrency"],
        max_retries=options["max_retries"],
        timeout_seconds=options["timeout"],
        temperature=options["temperature"],
        limits=TurnLimits(tokens=options["most_tokens"], cost_micros=options["most_micros"]),
        read_only=not (is_agentic and options["may_write"]),
        tools=options["tools"] if is_agentic else None,
        max_turns=options["max_turns"] if is_agentic else None,
    )
    path = options["input"]
    if path.startswith("file_") and not Path(path).exists():
        return replace(asked, file_id=path)
    service.check_texts(asked)
    with opened(path) as file:
        session_id = asked.session_id or service.new_session(asked, owner_id=owner_id)
        name = "piped.jsonl" if path == PIPED else path
        kept = keep_file(session_id, owner_id=owner_id, path=name, chunks=chunks_of(file))
    return replace(asked, session_id=session_id, file_id=kept.id)


def _read(path: str) -> bytes:
    with opened(path) as file:
        return file.read()
