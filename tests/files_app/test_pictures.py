"""Renditions: who may show which file, when one is made, and where they are not seen."""

from __future__ import annotations

from typing import Any

import pytest

from agents_app.turns import lifecycle
from files_app.intake import keep_file
from files_app.models import FileReference
from files_app.pictures import find_pictures, keep_pictures
from files_app.queries import list_files
from mnesis_core.errors import InvalidPicture, SessionNotFoundError
from mnesis_core.files.pictures import ANTHROPIC, GEMINI, OPENAI, RENDITION, SentPicture
from mnesis_core.llm.interface import ModelSpec, settle_limits
from mnesis_core.records import SessionRecord
from tests.support.material.drawings import bomb, drawing
from tests.support.people.story import alice, bob

__all__ = ["alice", "bob"]

pytestmark = pytest.mark.django_db(transaction=True)
SEEING = ModelSpec(alias="s", litellm_model="openai/x", takes_pictures=True, **settle_limits())
BLIND = ModelSpec(alias="b", litellm_model="openai/x", takes_pictures=False, **settle_limits())


@pytest.fixture
def session(alice: Any) -> SessionRecord:
    return lifecycle.create_session(owner=alice)


def kept(session: SessionRecord, data: bytes, name: str = "a.png") -> str:
    return keep_file(session.id, owner_id=session.owner_id, path=name, chunks=[data]).id


def renditions() -> int:
    return FileReference.objects.filter(file_type=RENDITION).count()


def test_a_rendition_is_made_once_for_a_rule(session: SessionRecord):
    file_id = kept(session, drawing(3000, 2000))
    assert find_pictures(session, [file_id], ANTHROPIC) == {}
    first = find_pictures(session, [file_id], ANTHROPIC, makes=True)[file_id]
    assert (first.width, first.height, first.tokens) == (1342, 894, 1600)
    assert find_pictures(session, [file_id], ANTHROPIC, makes=True) == {file_id: first}
    assert find_pictures(session, [file_id], OPENAI) == {}
    assert renditions() == 1


def test_the_files_of_others_are_not_shown(session: SessionRecord, bob: Any):
    theirs = kept(lifecycle.create_session(owner=bob), drawing())
    assert find_pictures(session, [theirs, "file_none"], OPENAI, makes=True) == {}
    sent = SentPicture(name="a.png", media_type="image/png", data=drawing())
    with pytest.raises(SessionNotFoundError):
        keep_pictures(session.id, [sent], owner_id=bob.pk, spec=SEEING)


def test_another_session_of_the_person_has_a_rendition_of_its_own(session: SessionRecord, alice: Any):
    other = lifecycle.create_session(owner=alice)
    file_id = kept(session, drawing())
    assert find_pictures(other, [file_id], OPENAI, makes=True)
    assert FileReference.objects.get(file_type=RENDITION).session_id == other.id


def test_what_cannot_be_shown_is_tried_once(session: SessionRecord, monkeypatch: pytest.MonkeyPatch):
    files = [kept(session, bomb(), "bomb.png"), kept(session, b"<svg/>", "svg.png"), kept(session, drawing()[:50])]
    assert find_pictures(session, files, GEMINI, makes=True) == {}
    monkeypatch.setattr("files_app.pictures.render_alone", None)
    assert find_pictures(session, files, GEMINI, makes=True) == {}


def test_renditions_are_no_files_that_were_given(session: SessionRecord):
    file_id = kept(session, drawing())
    find_pictures(session, [file_id], OPENAI, makes=True)
    assert [file.id for file in list_files(owner_id=session.owner_id, session_id=session.id)] == [file_id]


def test_a_stored_rendition_may_be_anything(session: SessionRecord):
    file_id = kept(session, drawing())
    row = {"session_id": session.id, "path": "x", "file_type": RENDITION, "size": 5, "after_message_seq": 0}
    of = FileReference.objects.get(id=file_id)
    known = {"of": of.content_id, "rule": "openai-1", "media_type": "image/png", "width": 4, "height": 4}
    wrong: list[Any] = [None, 5, {}, {"rendition": known | {"media_type": "text/html"}}]
    wrong += [{"rendition": known | {"width": width}} for width in (0, 10**9, "4")]
    for place, exploration in enumerate(wrong):
        more = {"id": f"file_{place}", "content_id": "0" * 64, "added_seq": 10**6 + place, "created_at": of.created_at}
        FileReference.objects.create(**row, **more, exploration=exploration)
    assert find_pictures(session, [file_id], OPENAI) == {}


def test_sent_pictures_are_all_kept_or_none(session: SessionRecord, settings: Any):
    good, bad = (SentPicture(name=name, media_type="image/png", data=data) for name, data in PAIR)
    with pytest.raises(InvalidPicture):
        keep_pictures(session.id, [good, bad], owner_id=session.owner_id, spec=SEEING)
    assert not FileReference.objects.exists()
    [first] = keep_pictures(session.id, [good], owner_id=session.owner_id, spec=BLIND)
    assert renditions() == 0
    assert keep_pictures(session.id, [good], owner_id=session.owner_id, spec=SEEING) == [first]
    assert renditions() == 1


PAIR = (("a.png", drawing()), ("b.png", drawing(400, 300)[:200]))
