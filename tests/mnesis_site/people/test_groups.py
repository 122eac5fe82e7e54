"""The pages of groups: who sees and changes them, what a name may be, and what goes with a group that is deleted."""

from __future__ import annotations

import re
from typing import Any

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from mnesis_core.errors import InvalidRequest, NotFound, PermissionDenied
from mnesis_core.llm.interface import ModelSpec
from mnesis_site.people import people_store
from mnesis_site.people.accounts import GRANTS, count_grants, find_group, standing_of
from mnesis_site.people.views import SUGGESTED
from sessions_app.assistants import assistant_store
from sessions_app.llm.model_store import Audience, enter_model
from tests.mnesis_site.people.test_people import client_of, staff_of, text
from tests.support.people.cast import ada, inspector, make_user
from tests.support.people.organisations import put_into

pytestmark = pytest.mark.django_db

__all__ = ["ada", "inspector"]

BAD_NAMES = ["", "  ", "x" * 151, "x" * 10_000, "a\x00b", "a\u202eb", "a\u200bb", "WRITERS"]


def make_group(name: str, *members: User) -> Group:
    group = Group.objects.create(name=name)
    group.user_set.set(members)
    return group


def staff_with_groups(organisation: str, name: str, *groups: Group) -> User:
    """Staff who may manage accounts, and see groups."""
    user = staff_of(organisation, name, *groups)
    user.user_permissions.add(Permission.objects.get(codename="view_group"))
    return user


def post(client: Client, path: str, **values: Any) -> str:
    answer = client.post(path, values)
    assert answer.status_code == 200, answer.content
    return answer.content.decode()


def notes() -> list[str]:
    return [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]


# What the pages show


def test_none_one_and_many_groups_are_listed_with_their_members(inspector: Client, ada: User) -> None:
    assert "No groups yet." in text(inspector, "/people/groups/")
    writers = make_group("Writers", ada)
    page = text(inspector, "/people/groups/")
    assert "1 member\n" in page
    make_group("Readers", ada, make_user("bob"))
    make_group("Nobody")
    page = text(inspector, "/people/groups/")
    assert "2 members" in page
    assert "0 members" in page
    assert page.index("Nobody") < page.index("Readers") < page.index("Writers")
    assert ">ada<" in text(inspector, f"/people/groups/{writers.pk}/")


def test_many_groups_and_members_take_as_many_queries_as_few(inspector: Client) -> None:
    first = make_group("group", make_user("one"))
    paths = ("/people/groups/", f"/people/groups/{first.pk}/", f"/people/groups/{first.pk}/delete/")

    def queries() -> list[int]:
        counts = []
        for path in paths * 2:
            with CaptureQueriesContext(connection) as captured:
                text(inspector, path)
            counts.append(len(captured))
        return counts[len(paths) :]

    few = queries()
    first.user_set.add(*(make_user(f"person {number:03}") for number in range(60)))
    for number in range(20):
        make_group(f"group {number}", make_user(f"other {number}"))
    assert queries() == few
    page = text(inspector, paths[1])
    assert "person 040" in page
    assert "person 059" not in page
    rest = text(inspector, paths[1], cursor="person 048")
    assert "person 059" in rest
    assert "<h1" not in rest


def test_hostile_names_are_shown_as_text(inspector: Client) -> None:
    group = make_group("<script>alert(1)</script>\u202egpj", make_user("<script>alert(2)</script>"))
    for path in ("/people/groups/", f"/people/groups/{group.pk}/", f"/people/groups/{group.pk}/delete/"):
        page = text(inspector, path)
        assert "<script>alert" not in page
        assert "\u202e" not in re.sub("<input[^>]*>", "", page)


def test_people_and_the_palette_lead_there_for_those_who_may(inspector: Client) -> None:
    there = 'href="/people/groups/"'
    without = client_of(staff_of("default"))
    for path in ("/people/", "/sessions/palette/"):
        assert there in text(inspector, path)
        assert there not in text(without, path)


# Who may see and change them


def test_people_without_the_permissions_find_no_page() -> None:
    group = make_group("Writers")
    looker = User.objects.create_user("looker", is_staff=True)
    looker.user_permissions.add(Permission.objects.get(codename="view_group"))
    for user in (make_user("member"), staff_of("default"), looker):
        for path in ("", f"{group.pk}/", f"{group.pk}/delete/"):
            assert client_of(user).get(f"/people/groups/{path}").status_code == 404
    assert Client().get("/people/groups/").status_code == 302


def test_staff_see_and_count_members_of_their_own_organisation() -> None:
    here, there = make_user("here"), make_user("there")
    put_into("north", here.pk)
    put_into("south", there.pk)
    group = make_group("Writers", here, there)
    sam = staff_with_groups("north", "sam")
    assert "1 member\n" in text(client_of(sam), "/people/groups/")
    page = text(client_of(sam), f"/people/groups/{group.pk}/")
    assert ">here<" in page
    assert ">there<" not in page
    chief = standing_of(User.objects.create_superuser("chief"))
    assert find_group(chief, group.pk).members == 2


