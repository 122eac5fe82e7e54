"""Pictures of assistants: what is taken, that it is written anew, and who is shown it."""

from __future__ import annotations

import io
import itertools
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.core.files.uploadedfile import SimpleUploadedFile
from django.test import Client
from PIL import Image

from agents_app.turns import defaults, lifecycle
from files_app.pictures import MOST_PORTRAIT_BYTES
from mnesis_core.errors import InvalidPicture, RequestTooLarge
from mnesis_core.records import AssistantRecord
from sessions_app.assistants import assistant_store
from sessions_app.assistants.assistant_store import list_assistants, list_versions, load_assistant
from tests.support.material.drawings import document, recording

pytestmark = pytest.mark.django_db(transaction=True)

SVG = b'<svg xmlns="http://www.w3.org/2000/svg"><script>alert(1)</script></svg>'
HTML = b"<!doctype html><script>alert(1)</script>"


def drawn(form: str = "PNG", size: tuple[int, int] = (600, 300), colour: str = "navy", **more: Any) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", size, colour).save(out, form, **more)
    return out.getvalue()


@pytest.fixture
def pilot(alice: User, bob: User) -> AssistantRecord:
    """Alice's, for Bob too, with a picture."""
    return defaults.create_assistant(owner_id=alice.pk, name="Pilot", people=["bob"], portrait=[drawn()])


def change(pilot: AssistantRecord, owner: User, **values: Any) -> AssistantRecord:
    return defaults.update_assistant(pilot.id, owner_id=owner.pk, **values)


def colour_at(answer: Any) -> tuple[int, int, int]:
    """The colour of a picture that was answered."""
    with Image.open(io.BytesIO(answer.content)) as picture:
        red, green, blue = picture.convert("RGB").getpixel((1, 1))
        return red, green, blue


@pytest.mark.slow
def test_each_format_is_taken_scaled_down_and_written_anew(alice: User, client: Client) -> None:
    client.force_login(alice)
    exif = Image.Exif()
    exif[0x010E] = "taken at home"
    forms: list[tuple[str, dict[str, Any]]] = [
        ("PNG", {}),
        ("JPEG", {"exif": exif}),
        ("WEBP", {"exif": exif}),
        ("GIF", {}),
    ]
    small, large = ((40, 20), (40, 20)), ((600, 300), (256, 128))
    for (form, more), (size, shown) in itertools.product(forms, (small, large)):
        sent = drawn(form, size, **more) + HTML
        made = defaults.create_assistant(owner_id=alice.pk, name=form, portrait=[sent[:9], sent[9:]])
        for path in (f"/assistants/{made.id}/picture/", f"/api/assistants/{made.id}/picture"):
            answer = client.get(path)
            assert answer["Content-Type"] == ("image/jpeg" if form == "JPEG" else "image/png")
            assert (answer["X-Content-Type-Options"], "sandbox" in answer["Content-Security-Policy"]) == (
                "nosniff",
                True,
            )
            with Image.open(io.BytesIO(answer.content)) as picture:
                assert picture.size == shown
            assert not any(word in answer.content for word in (b"taken at home", b"<script", b"<html"))


@pytest.mark.slow
def test_what_is_no_picture_or_is_too_large_is_refused_and_nothing_changes(
    pilot: AssistantRecord, alice: User, client: Client
) -> None:
    client.force_login(alice)
    path = f"/api/assistants/{pilot.id}/picture"
    for data in (b"", b"x", SVG, HTML, document("Tides"), recording(), drawn()[:-40], drawn("BMP"), drawn("TIFF")):
        with pytest.raises(InvalidPicture):
            change(pilot, alice, portrait=[data])
        answer = client.post(path, {"file": SimpleUploadedFile("a.png", data, "image/png")})
        assert (answer.status_code, answer.json()["error"]["code"]) == (422, "INVALID_PICTURE"), data[:20]
    with pytest.raises(RequestTooLarge):
        change(pilot, alice, portrait=[drawn(), bytes(MOST_PORTRAIT_BYTES)])
    large = client.post(path, {"file": SimpleUploadedFile("a.png", bytes(MOST_PORTRAIT_BYTES + 1))})
    assert (large.status_code, large.json()["error"]["code"]) == (413, "REQUEST_TOO_LARGE")
    assert client.post(path).json()["error"]["details"]["field"] == "file"
    assert load_assistant(pilot.id, user_id=alice.pk) == pilot


