"""The page of a preview, and who may have a summary made again on its page."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from django.contrib.auth.models import Permission, User
from django.test import Client

from compaction_app import revise
from sessions_app.pages.permissions import SEES_RECORDS
from sessions_app.record.change import change
from sessions_app.record.session_store import archive_session
from tests.compaction_app.lineage.test_lineage import Tree
from tests.support.people.cast import make_user

pytestmark = pytest.mark.django_db
OFFERED = 'id="repair"'
Ask = Callable[[str], str]


@pytest.fixture
def tree(owner: User) -> Tree:
    return Tree(owner)


@pytest.fixture
def ask(owner_client: Client) -> Ask:
    return lambda address: owner_client.get(address).content.decode()


def page_of(tree: Tree, summary_id: str) -> str:
    return f"/sessions/{tree.id}/inspect/summaries/{summary_id}/"


def test_a_preview_shows_what_would_change(tree: Tree, ask: Ask) -> None:
    made = revise.preview(tree.top, model="demo", subtree=True)
    page = ask(f"/sessions/{tree.id}/inspect/previews/{made}/")
    assert page.index("The harbour.") < page.index("The ferries.")  # the one that was asked for is first
    assert page.count('class="line-removed"') >= 3
    assert page.count('class="line-added"') >= 3
    assert 'data-verb="apply"' in page
    revise.apply(made)
    page = ask(f"/sessions/{tree.id}/inspect/previews/{made}/")
    assert 'data-verb="apply"' not in page
    assert f'href="{page_of(tree, made)}"' in page


def test_only_the_newest_text_is_made_again_and_the_previous_one_restored(tree: Tree, ask: Ask) -> None:
    page = ask(page_of(tree, tree.left))
    assert 'data-verb="preview"' in page
    assert 'data-verb="undo"' not in page
    assert "subtree" not in page
    assert "subtree" in ask(page_of(tree, tree.top))
    [made] = revise.apply(revise.preview(tree.left, model="demo"))
    assert OFFERED not in ask(page_of(tree, tree.left))
    assert 'data-verb="undo"' in ask(page_of(tree, made))
    with change(tree.id) as record:
        archive_session(record)
    assert OFFERED not in ask(page_of(tree, made))


def test_staff_see_previews_and_repair_nothing(tree: Tree) -> None:
    made = revise.preview(tree.left, model="demo")
    auditor = make_user("auditor")
    auditor.is_staff = True
    auditor.save()
    auditor.user_permissions.set(Permission.objects.filter(codename__in=[name.split(".")[1] for name in SEES_RECORDS]))
    client = Client()
    client.force_login(auditor)
    page = client.get(f"/sessions/{tree.id}/inspect/previews/{made}/").content.decode()
    assert 'class="line-added"' in page
    assert OFFERED not in page
    assert OFFERED not in client.get(page_of(tree, tree.left)).content.decode()


def test_a_preview_is_found_in_its_session_alone(tree: Tree, owner: User, owner_client: Client) -> None:
    made = revise.preview(tree.left, model="demo")
    other = Tree(owner)
    client = Client()
    client.force_login(make_user("bob"))
    for reader, session_id, preview_id in (
        (owner_client, other.id, made),
        (owner_client, tree.id, "sum_nowhere"),
        (owner_client, tree.id, "\0"),
        (client, tree.id, made),
    ):
        assert reader.get(f"/sessions/{session_id}/inspect/previews/{preview_id}/").status_code == 404