def test_only_administrators_create_rename_and_delete(subtests: Any) -> None:
    group = make_group("Writers")
    sam = staff_with_groups("default", "sam", group)
    sam.user_permissions.add(*Permission.objects.filter(content_type__app_label="auth"))
    client = client_of(sam)
    for path in ("", f"{group.pk}/", f"{group.pk}/delete/"):
        with subtests.test(path):
            assert client.post(f"/people/groups/{path}", {"name": "Other"}).status_code == 404
    for act in (
        lambda: people_store.create_group(sam.pk, "Other"),
        lambda: people_store.rename_group(sam.pk, group.pk, "Other"),
        lambda: people_store.delete_group(sam.pk, group.pk),
    ):
        with pytest.raises(PermissionDenied):
            act()
    assert list(Group.objects.values_list("name", flat=True)) == ["Writers"]


def test_staff_add_and_remove_in_groups_that_they_are_in() -> None:
    own, other, bob = make_group("Own"), make_group("Other"), make_user("bob")
    client = client_of(staff_with_groups("default", "sam", own))
    assert "bob is now in this group." in post(client, f"/people/groups/{own.pk}/members/", username="bob")
    assert "Add member" not in text(client, f"/people/groups/{other.pk}/")
    page = post(client, f"/people/groups/{other.pk}/members/", username="bob")
    assert "You can give only the groups that you are in." in page
    assert set(bob.groups.all()) == {own}
    other.user_set.add(bob)
    page = post(client, f"/people/groups/{other.pk}/members/{bob.pk}/remove/")
    assert "You can give only the groups that you are in." in page
    assert "bob is no longer in this group." in post(client, f"/people/groups/{own.pk}/members/{bob.pk}/remove/")
    assert set(bob.groups.all()) == {other}
    assert notes() == ["Added to the group “Own”.", "Removed from the group “Own”."]


def test_a_group_gives_no_one_power_over_accounts_with_more_permissions() -> None:
    own, chief, stronger = make_group("Own"), User.objects.create_superuser("chief"), make_user("stronger")
    stronger.user_permissions.add(Permission.objects.get(codename="view_turn"))
    sam = staff_with_groups("default", "sam", own)
    client, there = client_of(sam), make_user("there")
    put_into("south", there.pk)
    for user in (chief, stronger, sam):
        assert "nly an administrator can change" in post(
            client, f"/people/groups/{own.pk}/members/", username=user.username
        )
        own.user_set.add(user)
        assert "nly an administrator can change" in post(client, f"/people/groups/{own.pk}/members/{user.pk}/remove/")
        assert own in user.groups.all()
    assert "No account has this name." in post(client, f"/people/groups/{own.pk}/members/", username="there")
    own.user_set.add(there)
    assert client.post(f"/people/groups/{own.pk}/members/{there.pk}/remove/").status_code == 404
    assert own in there.groups.all()


def test_usernames_of_those_who_can_be_added_are_suggested() -> None:
    own, closed, there = make_group("Own", make_user("bobby")), make_user("bob.closed"), make_user("bob.there")
    closed.is_active = False
    closed.save()
    put_into("south", there.pk)
    make_user("Bob"), make_user("alice")
    client = client_of(staff_with_groups("default", "sam", own))

    def suggested(typed: str) -> list[str]:
        page = text(client, f"/people/groups/{own.pk}/candidates/?username={typed}")
        return re.findall(r'<option value="([^"]*)">', page)

    assert suggested("bo") == ["Bob"]
    assert suggested("%20BOB%20") == ["Bob"]
    assert suggested("") == suggested("%25") == suggested("%00") == suggested("x" * 5_000) == []
    for number in range(SUGGESTED + 2):
        make_user(f"name{number:02}")
    assert suggested("name") == [f"name{number:02}" for number in range(SUGGESTED)]


def test_looking_at_groups_permits_nothing_else() -> None:
    group, bob = make_group("Own"), make_user("bob")
    looker = User.objects.create_user("looker", is_staff=True)
    looker.user_permissions.set(Permission.objects.filter(codename__in=["view_user", "view_group"]))
    group.user_set.add(looker)
    client = client_of(looker)
    page = text(client, f"/people/groups/{group.pk}/")
    assert "Add member" not in page
    assert "Remove" not in page
    assert client.get(f"/people/groups/{group.pk}/candidates/?username=bob").status_code == 404
    for path in ("members/", f"members/{bob.pk}/remove/", "delete/", ""):
        assert client.post(f"/people/groups/{group.pk}/{path}", {"username": "bob"}).status_code == 404
    assert not bob.groups.exists()


# What is done to them


def test_a_group_is_created_renamed_and_deleted_and_the_administration_has_it(inspector: Client, ada: User) -> None:
    there = inspector.post("/people/groups/", {"name": "  The \t writers "})["Location"]
    group = Group.objects.get(name="The writers")
    assert there == f"/people/groups/{group.pk}/"
    assert not group.permissions.exists()
    assert "Saved." in post(inspector, there, name="The Writers")
    assert "Saved." in post(inspector, there, name="The Writers")
    assert "Renamed from “The writers”." in text(inspector, f"/admin/auth/group/{group.pk}/history/")
    group.user_set.add(ada)
    assert inspector.post(f"{there}delete/")["Location"] == "/people/groups/"
    assert not Group.objects.exists()
    assert notes() == ["Created.", "Renamed from “The writers”.", "Deleted. Members: 1."]
    assert User.objects.filter(pk=ada.pk).exists()


