"""What outlives a change of SECRET_KEY, as long as the earlier one is among SECRET_KEY_FALLBACKS."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.contrib.sessions.models import Session
from django.http import HttpRequest
from django.test import Client

from mnesis_site.sign_in import COOKIE, known_device, sign_in_link
from sessions_app.database.threads import db
from sessions_app.live import Viewer, check_viewer
from tests.mnesis_site.endpoints.test_sockets import ask_who
from tests.support.record.talks import new_session
from tests.support.sites.site import environment_for, manage

# Committed, because the threads of the sockets have connections of their own.
pytestmark = pytest.mark.usefixtures("transactional_db")

ORIGIN = "http://localhost:8000"


@pytest.fixture
def cookie(ada: User, client: Client) -> str:
    client.force_login(ada)
    return str(client.cookies["sessionid"].value)


def change_secret(settings: Any) -> None:
    settings.SECRET_KEY_FALLBACKS = [settings.SECRET_KEY]
    settings.SECRET_KEY = "another"


async def test_an_open_page_may_connect_again_and_stays_signed_in(cookie: str, settings: Any, client: Client) -> None:
    change_secret(settings)
    for _ in range(2):
        who = await ask_who(origin=ORIGIN, cookie=f"sessionid={cookie}")
        assert who == {"user": "ada", "may_write": True}
    answer = await db(client.get, "/")
    assert answer.status_code == 200
    assert client.cookies["sessionid"].value != cookie  # which Django signs with the new key


async def test_a_sign_in_by_a_key_that_is_forgotten_is_nobodys(cookie: str, settings: Any, client: Client) -> None:
    settings.SECRET_KEY = "another"
    who = await ask_who(origin=ORIGIN, cookie=f"sessionid={cookie}")
    assert who == {"user": "", "may_write": True}
    assert (await db(client.get, "/")).status_code == 302


def test_the_check_of_a_stream_leaves_the_sign_in_as_it_is(cookie: str, ada: User, settings: Any) -> None:
    viewer = Viewer(owner_id=ada.pk, cookie=cookie)
    change_secret(settings)
    before = list(Session.objects.values())
    check_viewer(viewer, new_session(ada))
    assert list(Session.objects.values()) == before


def test_links_and_devices_are_known_still(ada: User, settings: Any) -> None:
    link, client = sign_in_link(User.objects.create_user("new")), Client()
    client.post("/sign-in/", {"username": "ada", "password": "correct horse"})
    request = HttpRequest()
    request.COOKIES[COOKIE] = client.cookies[COOKIE].value
    device = known_device(request, "ada")
    change_secret(settings)
    assert device
    assert known_device(request, "ada") == device
    assert Client().get(link).status_code == 200
    settings.SECRET_KEY_FALLBACKS = []
    assert known_device(request, "ada") == ""
    assert Client().get(link).status_code == 410


@pytest.mark.slow
def test_earlier_keys_come_from_the_environment(tmp_path: Path) -> None:
    environment = environment_for(tmp_path, SECRET_KEY_FALLBACKS="one, two")
    code = "from django.conf import settings; print(settings.SECRET_KEY_FALLBACKS)"
    assert manage("shell", "--command", code, environment=environment).stdout.strip().endswith("['one', 'two']")
