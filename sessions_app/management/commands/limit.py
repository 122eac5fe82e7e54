"""``manage.py limit set USER NAME=NUMBER… | clear USER | list``."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from mnesis_core.errors import InvalidRequest, MnesisError, NotFound
from sessions_app.llm.spending_store import list_account_limits, load_account_limits, put_account_limits
from sessions_app.management.acting import SiteCommand


class Command(SiteCommand):
    help = (
        "What one person may spend. A name is a scope and a measure: turn, session, user or day; "
        "tokens, cost_micros, seconds or tool_calls. For example: limit set ada day.tokens=100000"
    )

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        change = actions.add_parser("set", help="change some limits of a user; 0 removes one")
        change.add_argument("username")
        change.add_argument("limits", nargs="+", metavar="NAME=NUMBER")
        clear = actions.add_parser("clear", help="remove all limits of a user")
        clear.add_argument("username")
        listing = actions.add_parser("list", help="list the users with limits of their own")
        listing.add_argument("--json", action="store_true", dest="as_json")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["action"] == "list":
                self._list(as_json=options["as_json"])
                return
            username, changes = options["username"], options.get("limits")
            user = get_user_model().objects.filter(username=username).first()
            if user is None:
                raise NotFound(f"There is no user {username!r}.")
            limits: dict[str, dict[str, Any]] = {} if changes is None else load_account_limits(user.pk)
            for text in changes or []:
                name, _, number = text.partition("=")
                scope, _, measure = name.partition(".")
                if not (scope and measure and number.isascii() and number.isdecimal()):
                    raise InvalidRequest(f"{text!r} must look like day.tokens=100000, with a whole number")
                limits.setdefault(scope, {})[measure] = int(number)
            put_account_limits(user.pk, limits)
            self.stdout.write(_line(username, load_account_limits(user.pk)))
        except MnesisError as error:
            raise CommandError(error.message, returncode=error.exit_status) from error

    def _list(self, *, as_json: bool) -> None:
        found = list_account_limits()
        if as_json:
            self.stdout.write(json.dumps([{"user": name, "limits": limits} for name, limits in found], indent=2))
            return
        for name, limits in found:
            self.stdout.write(_line(name, limits))


def _line(name: str, limits: dict[str, Any]) -> str:
    said = [f"{scope}.{measure}={value}" for scope, own in limits.items() for measure, value in own.items() if value]
    return f"{name}: {' '.join(said) or 'as the site allows'}"
