"""``manage.py mcp``."""

from __future__ import annotations

import asyncio
from argparse import ArgumentParser
from typing import Any

from mcp.server.stdio import stdio_server

from agents_app.endpoints.mcp_server import always, make_server
from agents_app.endpoints.terminal import EndpointCommand
from agents_app.turns.runner import runner
from mnesis_core.actor import Via
from mnesis_core.providers.litellm_ import close_connections
from sessions_app.callers import Caller
from sessions_app.management.acting import find_user
from sessions_app.record.actor import serving


class Command(EndpointCommand):
    help = "Speak the Model Context Protocol on standard input and output, until the end of input."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--user", help="whose sessions (default: the first administrator)")
        parser.add_argument("--read-only", action="store_true", help="refuse every tool that writes")

    def handle(self, *args: Any, **options: Any) -> None:
        user = find_user(options["user"])
        caller = Caller(user=user, may_write=not options["read_only"], actor=self.actor_for(user))
        with serving(via=Via.MCP, request=""):  # each call has an id of its own
            asyncio.run(_serve(caller))


async def _serve(caller: Caller) -> None:
    server = make_server(always(caller))
    try:
        # Its package keeps whatever else is printed away from standard output.
        async with stdio_server() as (source, target):
            await server.run(source, target, server.create_initialization_options())
    finally:
        await runner.shutdown()
        await close_connections()
