"""API keys as text."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from mnesis_core.network.rate_limits import KeyRecord, KeyText, new_key, parse_key

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def record_of(key: KeyText) -> KeyRecord:
    return KeyRecord(
        prefix=key.prefix,
        owner_id=1,
        owner_name="ada",
        scope="all",
        secret_hash=key.secret_hash,
        created_at=NOW,
        last_used_at=None,
        revoked_at=None,
        is_at_home=True,
    )


def test_a_new_key_reads_back_from_its_text() -> None:
    for _ in range(200):  # a secret may hold underscores and dashes itself
        key = new_key()
        assert parse_key(str(key)) == key


@pytest.mark.parametrize(
    "text",
    ["", "mns_", "mns_0123456789ab_", "sk-123", "mns_0123456789ab_" + "x" * 42, "mns_0123456789ab_" + "é" * 43],
)
def test_text_that_is_no_key_is_none(text: str) -> None:
    assert parse_key(text) is None


def test_text_after_a_key_makes_it_none() -> None:
    assert parse_key(f"{new_key()}\n") is None
    assert parse_key(f"{new_key()}\x00") is None


def test_only_the_right_secret_proves_a_key() -> None:
    key, other = new_key(), new_key()
    assert record_of(key).is_proven_by(key)
    assert not record_of(key).is_proven_by(replace(other, prefix=key.prefix))


def test_a_revoked_key_proves_nothing() -> None:
    key = new_key()
    assert not replace(record_of(key), revoked_at=NOW).is_proven_by(key)


def test_the_record_does_not_hold_the_secret() -> None:
    key = new_key()
    assert key.secret not in repr(record_of(key))
