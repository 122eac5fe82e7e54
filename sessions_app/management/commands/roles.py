"""``manage.py roles``: the database roles of the site and of an auditor, made by the owner of the tables."""

from __future__ import annotations

from argparse import ArgumentParser, ArgumentTypeError
from typing import Any

from django.conf import settings
from django.core.management.base import BaseCommand, CommandError
from django.db import ProgrammingError, connection

from sessions_app.database.guards import rights


class Command(BaseCommand):
    """Running it again changes nothing that is already as declared."""

    help = "Give PostgreSQL roles exactly the rights that the site, and an auditor, need. Run it as the tables' owner."
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        named = settings.MNESIS
        parser.add_argument("--app", default=named["APP_ROLE"], type=role_name, help="role of web and workers")
        parser.add_argument("--auditor", default=named["AUDITOR_ROLE"], type=role_name, help="role that only reads")
        parser.add_argument("--print", action="store_true", dest="only_print", help="print the SQL and do nothing")

    def handle(self, *args: Any, **options: Any) -> None:
        """:raises CommandError: the database has no roles, none is named, or the caller may not make them."""
        if connection.vendor != "postgresql":
            raise CommandError("SQLite has no roles: anyone who can write the file can change it.")
        roles = [rights.site_role(options["app"])] if options["app"] else []
        roles += [rights.auditor_role(options["auditor"])] if options["auditor"] else []
        if not roles:
            raise CommandError("Name a role: manage.py roles --app mnesis_app --auditor mnesis_auditor")
        for role in roles:
            if options["only_print"]:
                for statement in rights.role_statements(connection, role):
                    self.stdout.write(f"{statement};")
                continue
            try:
                rights.apply_role(connection, role)
            except ProgrammingError as error:
                raise CommandError(f"{str(error).splitlines()[0]}. Run this as the owner of the tables.") from error
            if differences := rights.role_differences(connection, role):
                raise CommandError("\n".join(differences))
            self.stdout.write(f"{role.name} has its rights.")


def role_name(text: str) -> str:
    """:raises ArgumentTypeError: it would have to be quoted everywhere."""
    if text and not rights.ROLE_NAME.fullmatch(text):
        raise ArgumentTypeError(f"a role's name has small letters, digits and underscores, not {text!r}")
    return text
