"""A wrong setting stops the start with one sentence that says which and why."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.core.exceptions import ImproperlyConfigured

from mnesis_site.settings import database, env_secret
from tests.support.site import environment_for, manage


@pytest.mark.parametrize(
    ("name", "value", "sentence"),
    [
        ("DATABASE_URL", "mysql://me@host/db", "DATABASE_URL must start with sqlite:/// or postgresql://, not 'mysql'"),
        ("DATABASE_URL", "mnesis", "DATABASE_URL must start with sqlite:/// or postgresql://, not 'nothing'"),
        ("DATABASE_URL", "postgresql://me@host", "DATABASE_URL names no database: postgresql://user@host:5432/NAME"),
        ("DATABASE_URL", "postgresql://me@host:abc/db", "DATABASE_URL is not an address: Port could not be cast"),
        ("DATABASE_URL", "postgresql://[::1/db", "DATABASE_URL is not an address:"),
        ("DEBUG", "perhaps", "DEBUG must be true or false, not 'perhaps'"),
        ("MNESIS_WORKERS", "many", "MNESIS_WORKERS must be a whole number from 1 on, not 'many'"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, name: str, value: str, sentence: str) -> None:
    done = manage("check", environment=environment_for(tmp_path, **{name: value}))
    assert done.returncode == 1
    assert done.stderr.startswith(f"Mnesis cannot start: {sentence}")
    assert len(done.stderr.strip().splitlines()) == 1


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


def test_only_web_processes_pool_connections() -> None:
    assert "pool" not in database("postgresql://me@host/db", pooled=False)["OPTIONS"]


def test_a_sqlite_address_may_be_absolute_or_relative(tmp_path: Path) -> None:
    assert database(f"sqlite:///{tmp_path}/a.sqlite3", pooled=False)["NAME"] == f"{tmp_path}/a.sqlite3"
    relative = Path(database("sqlite:///data/a.sqlite3", pooled=False)["NAME"])
    assert relative.parts[-2:] == ("data", "a.sqlite3")


def test_an_address_that_is_none_is_refused() -> None:
    with pytest.raises(ImproperlyConfigured):
        database("", pooled=False)


def test_a_secret_that_is_not_written_yet_is_nobodys_secret(tmp_path: Path) -> None:
    (tmp_path / ".no_such_variable").touch()
    made = env_secret("NO_SUCH_VARIABLE", tmp_path)
    assert len(made) > 50
    assert env_secret("NO_SUCH_VARIABLE", tmp_path) == made
