"""``manage.py mcp_server add|list|tools|check|remove``."""

from __future__ import annotations

import sys
from argparse import REMAINDER, ArgumentParser
from typing import Any

from agents_app import store
from agents_app.endpoints.terminal import EndpointCommand
from agents_app.queries import list_servers, load_server
from agents_app.tools.pages import attach_server, list_again, mark_read_only, show_servers
from mnesis_core.errors import InvalidRequest
from mnesis_core.text import excerpt, printable
from mnesis_core.turns.mcp_servers import AttachedServer, ServerAddress, hints_in_words
from sessions_app.database.threads import waiting_for


class Command(EndpointCommand):
    help = (
        "Manage the MCP servers whose tools sessions can use: a program that is started here "
        "(add NAME --program PROGRAM ARGUMENT…) or one over streamable HTTP (add NAME --url ADDRESS); "
        "and APIs whose operations are tools (add NAME --openapi --url ADDRESS of the document)."
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        verbs = parser.add_subparsers(dest="verb", required=True)
        add = verbs.add_parser("add", help="attach a server, or replace the one with this name, and list its tools")
        add.add_argument("name", help="its tools are called NAME__tool")
        add.add_argument("--url", default="", help="the address of a server over streamable HTTP")
        add.add_argument(
            "--openapi",
            action="store_true",
            help="the address is that of an OpenAPI document, whose operations are tools",
        )
        add.add_argument(
            "--secret", action="append", default=[], metavar="NAME=VARIABLE",
            help="set the program's environment variable NAME (or send the header NAME) to the value of this site's "
            "environment variable VARIABLE; the value is never stored",
        )  # fmt: skip
        add.add_argument("--timeout", type=float, default=60.0, help="seconds that one call may take (60)")
        add.add_argument("--needs-approval", action="store_true", help="require a person's approval for each call")
        add.add_argument(
            "--trust-annotations",
            action="store_true",
            help="trust what the server says about which tools change nothing (readOnlyHint)",
        )
        program = "the program to start and its arguments; the last option"
        add.add_argument("--program", nargs=REMAINDER, default=[], help=program)
        listing = verbs.add_parser("list", help="list the servers that are attached")
        listing.add_argument("--json", action="store_true", dest="as_json", help="print JSON, errors too")
        tools = verbs.add_parser("tools", help="show a server's tools, or mark the read-only ones")
        tools.add_argument("name")
        tools.add_argument(
            "--read-only",
            nargs="*",
            metavar="TOOL",
            help="mark exactly these tools as read-only, as they are listed now (without a tool: none)",
        )
        for verb, text in (("check", "list a server's tools again"), ("remove", "remove a server")):
            verbs.add_parser(verb, help=text).add_argument("name")

    def do_add(self, options: dict[str, Any]) -> None:
        secrets = {}
        for text in options["secret"]:
            name, equals, variable = text.partition("=")
            if not equals:
                raise InvalidRequest(f"--secret {text} is not NAME=VARIABLE", field="secrets")
            secrets[name] = variable
        address = ServerAddress(
            name=options["name"],
            argv=tuple(options["program"]),
            url=options["url"],
            is_openapi=options["openapi"],
            secrets=secrets,
            timeout_seconds=options["timeout"],
            needs_approval=options["needs_approval"],
            trust_annotations=options["trust_annotations"],
            entered_on_host=True,
        )
        self._print(waiting_for(attach_server)(address, errors=_errors()))

    def do_list(self, options: dict[str, Any]) -> None:
        self.show(lambda: show_servers(user_id=None), lambda: map(_line, list_servers()), as_json=options["as_json"])

    def do_tools(self, options: dict[str, Any]) -> None:
        name, marked = options["name"], options["read_only"]
        self._print(load_server(name) if marked is None else mark_read_only(name, marked))

    def do_check(self, options: dict[str, Any]) -> None:
        self._print(waiting_for(list_again)(options["name"], errors=_errors()))

    def do_remove(self, options: dict[str, Any]) -> None:
        store.remove_server(options["name"])
        self.stdout.write(f"{options['name']} is removed. From the next turn on, sessions can no longer use its tools.")

    def _print(self, server: AttachedServer) -> None:
        self.stdout.write(_line(server))
        for tool in server.listing.tools:
            mark = "read-only" if server.is_read_only(tool) else "not known to be read-only"
            said = hints_in_words(tool.hints) or "nothing"
            self.stdout.write(f"  {tool.spec.name} ({mark}; it says: {said}): {excerpt(tool.spec.description, 100)}")
        for sentence in server.listing.left_out:
            self.stdout.write(f"  left out: {excerpt(sentence, 200)}")


def _errors() -> Any:
    # What a program says on standard error is for who attaches it; a test's terminal is no file.
    return sys.stderr if sys.stderr.isatty() else sys.__stderr__


def _line(server: AttachedServer) -> str:
    address = server.address
    place = address.url or " ".join(address.argv)
    marks = [f"{len(server.listing.tools)} tools", f"{address.timeout_seconds:g} s"]
    marks += ["OpenAPI"] * address.is_openapi
    marks += ["needs approval"] * address.needs_approval + ["trusts its annotations"] * address.trust_annotations
    marks += ["for some people only"] * server.is_restricted
    marks += [f"unreachable: {excerpt(server.problem, 300)}"] if server.problem else []
    return printable(f"{address.name:20} {place} ({', '.join(marks)})")
