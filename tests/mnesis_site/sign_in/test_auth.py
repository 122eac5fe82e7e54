"""Who is asking: the keys of programs."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from datetime import timedelta
from typing import Any

import httpx2
import pytest
from django.contrib.auth.models import User
from django.utils import timezone

from mnesis_core.errors import InvalidRequest, NotFound, NotSignedIn, PermissionDenied
from mnesis_core.network.rate_limits import new_key
from mnesis_site.asgi import application
from sessions_app import callers
from sessions_app.callers import KeyAuth, check_key
from sessions_app.database import threads
from sessions_app.llm.model_store import create_key, find_key, find_key_with_owner, list_keys, revoke_key
from sessions_app.models import ApiKey


def test_a_key_is_its_owner(ada: User) -> None:
    key = create_key(owner_id=ada.pk)
    record = check_key(str(key))
    assert (record.owner_id, record.owner_name, record.may_write) == (ada.pk, "ada", True)


def test_only_a_hash_of_the_secret_is_kept(ada: User) -> None:
    key = create_key(owner_id=ada.pk)
    row = ApiKey.objects.values().get(prefix=key.prefix)
    assert key.secret not in str(row)
    assert row["secret_hash"] == key.secret_hash


@pytest.mark.parametrize("text", ["", "mns_", "nonsense", "mns_000000000000_" + "A" * 43, "\x00", "\udcff"])
def test_a_text_that_is_no_key_is_not_signed_in(db: None, text: str) -> None:
    with pytest.raises(NotSignedIn):
        check_key(text)


def test_another_secret_with_a_known_prefix_is_not_signed_in(ada: User) -> None:
    key = create_key(owner_id=ada.pk)
    with pytest.raises(NotSignedIn):
        check_key(f"mns_{key.prefix}_{new_key().secret}")


def test_a_revoked_key_is_not_signed_in_and_revoking_twice_keeps_the_time(ada: User) -> None:
    key = create_key(owner_id=ada.pk)
    revoke_key(key.prefix)
    first = list_keys()[0].revoked_at
    revoke_key(key.prefix)
    assert list_keys()[0].revoked_at == first
    with pytest.raises(NotSignedIn):
        check_key(str(key))


def test_revoking_an_unknown_key_says_so(db: None) -> None:
    with pytest.raises(NotFound, match="No key has this prefix"):
        revoke_key("000000000000")


def test_the_key_of_a_closed_account_is_not_signed_in(ada: User) -> None:
    key = create_key(owner_id=ada.pk)
    User.objects.filter(pk=ada.pk).update(is_active=False)
    with pytest.raises(NotSignedIn):
        check_key(str(key))


def test_use_is_noted_at_most_once_a_minute(ada: User) -> None:
    key = create_key(owner_id=ada.pk)
    check_key(str(key))
    noted = list_keys()[0].last_used_at
    assert noted is not None
    check_key(str(key))
    assert list_keys()[0].last_used_at == noted
    ApiKey.objects.update(last_used_at=timezone.now() - timedelta(minutes=2))
    check_key(str(key))
    again = list_keys()[0].last_used_at
    assert again is not None
    assert again > noted


def test_there_is_no_scope_that_nobody_checks(ada: User) -> None:
    with pytest.raises(InvalidRequest, match="all or read"):
        create_key(owner_id=ada.pk, scope="admin")
    assert not ApiKey.objects.exists()


def test_a_reading_key_reads_and_does_not_write(ada: User, rf: Any) -> None:
    key = str(create_key(owner_id=ada.pk, scope="read"))
    assert KeyAuth().authenticate(rf.get("/"), key) == ada
    for method in ("post", "patch", "put", "delete"):
        with pytest.raises(PermissionDenied):
            KeyAuth().authenticate(getattr(rf, method)("/"), key)


def test_find_key_knows_only_whole_prefixes(ada: User) -> None:
    key = create_key(owner_id=ada.pk)
    assert find_key(key.prefix) is not None
    assert find_key(key.prefix[:6]) is None
    assert find_key_with_owner(key.prefix) == (find_key(key.prefix), ada)
    assert find_key_with_owner(key.prefix[:6]) is None


async def sent_large(key: str, *, between: Callable[[], None] = lambda: None) -> int:
    """The status of a request with a body that only known callers may send, whose last piece comes after ``between``."""
    pieces = [b'{"config": {}, "title": "' + b"x" * 70_000, b'"}']

    async def body() -> AsyncIterator[bytes]:
        yield pieces[0]
        await threads.db(between)
        yield pieces[1]

    transport = httpx2.ASGITransport(app=application)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost:8000") as client:
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        return (await client.post("/api/sessions", content=body(), headers=headers)).status_code


@pytest.mark.django_db(transaction=True)
async def test_the_key_of_a_large_request_is_looked_up_once(ada: User, monkeypatch: pytest.MonkeyPatch) -> None:
    key, asked = await threads.db(create_key, owner_id=ada.pk), []
    monkeypatch.setattr(callers, "PROVEN_SECONDS", 600.0)  # the first request of a process takes long
    monkeypatch.setattr(
        callers, "find_key_with_owner", lambda prefix: asked.append(prefix) or find_key_with_owner(prefix)
    )
    assert await sent_large(str(key)) == 422  # of a valid caller: the title is too long
    assert asked == [key.prefix]


@pytest.mark.django_db(transaction=True)
async def test_a_key_that_is_revoked_while_a_body_comes_opens_nothing(
    ada: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(callers, "PROVEN_SECONDS", 0.0)
    key = await threads.db(create_key, owner_id=ada.pk)
    assert await sent_large(str(key), between=lambda: revoke_key(key.prefix)) == 401
