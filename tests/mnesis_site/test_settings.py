"""A wrong setting stops the start with one sentence that says which and why."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from mnesis_site import settings as settings_module
from mnesis_site.database_url import PATIENCE, WITHOUT_SERVER, database
from mnesis_site.settings import env_secret
from tests.support.sites.site import environment_for, manage

SSL_REQUEST = struct.pack("!ii", 8, 80877103)
"""What a client of PostgreSQL asks first when it wants encryption."""


@contextmanager
def server_without_tls() -> Iterator[tuple[int, list[bytes]]]:
    """A server that refuses to encrypt, as PostgreSQL does without a certificate: its port, and all that it heard."""
    heard: list[bytes] = []

    def answer() -> None:
        while True:
            try:
                client, _ = listener.accept()
            except OSError:
                return
            with client:
                heard.append(client.recv(4096))
                client.sendall(b"N")
                if more := client.recv(4096):
                    heard.append(more)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=answer)
        thread.start()
        yield listener.getsockname()[1], heard
        listener.shutdown(socket.SHUT_RDWR)
    thread.join()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("DATABASE_URL", "mysql://me@host/db", "DATABASE_URL must start with sqlite:/// or postgresql://, not 'mysql'"),
        ("DATABASE_URL", "mnesis", "DATABASE_URL must start with sqlite:/// or postgresql://, not 'nothing'"),
        ("DATABASE_URL", "postgresql://me@host", "DATABASE_URL names no database: postgresql://user@host:5432/NAME"),
        ("DATABASE_URL", "postgresql://me@host:abc/db", "DATABASE_URL is not an address: Port could not be cast"),
        ("DATABASE_URL", "postgresql://[::1/db", "DATABASE_URL is not an address:"),
        (
            "DATABASE_URL",
            "postgresql://me@host/db?sslmod=require&pool=3&sslmode=require",
            "DATABASE_URL has options that are unknown to PostgreSQL: pool, sslmod",
        ),
        ("DATABASE_URL", "postgresql://me@host/db?sslmode", "DATABASE_URL is not an address: bad query field"),
        (
            "DATABASE_URL",
            "postgresql://me:sec%zzret@host/db",
            "DATABASE_URL is not an address that PostgreSQL's library can read",
        ),
        (
            "DATABASE_URL",
            "postgresql://me@host/db?pool_max=1",
            "DATABASE_URL: pool_max must be a whole number from 2 on, not '1'",
        ),
        (
            "DATABASE_URL",
            "postgresql://me@host/db?pool_min=9&pool_max=8",
            "DATABASE_URL has a pool_min above its pool_max",
        ),
        (
            "DATABASE_URL",
            "postgresql://me@host/db?connect_timeout=soon",
            "DATABASE_URL: connect_timeout must be a whole number from 1 on, not 'soon'",
        ),
        (
            "DATABASE_URL",
            "sqlite:///a.sqlite3?mode=ro&cache=shared",
            "DATABASE_URL has options that are unknown to SQLite, which has none: cache, mode",
        ),
        ("DEBUG", "perhaps", "DEBUG must be true or false, not 'perhaps'"),
        ("MNESIS_MCP_PROGRAMS", "npx ...", "MNESIS_MCP_PROGRAMS: 'npx ...' would run anything"),
        (
            "MNESIS_KEY_VARIABLES",
            "MY_KEY, AWS_SECRET_ACCESS_KEY",
            "MNESIS_KEY_VARIABLES: AWS_SECRET_ACCESS_KEY holds a",
        ),
        ("MNESIS_PRIVATE_ADDRESSES", "ollama.lan", "MNESIS_PRIVATE_ADDRESSES: 'ollama.lan' is no address"),
        ("EMAIL_PORT", "smtp", "EMAIL_PORT must be a whole number from 1 on, not 'smtp'"),
        ("MNESIS_WORKERS", "many", "MNESIS_WORKERS must be a whole number from 1 on, not 'many'"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, name: str, value: str, sentence: str) -> None:
    done = manage("check", environment=environment_for(tmp_path, **{name: value}))
    assert done.returncode == 1
    assert done.stderr.startswith(f"Mnesis cannot start: {sentence}")
    assert len(done.stderr.strip().splitlines()) == 1


@pytest.mark.slow
def test_two_ways_to_encrypt_mail_are_one_too_many(tmp_path: Path) -> None:
    done = manage("check", environment=environment_for(tmp_path, EMAIL_USE_TLS="true", EMAIL_USE_SSL="true"))
    assert done.returncode == 1
    assert "EMAIL_USE_TLS and EMAIL_USE_SSL are two ways to encrypt" in done.stderr


def test_a_postgresql_address_is_read_piece_by_piece() -> None:
    entry = database("postgresql://al%40ice:p%2Fw@db.example:5433/the%20record", pooled=True)
    assert (entry["USER"], entry["PASSWORD"], entry["HOST"], entry["PORT"], entry["NAME"]) == (
        "al@ice",
        "p/w",
        "db.example",
        "5433",
        "the record",
    )
    assert entry["OPTIONS"]["pool"]


def test_options_of_an_address_reach_the_connection_and_the_pool() -> None:
    url = (
        "postgresql://me@host/db?sslmode=verify-full&sslrootcert=/a%20b/ca.pem&application_name=one+two"
        "&options=-c%20statement_timeout%3D5s&pool_max=3&pool_min=0&pool_timeout=7&connect_timeout=4&prepare_threshold=0"
    )
    assert database(url, pooled=True)["OPTIONS"] == {
        "sslmode": "verify-full",
        "sslrootcert": "/a b/ca.pem",
        "application_name": "one two",
        "fallback_application_name": "mnesis",
        "options": "-c statement_timeout=5s",
        **PATIENCE,
        "connect_timeout": 4,
        "prepare_threshold": None,
        "pool": {"max_size": 3, "min_size": 0, "timeout": 7, **WITHOUT_SERVER},
    }


def test_an_address_may_name_several_hosts_or_a_folder_of_sockets() -> None:
    several = database("postgresql://me@one:5432,two:5433/db?target_session_attrs=read-write", pooled=False)
    assert (several["HOST"], several["PORT"]) == ("one,two", "5432,5433")
    assert several["OPTIONS"]["target_session_attrs"] == "read-write"
    assert database("postgresql:///db?host=/run/postgresql", pooled=False)["HOST"] == "/run/postgresql"


@pytest.mark.slow
def test_a_connection_that_must_be_encrypted_is_not_made_in_clear(tmp_path: Path) -> None:
    with server_without_tls() as (port, heard):
        done = manage(
            "migrate",
            "--check",
            environment=environment_for(
                tmp_path, DATABASE_URL=f"postgresql://me:secret@127.0.0.1:{port}/db?sslmode=require"
            ),
        )
    assert "server does not support SSL, but SSL was required" in done.stderr
    assert set(heard) == {SSL_REQUEST}, "it asks for encryption, and says nothing else"


def test_only_web_processes_pool_connections() -> None:
    assert "pool" not in database("postgresql://me@host/db", pooled=False)["OPTIONS"]


def test_a_sqlite_address_may_be_absolute_or_relative(tmp_path: Path) -> None:
    assert database(f"sqlite:///{tmp_path}/a.sqlite3", pooled=False)["NAME"] == f"{tmp_path}/a.sqlite3"
    relative = Path(database("sqlite:///data/a.sqlite3", pooled=False)["NAME"])
    assert relative.parts[-2:] == ("data", "a.sqlite3")


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ImproperlyConfigured):
        database("", pooled=False)


def test_the_addresses_of_static_files_change_with_any_of_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(settings_module, "BASE_DIR", tmp_path)
    (tmp_path / "css").mkdir()
    file = tmp_path / "css" / "base.css"
    file.write_text("a")
    first = settings_module.digest_of(tmp_path)
    assert settings_module.digest_of(tmp_path) == first
    file.write_text("b")
    second = settings_module.digest_of(tmp_path)
    file.rename(tmp_path / "css" / "other.css")
    assert len({first, second, settings_module.digest_of(tmp_path)}) == 3


def test_a_secret_that_is_not_written_yet_is_nobodys_secret(tmp_path: Path) -> None:
    (tmp_path / ".no_such_variable").touch()
    made = env_secret("NO_SUCH_VARIABLE", tmp_path)
    assert len(made) > 50
    assert env_secret("NO_SUCH_VARIABLE", tmp_path) == made