def test_each_picture_is_a_version_and_the_same_one_again_is_none(pilot: AssistantRecord, alice: User) -> None:
    assert change(pilot, alice, portrait=[drawn()]).version == 1
    other = change(pilot, alice, portrait=[drawn(colour="gold")])
    assert (other.version, other.picture != pilot.picture) == (2, True)
    assert change(pilot, alice, instructions="Speak of boats.").picture == other.picture
    assert change(pilot, alice, picture="").picture == ""
    pictures = [one.picture for one in list_versions(pilot, user_id=alice.pk)]
    assert pictures == ["", other.picture, other.picture, pilot.picture]


def test_a_session_shows_the_picture_that_its_version_has_whatever_becomes_of_the_assistant(
    pilot: AssistantRecord, alice: User, bob: User, client: Client
) -> None:
    session = lifecycle.create_session(owner=bob, assistant_id=pilot.id)
    plain = lifecycle.create_session(owner=bob)
    change(pilot, alice, portrait=[drawn(colour="gold")], people=[])
    assistant_store.remove_assistant(pilot.id, owner_id=alice.pk)
    path = f"/sessions/{session.id}/picture/"
    client.force_login(bob)
    assert colour_at(client.get(path)) == (0, 0, 128)
    assert f'src="{path}"' in client.get(f"/sessions/{session.id}/").content.decode()
    assert client.get(f"/sessions/{plain.id}/picture/").status_code == 404
    assert "portrait" not in client.get(f"/sessions/{plain.id}/").content.decode()
    client.force_login(alice)
    assert client.get(path).status_code == 404


def test_a_picture_is_for_those_who_may_use_the_assistant_and_its_owner_to_change(
    pilot: AssistantRecord, alice: User, bob: User, client: Client
) -> None:
    api, page = f"/api/assistants/{pilot.id}/picture", f"/assistants/{pilot.id}/picture/"
    sent = {"file": SimpleUploadedFile("a.png", drawn(colour="gold"))}
    client.force_login(bob)
    assert (colour_at(client.get(api)), colour_at(client.get(page))) == ((0, 0, 128), (0, 0, 128))
    assert f'src="{page}"' in client.get("/assistants/").content.decode()
    assert client.post(api, sent).json()["error"]["code"] == "ASSISTANT_NOT_YOURS"
    assert client.delete(api).json()["error"]["code"] == "ASSISTANT_NOT_YOURS"
    change(pilot, alice, people=[])
    assert [client.get(api).status_code, client.get(page).status_code, client.delete(api).status_code] == [404] * 3
    assert client.post(api, sent).json()["error"]["code"] == "ASSISTANT_NOT_FOUND"
    client.force_login(alice)
    sent["file"].seek(0)
    assert client.post(api, sent).status_code == 201
    assert colour_at(client.get(page)) == (255, 215, 0)
    assert client.delete(api).json()["picture"] is None
    assert [client.get(api).status_code, client.get(page).status_code] == [404, 404]


@pytest.mark.slow
def test_a_form_takes_a_picture_and_removes_it(alice: User, client: Client) -> None:
    client.force_login(alice)
    values = {"name": "élan", "tools_from": "site", "audience": "named"}
    picture = {"picture": SimpleUploadedFile("a.png", drawn(), "image/png")}
    assert client.post("/assistants/add/", values | picture).status_code == 302
    [made] = list_assistants(user_id=alice.pk)
    page, form = f"/assistants/{made.id}/", f"/assistants/{made.id}/change/"
    assert (made.version, f'src="{page}picture/"' in client.get(page).content.decode()) == (1, True)
    assert client.post(form, values).status_code == 302
    assert load_assistant(made.id, user_id=alice.pk) == made
    for wrong in (SVG, b"", bytes(MOST_PORTRAIT_BYTES + 1)):
        answer = client.post(form, values | {"picture": SimpleUploadedFile("a.png", wrong, "image/png")})
        assert (answer.status_code, "at most 1 MB.</li>" in answer.content.decode()) == (200, True), wrong[:20]
    assert load_assistant(made.id, user_id=alice.pk) == made
    assert client.post(form, values | {"removes_picture": "on"}).status_code == 302
    assert load_assistant(made.id, user_id=alice.pk).picture == ""
    shown = client.get(page).content.decode()
    assert (f'src="{page}picture/"' in shown, ">É</span>" in shown) == (False, True)
