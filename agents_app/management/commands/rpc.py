"""``manage.py rpc``."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from argparse import ArgumentParser
from typing import Any

from agents_app.endpoints.jsonrpc import serve
from agents_app.endpoints.terminal import EndpointCommand
from mnesis_core.actor import Via
from sessions_app.callers import Caller
from sessions_app.management.acting import find_user
from sessions_app.record.actor import serving


class Command(EndpointCommand):
    help = "Speak JSON-RPC 2.0 on standard input and output, a message on each line, until the end of input."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", help="whose sessions (default: the first administrator)")
        parser.add_argument("--read-only", action="store_true", help="refuse every method that writes")

    def handle(self, *args: Any, **options: Any) -> None:
        user = find_user(options["user"])
        caller = Caller(user=user, may_write=not options["read_only"], actor=self.actor_for(user))
        # Standard output belongs to the protocol alone: whatever else is printed goes where logs go. Each call has a
        # request id of its own.
        with contextlib.redirect_stdout(sys.stderr), serving(via=Via.RPC, request=""):
            # A reader of our own: Python cannot end while a thread still reads from its own one.
            source = os.fdopen(os.dup(sys.stdin.fileno()), "rb")
            asyncio.run(serve(caller, source, sys.__stdout__ or sys.stdout))
