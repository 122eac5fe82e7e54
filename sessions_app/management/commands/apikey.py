"""``manage.py apikey create USER | revoke PREFIX | list``."""

from __future__ import annotations

import json
from argparse import ArgumentParser
from typing import Any

from django.contrib.auth import get_user_model
from django.core.management.base import CommandError

from mnesis_core.errors import MnesisError, NotFound
from mnesis_core.network.rate_limits import MODES, SCOPES
from mnesis_core.text import write_time
from sessions_app.llm.model_store import create_key, list_keys, revoke_key
from sessions_app.management.acting import SiteCommand


class Command(SiteCommand):
    help = "Create, revoke and list API keys. 'create' prints the key once, alone on its line."

    def add_arguments(self, parser: ArgumentParser) -> None:
        actions = parser.add_subparsers(dest="action", required=True)
        create = actions.add_parser("create", help="create a key for a user")
        create.add_argument("username")
        create.add_argument("--scope", default="all", choices=SCOPES, help="what the key permits")
        create.add_argument(
            "--mode", default="", choices=MODES[1:], help="whether its requests at /v1 go through the gateway"
        )
        create.add_argument("--name", default="", help="what uses the key")
        revoke = actions.add_parser("revoke", help="revoke a key")
        revoke.add_argument("prefix", help="the part between the underscores of mns_PREFIX_…")
        listing = actions.add_parser("list", help="list the keys")
        listing.add_argument("--json", action="store_true", dest="as_json")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if options["action"] == "create":
                user = get_user_model().objects.filter(username=options["username"]).first()
                if user is None:
                    raise NotFound(
                        f"There is no user {options['username']!r}. Make one in the admin, or: manage.py createsuperuser"
                    )
                chosen = {name: options[name] for name in ("scope", "mode", "name")}
                self.stdout.write(str(create_key(owner_id=user.pk, **chosen)))
            elif options["action"] == "list":
                self._list(options)
            else:
                prefix = options["prefix"].removeprefix("mns_").split("_")[0]
                revoke_key(prefix)
                self.stderr.write(f"{prefix} is revoked")
        except MnesisError as error:
            raise CommandError(error.message, returncode=error.exit_status) from error

    def _list(self, options: dict[str, Any]) -> None:
        keys = list_keys()
        if options["as_json"]:
            described = [
                {
                    "prefix": key.prefix,
                    "owner": key.owner_name,
                    "name": key.name,
                    "scope": key.scope,
                    "mode": key.mode,
                    "created_at": write_time(key.created_at),
                    "last_used_at": write_time(key.last_used_at) if key.last_used_at else None,
                    "revoked_at": write_time(key.revoked_at) if key.revoked_at else None,
                }
                for key in keys
            ]
            self.stdout.write(json.dumps(described, indent=2))
            return
        for key in keys:
            state = "revoked" if key.revoked_at else "active"
            used = f"last used {key.last_used_at:%Y-%m-%d %H:%M} UTC" if key.last_used_at else "never used"
            self.stdout.write(
                f"{key.prefix}  {key.owner_name}  {key.scope}{f'  {key.mode}' if key.mode else ''}  {state}  {used}{f'  {key.name}' if key.name else ''}"
            )
