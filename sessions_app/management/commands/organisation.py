"""``manage.py organisation add SLUG | list | move USER SLUG``."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from mnesis_core.errors import MnesisError, NotFound
from mnesis_core.text import write_time
from sessions_app.management.acting import SiteCommand
from sessions_app.record.organisation_store import add_organisation, find_organisation, list_organisations, move_person


class Command(SiteCommand):
    help = "Organisations own sessions beside the person. Each account is in one, and 'default' is that of all who were not moved."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        add = actions.add_parser("add", help="add an organisation")
        add.add_argument("slug", help="lower-case letters, digits and hyphens")
        add.add_argument("--name", default="", help="how pages call it")
        listing = actions.add_parser("list", help="list the organisations")
        listing.add_argument("--json", action="store_true", dest="as_json")
        move = actions.add_parser(
            "move", help="move a user: sessions and keys stay behind, out of reach until they return"
        )
        move.add_argument("username")
        move.add_argument("organisation", help="its slug or id")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["action"] == "add":
                self.stdout.write(add_organisation(options["slug"], name=options["name"]).id)
            elif options["action"] == "list":
                self._list(as_json=options["as_json"])
            else:
                user = get_user_model().objects.filter(username=options["username"]).first()
                if user is None:
                    raise NotFound(f"There is no user {options['username']!r}.")
                organisation = find_organisation(options["organisation"])
                move_person(user.pk, organisation.id)
                stay = "Sessions and API keys of before stay where they were."
                self.stderr.write(f"{user.username} is in {organisation.slug}. {stay}")
        except MnesisError as error:
            raise CommandError(f"{error.code}: {error.message}", returncode=error.exit_status) from error

    def _list(self, *, as_json: bool) -> None:
        found = list_organisations()
        if as_json:
            described = [
                {"id": one.id, "slug": one.slug, "name": one.name, "created_at": write_time(one.created_at)}
                for one in found
            ]
            self.stdout.write(json.dumps(described, indent=2))
            return
        for one in found:
            self.stdout.write(f"{one.slug}  {one.id}  {one.name}".rstrip())