@pytest.mark.parametrize("name", BAD_NAMES)
def test_a_name_that_cannot_be_is_told_at_its_field_and_kept_in_it(inspector: Client, name: str) -> None:
    make_group("Writers")
    group = make_group("Readers")
    for path in ("/people/groups/", f"/people/groups/{group.pk}/"):
        page = post(inspector, path, name=name)
        assert "errorlist" in page
        assert f'value="{name.strip()}"' in page or not name.strip()
    assert set(Group.objects.values_list("name", flat=True)) == {"Writers", "Readers"}


def test_a_lone_surrogate_breaks_no_form(inspector: Client, ada: User) -> None:
    sent: dict[str, Any] = {"content_type": "application/x-www-form-urlencoded"}
    for path, field in (("", "name"), (f"{make_group('Writers').pk}/members/", "username")):
        answer = inspector.post(f"/people/groups/{path}", data=f"{field}=%ED%A0%80", **sent)
        assert answer.status_code < 500


def test_a_name_that_was_taken_in_the_meantime_is_told(ada: User) -> None:
    make_group("Writers")
    other = make_group("Readers")
    with pytest.raises(InvalidRequest):
        people_store.create_group(ada.pk, "Writers")
    with pytest.raises(InvalidRequest):
        people_store.rename_group(ada.pk, other.pk, "Writers")


@pytest.mark.parametrize("name", ["", "nosuch", "a\x00b", "\u202e", "x" * 10_000])
def test_a_member_that_is_none_is_told_at_the_field(inspector: Client, name: str) -> None:
    group = make_group("Writers")
    assert "errorlist" in post(inspector, f"/people/groups/{group.pk}/members/", username=name)
    assert not group.user_set.exists()


def test_an_act_that_changes_nothing_is_no_error_and_not_noted(inspector: Client, ada: User) -> None:
    group = make_group("Writers", ada)
    post(inspector, f"/people/groups/{group.pk}/members/", username="ada")
    post(inspector, f"/people/groups/{group.pk}/members/{make_user('bob').pk}/remove/")
    assert notes() == []


def test_what_goes_with_a_group_is_counted_before_it_is_deleted(inspector: Client, ada: User) -> None:
    group = make_group("Writers", ada, make_user("bob"))
    group.permissions.set(Permission.objects.all()[:3])
    spec = ModelSpec(alias="big", litellm_model="openai/x", context_window=8_000, max_output_tokens=900)
    enter_model(spec, api_key_env="", audience=Audience(groups=[group]))
    for name in ("kept", "removed"):
        assistant = assistant_store.create_assistant(owner_id=ada.pk, name=name, groups=["Writers"])
    assistant_store.remove_assistant(assistant.id, owner_id=ada.pk)
    assert [count for _, count in count_grants(group.pk)] == [3, 1, 0, 1]
    page = text(inspector, f"/people/groups/{group.pk}/delete/")
    assert "Assistants shared with it" in page
    inspector.post(f"/people/groups/{group.pk}/delete/")
    assert [count for _, count in count_grants(group.pk)] == [0, 0, 0, 0]


def test_everything_that_refers_to_a_group_is_counted() -> None:
    referring = {
        field.related_model._meta.label
        for field in Group._meta.get_fields(include_hidden=True)
        if field.auto_created and field.one_to_many
    }
    assert referring - {"auth.User_groups", "auth.Group_permissions"} == set(GRANTS)


@pytest.mark.parametrize("number", ["0", "999999", "9" * 40])
def test_a_group_that_is_not_there_is_not_found(inspector: Client, ada: User, number: str) -> None:
    for path in ("", "delete/", "candidates/?username=ada"):
        assert inspector.get(f"/people/groups/{number}/{path}").status_code == 404
    for path in ("", "delete/", "members/", f"members/{ada.pk}/remove/"):
        sent = {"name": "x", "username": "ada"}
        assert inspector.post(f"/people/groups/{number}/{path}", sent).status_code == 404
    group = make_group("Writers")
    assert inspector.post(f"/people/groups/{group.pk}/members/{number}/remove/").status_code == 404
    with pytest.raises(NotFound):
        people_store.rename_group(ada.pk, 0, "x")


def test_acts_are_posted_with_a_token_of_ours(ada: User) -> None:
    group, client = make_group("Writers", ada), Client(enforce_csrf_checks=True)
    client.force_login(ada)
    for path in ("", f"{group.pk}/", f"{group.pk}/delete/", f"{group.pk}/members/"):
        assert client.post(f"/people/groups/{path}").status_code == 403
    for path in ("members/", f"members/{ada.pk}/remove/"):
        assert client.get(f"/people/groups/{group.pk}/{path}").status_code == 405
