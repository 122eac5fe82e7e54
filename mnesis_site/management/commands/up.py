"""``manage.py up``: Mnesis, web and worker, until Ctrl-C."""

from __future__ import annotations

import errno
import http.client
import os
import socket
import time
from argparse import ArgumentParser, ArgumentTypeError
from contextlib import suppress
from http import HTTPStatus
from ipaddress import ip_address
from typing import Any

from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.core.management import call_command
from django.core.management.base import CommandError
from django.db import OperationalError, ProgrammingError, connection, connections

from mnesis_core.errors import ModelNotFoundError
from mnesis_core.network.hosts import literal_address
from mnesis_site.processes import Tree, Watchdog, require_free, web, worker
from mnesis_site.readiness import unguarded, worker_gives_sign
from mnesis_site.sign_in import first_admin, sign_in_link
from sessions_app.conf import default_model, get_spec, site_config, site_prompts
from sessions_app.database.guards.migrating import damage_told
from sessions_app.management.acting import SiteCommand

ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104 - only to recognise them


class Command(SiteCommand):
    help = "Prepare the database, then run the web server and the worker until Ctrl-C."

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--host", default="127.0.0.1", help="address to listen on (default: %(default)s)")
        parser.add_argument("--port", default=8000, type=port_number, help="port to listen on (default: %(default)s)")
        parser.add_argument(
            "--workers",
            default=settings.Q_CLUSTER["workers"],
            type=worker_count,
            help="number of jobs that run at a time (default: %(default)s, from MNESIS_WORKERS)",
        )

    def handle(self, *args: Any, **options: Any) -> None:
        host, port = options["host"], options["port"]
        try:
            require_free(host, port)
        except OSError as error:
            raise CommandError(address_problem(error, host, port)) from error
        with damage_told(connection):
            self._prepare_database()
            # Stop here, not at the first request, over settings that are only read when they are needed.
            try:
                site_config()
                site_prompts()
                get_spec(default_model(), user_id=None)
            except ImproperlyConfigured as error:
                raise CommandError(str(error)) from error
            except ModelNotFoundError as error:
                raise CommandError(f"MNESIS_DEFAULT_MODEL: {error.message}") from error
            greeting = Greeting(self, ANY_ADDRESS.get(host, host), port)
        os.environ["MNESIS_WORKERS"] = str(options["workers"])
        # Not ours to widen: an owner who says that it is not local (a proxy stands before it) is believed.
        os.environ.setdefault("MNESIS_LOCAL", str(is_loopback(host)).lower())
        # Nothing of ours may stay open beside the children: SQLite's locks belong to a whole program.
        connections.close_all()
        worker_child = worker()
        watchdog = Watchdog(child=worker_child, gives_sign=worker_gives_sign, say=self.say)

        def tick() -> None:
            greeting.when_ready()
            watchdog.look(time.monotonic())

        Tree([web(host, port), worker_child], say=self.say).run(tick)

    def say(self, text: str) -> None:
        """Write a line at once, even into a pipe."""
        with suppress(OSError):  # a full disk, or a closed pipe: no reason to end the tree
            self.stdout.write(text)
            self.stdout.flush()

    def _prepare_database(self) -> None:
        try:
            call_command("migrate", verbosity=0, interactive=False, stderr=self.stderr)
        except OperationalError as error:
            reason = str(error).strip().splitlines()[0]
            raise CommandError(f"The database does not answer ({reason}). DATABASE_URL says where it is.") from error
        except ProgrammingError as error:
            reason = str(error).strip().splitlines()[0]
            raise CommandError(f"{reason}. Run 'manage.py migrate' as the owner of the tables, then this.") from error
        # The site serves no one while something could change the record.
        if sentences := unguarded():
            raise CommandError("The record is not guarded as declared.\n" + "\n".join(sentences))


class Greeting:
    """The address and the first sign-in, printed once, when the web server answers."""

    def __init__(self, command: Command, host: str, port: int) -> None:
        self.command = command
        self.host, self.port = host, port
        user = first_admin()
        self.link = sign_in_link(user) if user else ""
        self.said = False

    def when_ready(self) -> None:
        if self.said or not lives(self.host, self.port):
            return
        self.said = True
        url = f"http://[{self.host}]:{self.port}" if ":" in self.host else f"http://{self.host}:{self.port}"
        public = proxied_address()
        self.command.say(f"\nMnesis runs at {url}/" + (f", behind {public}/" if public else ""))
        if self.link:
            self.command.say(f"First sign-in as admin, good until a password is set: {public or url}{self.link}")
        self.command.say("Press Ctrl-C to stop it.\n")


def proxied_address() -> str:
    """Return where people reach the site through a proxy, as far as the settings say; empty without one."""
    return next((origin for origin in settings.CSRF_TRUSTED_ORIGINS if "*" not in origin), "")


def is_loopback(host: str) -> bool:
    return ip_address(literal_address(host) or "0.0.0.0").is_loopback  # noqa: S104 - never bound


def lives(host: str, port: int) -> bool:
    """Return whether our web server answers there. Not by urllib, which would ask a proxy for 127.0.0.1."""
    connection = http.client.HTTPConnection(host, port, timeout=1)
    try:
        connection.request("GET", "/livez")
        return connection.getresponse().status == HTTPStatus.OK
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def port_number(text: str) -> int:
    if not text.isdecimal() or not 1 <= int(text) <= 65535:
        raise ArgumentTypeError(f"a port is a number from 1 to 65535, not {text!r}")
    return int(text)


def worker_count(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise ArgumentTypeError(f"at least 1 worker is needed, not {text!r}")
    return int(text)


def address_problem(error: OSError, host: str, port: int) -> str:
    number = error.errno
    if number == errno.EADDRINUSE:
        return f"Port {port} on {host} is in use. Stop what uses it, or choose another: manage.py up --port {port + 1}"
    if number == errno.EACCES:
        return f"This account may not listen on port {port}. Choose one over 1023: manage.py up --port 8000"
    if isinstance(error, socket.gaierror) or number == errno.EADDRNOTAVAIL:
        return f"{host} is not an address of this machine. Choose one, such as --host 127.0.0.1"
    return f"Cannot listen on {host}, port {port}: {error}"
