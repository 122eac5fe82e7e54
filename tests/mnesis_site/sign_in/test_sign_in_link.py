"""The link of the first sign-in: opening it changes nothing, and it is good until a password is set."""

from __future__ import annotations

from typing import Any

import pytest
from django.contrib.auth.models import User
from django.test import Client

from mnesis_site.sign_in import FirstSignInToken, first_admin, sign_in_link

NEW = {"new_password1": "high-tide-at-ten", "new_password2": "high-tide-at-ten"}


@pytest.fixture
def admin(db: None) -> User:
    user = first_admin()
    assert user is not None
    return user


def is_signed_in(client: Client) -> bool:
    return client.get("/").status_code == 200


def test_opening_the_link_any_number_of_times_signs_nobody_in_and_spends_nothing(admin: User) -> None:
    link, preview = sign_in_link(admin), Client()
    for ask in (preview.head, preview.get, preview.get):
        assert ask(link).status_code == 200
    assert not is_signed_in(preview)
    admin.refresh_from_db()
    assert admin.last_login is None
    browser = Client()
    assert "Sign in as admin" in browser.get(link).content.decode()
    assert browser.post(link)["Location"] == "/password/"
    assert is_signed_in(browser)


def test_signing_in_takes_a_button_of_ours(admin: User) -> None:
    elsewhere = Client(enforce_csrf_checks=True)
    assert elsewhere.post(sign_in_link(admin)).status_code == 403
    assert not is_signed_in(elsewhere)


def test_the_link_is_good_until_a_password_is_set_and_then_no_more(admin: User) -> None:
    link, first, second = sign_in_link(admin), Client(), Client()
    for browser in (first, second):
        browser.post(link)
        assert is_signed_in(browser)
    assert first.post("/password/", NEW).status_code == 302
    assert is_signed_in(first)
    assert not is_signed_in(second)  # the other browser that had the link is out
    assert second.post("/password/", NEW)["Location"].startswith("/sign-in/")
    for answer in (second.get(link), second.post(link)):
        assert answer.status_code == 410
    assert not is_signed_in(second)


def test_each_start_has_a_link_until_there_is_a_password(admin: User) -> None:
    Client().post(sign_in_link(admin))
    assert first_admin() == admin
    admin.set_password("high-tide-at-ten")
    admin.save()
    assert first_admin() is None


def test_a_link_that_is_too_old_says_what_to_do(admin: User, settings: Any) -> None:
    link = sign_in_link(admin)
    settings.PASSWORD_RESET_TIMEOUT = -1
    for answer in (Client().get(link), Client().post(link)):
        assert answer.status_code == 410
        assert "Start the server again" in answer.content.decode()


def test_an_upgrade_keeps_the_links_that_are_out() -> None:
    assert FirstSignInToken.key_salt == "mnesis_site.sign_in"


@pytest.mark.parametrize("key", ["MQ", "AAAA", "%00", "x" * 300, "LTE", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5"])
def test_a_link_that_nobody_made_is_the_same_to_everybody(admin: User, key: str) -> None:
    for token in ("nosuch-0", "-", "x", FirstSignInToken().make_token(User(pk=0))):
        assert Client().get(f"/sign-in/link/{key}/{token}/").status_code == 410


def test_a_link_of_an_account_that_was_closed_does_not_sign_in(admin: User) -> None:
    link = sign_in_link(admin)
    User.objects.update(is_active=False)
    assert Client().post(link).status_code == 410
