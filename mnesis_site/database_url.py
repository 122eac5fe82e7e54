"""Django's DATABASES entry for a ``DATABASE_URL``, whose query may set how to connect and how large the pool is."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlencode, urlsplit

from django.core.exceptions import ImproperlyConfigured

from sessions_app.database.threads import fail_waiting

BASE_DIR = Path(__file__).resolve().parent.parent
# Options that are not libpq's: default and minimum. A pool of one would block what needs a second connection beside an
# open transaction: the heartbeat of a verification.
OWN_OPTIONS = {"pool_max": (12, 2), "pool_min": (1, 0), "pool_timeout": (10, 1), "prepare_threshold": (5, 0)}
# How soon a PostgreSQL that vanished is given up, unless the address says otherwise (libpq: seconds, the second one
# milliseconds).
PATIENCE = {
    "connect_timeout": 2,
    "tcp_user_timeout": 10_000,
    "keepalives_idle": 5,
    "keepalives_interval": 2,
    "keepalives_count": 3,
}
# What a pool does while its server is away: try for a second, then fail the requests that wait.
WITHOUT_SERVER = {"reconnect_timeout": 1, "reconnect_failed": fail_waiting}
# Options of libpq that an address may not set.
FIXED = frozenset({"client_encoding", "replication", "service", "dbname"})


def database(url: str, *, pooled: bool) -> dict[str, Any]:
    """:raises ImproperlyConfigured: it is neither SQLite's nor PostgreSQL's, names no database, or has an unknown option."""
    try:
        parts = urlsplit(url)
        options = parse_qsl(parts.query, keep_blank_values=True, strict_parsing=bool(parts.query))
        if "," not in parts.netloc:
            _ = parts.port  # libpq takes any text for one, and several hosts
    except ValueError as error:
        raise ImproperlyConfigured(f"DATABASE_URL is not an address: {error}") from error
    if parts.scheme == "sqlite":
        _refuse({name for name, _ in options}, of="SQLite, which has none")
        path = BASE_DIR / (parts.path[1:] if parts.path.startswith("//") else unquote(parts.path).removeprefix("/"))
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return {
            "ENGINE": "django.db.backends.sqlite3",
            "NAME": str(path),
            "CONN_MAX_AGE": 0,
            "OPTIONS": {
                # Deferred transactions that read, then write, fail with "database is locked" under load.
                "transaction_mode": "IMMEDIATE",
                "timeout": 20,
                # FULL: with NORMAL an acknowledged message can be lost in a power cut.
                "init_command": "PRAGMA journal_mode=WAL;PRAGMA synchronous=FULL;PRAGMA journal_size_limit=27103364;",
            },
            "TEST": {"NAME": str(path.parent / "test.sqlite3")},
        }
    if parts.scheme not in ("postgresql", "postgres"):
        raise ImproperlyConfigured(
            f"DATABASE_URL must start with sqlite:/// or postgresql://, not {parts.scheme or 'nothing'!r}"
        )
    if not parts.path.strip("/"):
        raise ImproperlyConfigured("DATABASE_URL names no database: postgresql://user@host:5432/NAME")
    return _postgresql(parts, dict(options), pooled=pooled)


def _postgresql(parts: SplitResult, asked: dict[str, str], *, pooled: bool) -> dict[str, Any]:
    from psycopg import Error, conninfo, pq  # SQLite does without

    own = {name: _number(asked, name, *limits) for name, limits in OWN_OPTIONS.items()}
    options = {name: value for name, value in asked.items() if name not in OWN_OPTIONS}
    known = {option.keyword.decode() for option in pq.Conninfo.get_defaults()} - FIXED
    _refuse(options.keys() - known, of="PostgreSQL")
    # libpq's percent-encoding does not know the plus sign.
    query = urlencode(options).replace("+", "%20")
    try:
        said: dict[str, Any] = conninfo.conninfo_to_dict(f"postgresql://{parts.netloc}{parts.path}?{query}")
    except Error:
        # Its own words repeat the whole address, password and all.
        raise ImproperlyConfigured("DATABASE_URL is not an address that PostgreSQL's library can read") from None
    if own["pool_min"] > own["pool_max"]:
        raise ImproperlyConfigured("DATABASE_URL has a pool_min above its pool_max")
    pool = {"min_size": own["pool_min"], "max_size": own["pool_max"], "timeout": own["pool_timeout"]}
    return {
        "ENGINE": "django.db.backends.postgresql",
        "NAME": said.pop("dbname"),
        "USER": said.pop("user", ""),
        "PASSWORD": said.pop("password", ""),
        "HOST": said.pop("host", ""),
        "PORT": said.pop("port", ""),
        "CONN_MAX_AGE": 0,
        "OPTIONS": {
            "fallback_application_name": "mnesis",
            **PATIENCE,
            **said,
            "connect_timeout": _number(asked, "connect_timeout", PATIENCE["connect_timeout"], 1),
            # Hot statements are prepared when a connection has seen them so often; behind a pooler, never.
            "prepare_threshold": own["prepare_threshold"] or None,
        }
        # A pool's sockets do not survive the fork of a worker cluster, so only web processes have one.
        | ({"pool": pool | WITHOUT_SERVER} if pooled else {}),
    }


def _refuse(names: set[str], *, of: str) -> None:
    """:raises ImproperlyConfigured: there are some."""
    if names:
        raise ImproperlyConfigured(f"DATABASE_URL has options that are unknown to {of}: {', '.join(sorted(names))}")


def _number(asked: dict[str, str], name: str, default: int, minimum: int) -> int:
    text = asked.get(name, str(default))
    if not text.isascii() or not text.isdigit() or int(text) < minimum:
        raise ImproperlyConfigured(f"DATABASE_URL: {name} must be a whole number from {minimum} on, not {text!r}")
    return int(text)
