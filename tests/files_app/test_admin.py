"""Files in the inspector: what is known, which versions there are, who names them; nothing hostile does anything."""

from __future__ import annotations

from django.contrib.auth.models import User
from django.test import Client

from files_app.models import FileReference
from files_app.store import store_file_reference
from mnesis_core.messages import FileRefPart, TextPart
from sessions_app.record.change import change
from tests.support.people.cast import ada, inspector
from tests.support.record.inspected import list_of, page_of, shown
from tests.support.record.talks import HOSTILE, new_session, say

__all__ = ["ada", "inspector"]


def keep(session_id: str, content: str, **known: object) -> FileReference:
    values = {"path": "a.txt", "exploration_summary": "words", "token_count": 1_234, "size": 9} | known
    with change(session_id) as record:
        return FileReference.objects.get(id=store_file_reference(record, content_id=content * 32, **values))


def test_a_file_leads_to_its_versions_and_to_the_messages_that_name_it(ada: User, inspector: Client) -> None:
    session_id = new_session(ada)
    old, new = keep(session_id, "a1"), keep(session_id, "b2")
    keep(session_id, "c3", path="b.txt")
    reference = FileRefPart(file_id=new.id, path="a.txt", file_type="text", token_count=1, exploration_summary="")
    _, naming = say(session_id, ("user", [TextPart(text="no")]), ("user", [reference]))
    page = shown(inspector, page_of(new))
    assert "Version 1 of 2" in page
    assert page_of(old) in page
    assert "Named in message 2 (user)" in page
    assert f"/message/{naming.replace('_', '_5F')}/" in page or f"/message/{naming}/" in page
    assert "1,234" in page
    assert "Named in" not in shown(inspector, page_of(old))


def test_the_files_of_one_content_are_listed_together(ada: User, inspector: Client) -> None:
    here, there = keep(new_session(ada), "a1"), keep(new_session(ada), "a1")
    other = keep(new_session(ada), "b2")
    listed = shown(inspector, list_of(FileReference) + "?content_id=" + here.content_id)
    assert page_of(here) in listed
    assert page_of(there) in listed
    assert page_of(other) not in listed


def test_hostile_paths_and_summaries_do_nothing(ada: User, inspector: Client) -> None:
    row = keep(new_session(ada), "a1", path=HOSTILE, exploration_summary=HOSTILE)
    for page in (shown(inspector, list_of(FileReference)), shown(inspector, page_of(row))):
        assert "<script>alert" not in page
        assert "\u202e" not in page
