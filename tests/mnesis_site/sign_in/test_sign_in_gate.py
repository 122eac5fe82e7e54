"""A flood of passwords or keys is refused before it costs anything, and its refusals wait."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.signing import get_cookie_signer
from django.http import HttpRequest, HttpResponse
from django.test import RequestFactory

from mnesis_site import sign_in
from mnesis_site.sign_in import COOKIE, SALT, STRANGERS, SignInGate
from tests.mnesis_site.sign_in.test_hashing import full

AT_ONCE = 10


class Site:
    """What stands behind the gate; it counts what it is asked."""

    def __init__(self, status: int = 200) -> None:
        self.status, self.asked = status, 0

    def __call__(self, request: HttpRequest) -> HttpResponse:
        self.asked += 1
        return HttpResponse(status=self.status)


def password(rf: RequestFactory, *, path: str = "/sign-in/", address: str = "198.51.100.1", cookie: str = "") -> Any:
    request = rf.post(path, {"username": "ada", "password": "wrong"}, REMOTE_ADDR=address)
    request.COOKIES[COOKIE] = cookie
    return request


def device_cookie() -> str:
    return get_cookie_signer(salt=COOKIE + SALT).sign("device.mark")


@pytest.mark.parametrize("path", ["/sign-in/", "/admin/login/"])
def test_from_one_address_only_so_many_passwords_pass_the_gate(rf: RequestFactory, path: str) -> None:
    site = Site()
    gate = SignInGate(site)
    statuses = [gate(password(rf, path=path)).status_code for _ in range(AT_ONCE + 30)]  # type: ignore[union-attr]
    assert site.asked == statuses.count(200)
    assert AT_ONCE <= site.asked < AT_ONCE + 10
    assert statuses.count(429) == AT_ONCE + 30 - site.asked
    assert gate(password(rf, path=path, address="203.0.113.9")).status_code == 200  # type: ignore[union-attr]


def test_what_is_refused_there_is_a_page_with_the_policy_or_an_error_of_the_registry(rf: RequestFactory) -> None:
    gate = SignInGate(Site())
    with full(STRANGERS):
        page: Any = gate(password(rf))
        request = password(rf)
        request.META["HTTP_ACCEPT"] = "application/json"
        error: Any = gate(request)
    assert (page.status_code, page["Retry-After"]) == (503, "2")
    assert "PASSWORDS_BUSY" in page.content.decode()
    assert 'href="/sign-in/"' in page.content.decode()
    assert "default-src 'none'" in page["Content-Security-Policy"]
    assert b'"code": "PASSWORDS_BUSY"' in error.content


def test_a_device_that_has_signed_in_before_passes_and_a_forged_one_does_not(rf: RequestFactory) -> None:
    gate = SignInGate(Site())
    with full(STRANGERS):
        assert gate(password(rf, cookie=device_cookie())).status_code == 200  # type: ignore[union-attr]
        assert gate(password(rf, cookie="device.mark:1:x")).status_code == 503  # type: ignore[union-attr]


def test_pages_and_other_addresses_pass(rf: RequestFactory) -> None:
    gate = SignInGate(Site())
    with full(STRANGERS):
        assert gate(rf.get("/sign-in/")).status_code == 200  # type: ignore[union-attr]
        assert gate(rf.post("/api/sessions")).status_code == 200  # type: ignore[union-attr]


@pytest.fixture
def held(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The seconds that answers were held, instead of holding them."""
    seconds: list[float] = []

    async def sleep(how_long: float) -> None:
        seconds.append(how_long)

    monkeypatch.setattr(sign_in.asyncio, "sleep", sleep)
    return seconds


@pytest.mark.parametrize(
    ("path", "status", "headers", "is_held"),
    [
        ("/sign-in/", 429, {}, True),
        ("/admin/login/", 503, {}, True),
        ("/sign-in/", 200, {}, False),
        ("/api/sessions", 401, {"Authorization": "Bearer x"}, True),
        ("/api/sessions", 401, {}, False),
        ("/api/sessions", 429, {"Authorization": "Bearer x"}, False),  # a provider's, say
    ],
)
async def test_while_refusals_are_many_they_wait(
    rf: RequestFactory, held: list[float], path: str, status: int, headers: dict[str, str], is_held: bool
) -> None:
    async def site(request: HttpRequest) -> HttpResponse:
        return HttpResponse(status=status)

    gate = SignInGate(site)
    for _ in range(30):
        answer: Any = await gate(rf.get(path, headers=headers))  # type: ignore[misc]
        assert answer.status_code == status
    assert bool(held) == is_held
    assert all(1 <= seconds <= 3 for seconds in held)
    assert not is_held or 20 <= len(held) <= 25


@pytest.mark.parametrize("is_https", [False, True])
def test_the_cookie_of_a_device_lasts(db: None, client: Any, settings: Any, is_https: bool) -> None:
    settings.SESSION_COOKIE_SECURE = is_https
    User.objects.create_user("ada", password="correct horse")
    cookie = client.post("/sign-in/", {"username": "ada", "password": "correct horse"}).cookies[COOKIE]
    assert cookie["max-age"] == 400 * 24 * 3600
    assert bool(cookie["secure"]) == is_https
