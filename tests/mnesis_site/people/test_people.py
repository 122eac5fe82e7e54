"""The pages of people: who sees whom, what staff do to an account, and what becomes of it."""

from __future__ import annotations

import re
from typing import Any
from urllib.parse import quote

import pytest
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, Permission, User
from django.core import mail
from django.db import connection
from django.test import Client
from django.test.utils import CaptureQueriesContext

from mnesis_core.network.people import State
from mnesis_site.people import people_store
from mnesis_site.people.accounts import list_accounts, standing_of
from sessions_app.llm.model_store import MOST_KEYS, create_key, list_keys
from sessions_app.llm.spending_store import load_account_limits, put_account_limits
from sessions_app.record.organisation_store import home_of
from tests.support.people.cast import ada, inspector, make_user
from tests.support.people.organisations import put_into
from tests.support.record.talks import HOSTILE, new_session

pytestmark = pytest.mark.django_db

__all__ = ["ada", "inspector"]

PASSWORD = "high-tide-at-ten"
CHOSEN = {"new_password1": PASSWORD, "new_password2": PASSWORD}
LINK = re.compile(r"http://testserver(/welcome/[\w-]+/[\w-]+/)")


def staff_of(organisation: str, name: str = "sam", *groups: Group) -> User:
    """A member of the staff of that organisation who may manage accounts."""
    user = make_user(name)
    put_into(organisation, user.pk)
    user.is_staff = True
    user.save()
    permitted = ("view_user", "add_user", "change_user", "change_accountlimit", "change_apikey")
    user.user_permissions.set(Permission.objects.filter(codename__in=permitted))
    user.groups.set(groups)
    return user


def client_of(user: User) -> Client:
    client = Client()
    client.force_login(user)
    return client


def with_password(name: str) -> User:
    return User.objects.create_user(name, password=PASSWORD)


def text(client: Client, path: str, **data: Any) -> str:
    answer = client.get(path, data)
    assert answer.status_code == 200, answer.content
    return answer.content.decode()


def link_in(page: str) -> str:
    [link] = set(LINK.findall(page))
    return str(link)


def invited(client: Client, **values: Any) -> str:
    return client.post("/people/invite/", {"username": "nora", "role": "member"} | values).content.decode()


def change(client: Client, user: User, **values: Any) -> str:
    """The form as it is on the page, with these values."""
    form = client.get(f"/people/{user.pk}/").context["form"]
    sent = {"email": user.email, "role": form.initial["role"], "groups": form.initial["groups"]}
    path, posted = f"/people/{user.pk}/", sent | {"version": form.initial["version"]} | values
    return client.post(path, posted).content.decode()


def is_in(client: Client) -> bool:
    return client.get("/").status_code == 200


def signed_in_by_password(user: User, password: str = PASSWORD) -> bool:
    return Client().login(username=user.get_username(), password=password)


# The list


def test_the_list_has_everyone_with_what_they_are(inspector: Client, ada: User) -> None:
    bob = User.objects.create_user("bob", email="bob@example.org", password=PASSWORD)
    bob.groups.add(Group.objects.create(name="Writers"))
    new_session(bob)
    put_account_limits(bob.pk, {"day": {"cost_micros": 5_000_000, "tokens": 1_000}})
    User.objects.create_user("closed one", is_active=False)
    page = text(inspector, "/people/")
    for words in ("ada", "administrator", "bob@example.org", "Writers", "$0 of $5.00", "0 of 1,000 tokens", "closed"):
        assert words in page
    assert "No name or email address" in text(inspector, "/people/", q="nosuch")
    found = text(inspector, "/people/", q="BOB@")
    assert f"/people/{bob.pk}/" in found
    assert f"/people/{ada.pk}/" not in found


def test_the_palette_finds_people_for_staff(inspector: Client, ada: User) -> None:
    bob = User.objects.create_user("bob <b>", email="rower@example.org")
    User.objects.create_user("bobby", is_active=False)
    assert 'data-source="/people/options/"' in text(inspector, "/sessions/palette/")
    found = text(inspector, "/people/options/", q="ROWER")
    assert f'href="/people/{bob.pk}/"' in found
    assert "bob &lt;b&gt;" in found
    assert text(inspector, "/people/options/", q="bob").count("closed") == 1
    for query in ("", "  ", "nosuch", "\x00", "x" * 5_000):
        assert "role" not in text(inspector, "/people/options/", q=query)
    member = client_of(make_user("otto"))
    assert "people" not in text(member, "/sessions/palette/")
    assert member.get("/people/options/?q=bob").status_code in {403, 404}


def test_the_palette_finds_people_of_ones_own_organisation_alone() -> None:
    sam, other = staff_of("acme"), make_user("samuel")
    put_into("birch", other.pk)
    found = text(client_of(sam), "/people/options/", q="sam")
    assert f"/people/{sam.pk}/" in found
    assert "samuel" not in found


def test_the_list_goes_on_and_takes_as_many_queries_for_many(inspector: Client) -> None:
    def queries() -> int:
        text(inspector, "/people/")
        with CaptureQueriesContext(connection) as captured:
            text(inspector, "/people/")
        return len(captured)

    few = queries()
    users = User.objects.bulk_create(User(username=f"person {number:03}", password="!") for number in range(120))
    for user in users[:9]:
        new_session(user)
        create_key(owner_id=user.pk)
    assert queries() == few
    seen: list[str] = []
    url = "/people/"
    while url:
        page = text(inspector, url)
        seen += re.findall(r"person \d{3}(?=</bdi>)", page)
        more = re.search(r'hx-get="(/people/\?[^"]*cursor=[^"]*)"', page)
        url = more[1].replace("&amp;", "&") if more else ""
    assert seen == [user.username for user in users]


def test_a_state_finds_the_accounts_that_the_list_shows_in_it(inspector: Client, ada: User) -> None:
    with_password("active")
    passwords = {"reset": "!", "invited": "!x", "empty": "", "closed": "x", "closed without": "!"}
    User.objects.bulk_create(
        User(username=name, password=password, is_active="closed" not in name) for name, password in passwords.items()
    )
    everyone = list_accounts(standing_of(ada), limit=99)
    assert {account.state for account in everyone} == set(State)
    for state in State:
        found = list_accounts(standing_of(ada), state=state, limit=99)
        assert found == [account for account in everyone if account.state is state]
        assert [account.name for account in found] == re.findall(
            r"([\w ]+)</bdi></a>", text(inspector, "/people/", state=state)
        )


def test_a_state_goes_with_a_search_and_stays_in_what_loads_more(inspector: Client) -> None:
    User.objects.bulk_create(User(username=f"gone {number:03}", password="!", is_active=False) for number in range(60))
    with_password("gone home")
    page = inspector.get("/people/", {"q": "gone", "state": "closed"}, headers={"HX-Target": "people-found"})
    assert page.headers["HX-Push-Url"] == "/people/?q=gone&state=closed"
    [more] = re.findall(r'hx-get="([^"]*)"', page.content.decode())
    rest = text(inspector, more.replace("&amp;", "&"))
    assert "gone 059" in rest
    assert "gone home" not in page.content.decode() + rest


@pytest.mark.parametrize("state", ["nosuch", "ACTIVE", "\x00", "\ud800", "\u202e", "x" * 10_000])
def test_a_state_that_is_none_is_any(inspector: Client, state: str) -> None:
    page = inspector.get("/people/?state=" + quote(state, errors="surrogatepass"))
    assert ">ada<" in page.content.decode()


def test_a_state_that_no_one_is_in_leads_to_everyone(inspector: Client) -> None:
    page = text(inspector, "/people/", state="closed")
    assert "No one was found in this state." in page
    assert 'href="/people/">Show everyone' in page


@pytest.mark.parametrize(
    "query", ["\x00", "%", "_", "\\", "'", "\u202e", "x" * 5_000, HOSTILE[:900].encode("utf-8", "replace").decode()]
)
def test_no_search_breaks_the_list(inspector: Client, query: str) -> None:
    page = text(inspector, "/people/", q=query)
    assert "<script>alert" not in page
    text(inspector, "/people/", cursor=query)


def test_hostile_names_are_shown_as_text(inspector: Client) -> None:
    user = make_user("<script>alert(1)</script>\u202egpj")
    for path in ("/people/", f"/people/{user.pk}/"):
        page = text(inspector, path)
        assert "<script>alert" not in page
        assert "\u202e" not in page


def test_the_menu_and_the_palette_lead_there_for_those_who_may(inspector: Client) -> None:
    there = 'href="/people/"'
    assert there in text(inspector, "/")
    assert there in text(inspector, "/sessions/palette/")
    member = client_of(make_user("member"))
    assert there not in text(member, "/")
    assert there not in text(member, "/sessions/palette/")


def test_the_first_steps_offer_an_invitation_to_those_who_may_invite(inspector: Client) -> None:
    there = 'href="/people/invite/"'
    assert there in text(inspector, "/")
    modeller = User.objects.create_user("modeller", is_staff=True)
    modeller.user_permissions.add(Permission.objects.get(codename="add_languagemodel"))
    page = text(client_of(modeller), "/")
    assert "Set up this site" in page
    assert there not in page


# Who sees and changes whom


def test_people_without_the_permission_find_no_page() -> None:
    member, plain_staff = make_user("member"), User.objects.create_user("plain", is_staff=True)
    for user in (member, plain_staff):
        for path in ("/people/", "/people/invite/", f"/people/{member.pk}/"):
            assert client_of(user).get(path).status_code == 404
    assert "/people/" not in text(client_of(plain_staff), "/")
    assert Client().get("/people/").status_code == 302


def test_looking_permits_nothing_else() -> None:
    looker, other = User.objects.create_user("looker", is_staff=True), with_password("other")
    looker.user_permissions.add(Permission.objects.get(codename="view_user"))
    client = client_of(looker)
    page = text(client, f"/people/{other.pk}/")
    assert "Save" not in page
    assert "Close account" not in page
    for path in ("", "limits/", "link/", "sign-out/", "close/", "reopen/"):
        assert client.post(f"/people/{other.pk}/{path}").status_code == 404
    assert client.post("/people/invite/", {"username": "x", "role": "member"}).status_code == 404
    other.refresh_from_db()
    assert other.is_active
    assert other.has_usable_password()


def test_staff_of_one_organisation_have_nothing_to_do_with_another(subtests: Any) -> None:
    sam, here, there = staff_of("north"), with_password("here"), with_password("there")
    put_into("north", here.pk)
    put_into("south", there.pk)
    client = client_of(sam)
    page = text(client, "/people/")
    assert ">here<" in page
    assert ">there<" not in page
    assert client.get(f"/people/{there.pk}/").status_code == 404
    for path in ("", "limits/", "link/", "sign-out/", "close/", "reopen/", "keys/", "keys/abc/revoke/"):
        with subtests.test(path):
            sent = {"role": "member", "version": "x"}
            assert client.post(f"/people/{there.pk}/{path}", sent).status_code == 404
    there.refresh_from_db()
    assert there.is_active
    assert there.has_usable_password()
    invited(client)
    assert home_of(User.objects.get(username="nora").pk) == home_of(sam.pk)


def test_an_account_without_a_pseudonym_is_in_the_organisation_of_the_site() -> None:
    [lost] = User.objects.bulk_create([User(username="lost", password="!")])
    client = client_of(staff_of("default"))
    assert ">lost<" in text(client, "/people/")
    assert client.get(f"/people/{lost.pk}/").status_code == 200
    assert ">lost<" not in text(client_of(staff_of("south", "sue")), "/people/")


def test_staff_change_nobody_who_may_do_more(subtests: Any) -> None:
    client = client_of(staff_of("default"))
    stronger, chief = with_password("stronger"), User.objects.create_superuser("chief", password=PASSWORD)
    group = Group.objects.create(name="Observers")
    group.permissions.add(Permission.objects.get(codename="view_turn"))
    stronger.groups.add(group)
    for user in (stronger, chief):
        for path in ("limits/", "link/", "sign-out/", "close/", "reopen/"):
            with subtests.test(user=user.username, path=path):
                assert client.post(f"/people/{user.pk}/{path}").status_code == 403
        user.refresh_from_db()
        assert user.is_active
        assert user.has_usable_password()
        assert "Only an administrator can change" in text(client, f"/people/{user.pk}/").replace("only", "Only")


def test_a_closed_account_with_more_rights_stays_out_of_reach() -> None:
    closed = User.objects.create_user("closed", is_active=False)
    closed.user_permissions.add(Permission.objects.get(codename="view_turn"))
    assert client_of(staff_of("default")).post(f"/people/{closed.pk}/reopen/").status_code == 403


def test_staff_give_only_what_they_have() -> None:
    own, other = Group.objects.create(name="Own"), Group.objects.create(name="Other")
    client, bob = client_of(staff_of("default", "sam", own)), with_password("bob")
    bob.groups.add(other)
    for values in ({"role": "administrator"}, {"groups": [other.pk]}):
        invited(client, **values)
        assert not User.objects.filter(username="nora").exists()
        change(client, bob, **values)
        bob.refresh_from_db()
        assert not bob.is_superuser
    assert "Saved." in change(client, bob, role="staff", groups=[own.pk])
    bob.refresh_from_db()
    assert bob.is_staff
    assert set(bob.groups.all()) == {own, other}  # the one that Sam cannot give is not taken either
    change(client, bob, groups=[])
    assert set(bob.groups.all()) == {other}


def test_the_store_refuses_what_no_form_offers() -> None:
    group, sam = Group.objects.create(name="Other"), staff_of("default")
    made: dict[str, Any] = {"username": "nora", "email": "", "groups": []}
    with pytest.raises(people_store.PermissionDenied):
        people_store.invite(sam.pk, role=people_store.Role.ADMINISTRATOR, **made)
    with pytest.raises(people_store.PermissionDenied):
        people_store.invite(sam.pk, role=people_store.Role.MEMBER, **made | {"groups": [group.pk]})
    User.objects.filter(pk=sam.pk).update(is_active=False)
    with pytest.raises(people_store.PermissionDenied):
        people_store.invite(sam.pk, role=people_store.Role.MEMBER, **made)
    assert not User.objects.filter(username="nora").exists()


def test_nobody_ends_or_demotes_themselves_so_an_administrator_is_left(inspector: Client, ada: User) -> None:
    ada.set_password(PASSWORD)
    ada.save()
    inspector.force_login(ada)
    for path in ("link/", "close/"):
        assert inspector.post(f"/people/{ada.pk}/{path}").status_code == 403
    change(inspector, ada, role="member")
    ada.refresh_from_db()
    assert ada.is_active
    assert ada.is_superuser
    assert ada.has_usable_password()
    # And one whom another closed in the meantime closes nobody.
    chief = User.objects.create_superuser("chief")
    people_store.close(chief.pk, ada.pk)
    with pytest.raises(people_store.PermissionDenied):
        people_store.close(ada.pk, chief.pk)


def test_staff_do_not_change_their_own_account() -> None:
    sam = staff_of("default")
    client = client_of(sam)
    assert "Save limits" not in text(client, f"/people/{sam.pk}/")
    assert client.post(f"/people/{sam.pk}/limits/", {"before": "{}"}).status_code == 403
    assert change_raw(client, sam) == 403


def change_raw(client: Client, user: User) -> int:
    version = client.get(f"/people/{user.pk}/").context["account"].version
    return client.post(f"/people/{user.pk}/", {"role": "staff", "version": version}).status_code


# Invitations and links


def test_an_invited_person_chooses_a_password_by_the_link_and_is_in(inspector: Client) -> None:
    group = Group.objects.create(name="Writers")
    page = invited(inspector, email="nora@example.org", role="staff", groups=[group.pk])
    link, nora = link_in(page), User.objects.get(username="nora")
    assert (nora.is_staff, nora.is_superuser, nora.email) == (True, False, "nora@example.org")
    assert list(nora.groups.all()) == [group]
    assert not nora.has_usable_password()
    assert not mail.outbox  # no host is set
    assert not LINK.search(text(inspector, f"/people/{nora.pk}/"))
    assert "invited" in text(inspector, "/people/", q="nora")
    person = Client()
    for _ in range(2):
        assert "nora" in text(person, link)
    assert not is_in(person)
    assert person.post(link, CHOSEN)["Location"] == "/"
    assert is_in(person)
    assert signed_in_by_password(nora)
    for answer in (Client().get(link), Client().post(link, CHOSEN)):
        assert answer.status_code == 410
    assert "active" in text(inspector, "/people/", q="nora")


def test_who_is_signed_in_as_another_is_told_so(inspector: Client) -> None:
    link = link_in(invited(inspector))
    assert "You are signed in here as" in text(inspector, link)
    assert "You are signed in here as" not in text(Client(), link)


def test_a_weak_password_is_refused_at_its_field_and_the_link_stays_good(inspector: Client) -> None:
    link = link_in(invited(inspector))
    page = Client().post(link, {"new_password1": "short", "new_password2": "short"}).content.decode()
    assert "errorlist" in page
    assert Client().post(link, CHOSEN).status_code == 302


def test_of_two_choices_with_one_link_one_counts(inspector: Client) -> None:
    invited(inspector)
    first, second = (User.objects.get(username="nora") for _ in range(2))
    assert people_store.choose_password(first, PASSWORD)
    assert not people_store.choose_password(second, "another-long-one")
    assert signed_in_by_password(first)


def test_a_newer_link_takes_the_place_of_the_older_one(inspector: Client) -> None:
    older = link_in(invited(inspector))
    nora = User.objects.get(username="nora")
    newer = link_in(inspector.post(f"/people/{nora.pk}/link/").content.decode())
    assert Client().get(older).status_code == 410
    assert Client().post(newer, CHOSEN).status_code == 302


def test_a_link_ends_with_its_time_and_with_the_account(inspector: Client, settings: Any) -> None:
    link = link_in(invited(inspector))
    nora = User.objects.get(username="nora")
    inspector.post(f"/people/{nora.pk}/close/")
    assert Client().get(link).status_code == 410
    inspector.post(f"/people/{nora.pk}/reopen/")
    assert Client().get(link).status_code == 410  # one that was out when the account was closed stays void
    link = link_in(inspector.post(f"/people/{nora.pk}/link/").content.decode())
    assert Client().get(link).status_code == 200
    settings.PASSWORD_RESET_TIMEOUT = -1
    assert Client().post(link, CHOSEN).status_code == 410


@pytest.mark.parametrize("key", ["MQ", "AAAA", "%00", "x" * 300, "LTE", "OTk5OTk5OTk5OTk5OTk5OTk5OTk5OTk5"])
def test_a_link_that_nobody_made_opens_nothing(ada: User, key: str) -> None:
    for token in ("nosuch-0", "-", "x"):
        assert Client().get(f"/welcome/{key}/{token}/").status_code == 410


def test_a_link_of_the_first_start_is_no_invitation_and_the_other_way_round(inspector: Client) -> None:
    from mnesis_site.sign_in import sign_in_link

    link = link_in(invited(inspector))
    assert Client().get(link.replace("/welcome/", "/sign-in/link/")).status_code == 410
    first = sign_in_link(User.objects.get(username="nora"))
    assert Client().get(first.replace("/sign-in/link/", "/welcome/")).status_code == 410


@pytest.mark.parametrize("name", ["", " ", "ADA", "Ada", "a b", "a\x00b", "x" * 151, "<b>", "a\u202eb", "x" * 10_000])
def test_a_name_that_cannot_be_is_told_at_its_field(inspector: Client, name: str) -> None:
    page = invited(inspector, username=name)
    assert "errorlist" in page
    assert not LINK.search(page)
    assert User.objects.count() == 1


def test_a_name_that_was_taken_in_the_meantime_is_told_at_its_field(inspector: Client, ada: User) -> None:
    with pytest.raises(people_store.InvalidRequest):
        people_store.invite(ada.pk, username="ada", email="", role=people_store.Role.MEMBER, groups=[])
    assert User.objects.get().is_superuser


@pytest.mark.parametrize(
    "values",
    [
        {"email": "does not send email"},
        {"email": "a@b.example\nBcc: x@y.example"},
        {"role": "king"},
        {"groups": ["x"]},
        {"groups": [10**30]},
    ],
)
def test_bad_values_are_told_at_their_field(inspector: Client, values: dict[str, Any]) -> None:
    assert "errorlist" in invited(inspector, **values)
    assert User.objects.count() == 1


def test_with_a_mail_host_the_link_is_mailed_too(inspector: Client, settings: Any) -> None:
    settings.EMAIL_HOST = "mail.example"
    page = invited(inspector, email="nora@example.org")
    assert "It was emailed to" in page
    [sent] = mail.outbox
    assert sent.to == ["nora@example.org"]
    assert link_in(page) in sent.body
    assert "It was emailed" not in invited(inspector, username="without")


def test_a_mail_that_fails_loses_neither_the_account_nor_the_link(inspector: Client, settings: Any) -> None:
    settings.EMAIL_BACKEND = "django.core.mail.backends.smtp.EmailBackend"
    settings.EMAIL_HOST, settings.EMAIL_PORT = "127.0.0.1", 1
    page = invited(inspector, email="nora@example.org")
    assert "It could not be emailed" in page
    assert Client().post(link_in(page), CHOSEN).status_code == 302


def test_an_administrator_chooses_the_organisation_of_a_new_account(inspector: Client) -> None:
    north = put_into("north", make_user("north").pk)
    invited(inspector, organisation_id=north)
    assert home_of(User.objects.get(username="nora").pk) == north
    assert "errorlist" in invited(inspector, username="other", organisation_id="org_nosuch")


# One account


def test_role_groups_and_mail_are_changed_and_told_in_the_administration(inspector: Client, ada: User) -> None:
    bob, group = with_password("bob"), Group.objects.create(name="Writers")
    assert "Saved." in change(inspector, bob, role="administrator", email="bob@example.org", groups=[group.pk])
    bob.refresh_from_db()
    assert bob.is_superuser
    entry = LogEntry.objects.get()
    assert (entry.user, entry.object_id) == (ada, str(bob.pk))
    assert "role member → administrator" in entry.get_change_message()
    history = text(inspector, f"/admin/auth/user/{bob.pk}/history/")
    assert "groups none → Writers" in history
    assert "role member → administrator" in text(inspector, f"/people/{bob.pk}/")
    assert "Saved." in change(inspector, bob, email="bob@example.org")
    assert LogEntry.objects.count() == 1  # nothing changed


def test_a_change_does_not_undo_another_one_that_it_did_not_see(inspector: Client) -> None:
    bob = with_password("bob")
    version = inspector.get(f"/people/{bob.pk}/").context["account"].version
    change(inspector, bob, role="staff")
    late = {"email": "bob@example.org", "role": "member", "version": version}
    page = inspector.post(f"/people/{bob.pk}/", late).content.decode()
    assert "Someone else has changed this account" in page
    bob.refresh_from_db()
    assert (bob.is_staff, bob.email) == (True, "")


def test_a_limit_refills_each_day_and_other_limits_stay(inspector: Client) -> None:
    bob = with_password("bob")
    put_account_limits(bob.pk, {"user": {"tokens": 7}})
    path = f"/people/{bob.pk}/limits/"
    page = inspector.post(path, {"cost": "1.5", "tokens": "1000", "before": "{}"}).content.decode()
    assert "Limits saved" in page
    assert "0 of 1,000 tokens a day" in page
    limits = {"user": {"tokens": 7}, "day": {"tokens": 1000, "cost_micros": 1_500_000}}
    assert load_account_limits(bob.pk) == limits
    assert "Someone else" in inspector.post(path, {"tokens": "5", "before": "{}"}).content.decode()
    assert load_account_limits(bob.pk) == limits
    inspector.post(path, {"before": '{"tokens": 1000, "cost_micros": 1500000}'})
    assert load_account_limits(bob.pk) == {"user": {"tokens": 7}}


@pytest.mark.parametrize("name", ["cost", "tokens", "seconds", "tool_calls"])
@pytest.mark.parametrize("value", ["-1", "0", "x", "NaN", "Infinity", "1e999", "9" * 5_000, "\x00"])
def test_a_limit_that_is_none_is_told_at_its_field(inspector: Client, name: str, value: str) -> None:
    bob = with_password("bob")
    page = inspector.post(f"/people/{bob.pk}/limits/", {name: value, "before": "{}"}).content.decode()
    assert "errorlist" in page
    assert load_account_limits(bob.pk) == {}


@pytest.mark.parametrize("before", ["x", "[" * 5_000, "[1]", "3", '"x"', '{"tokens": 1}'])
def test_nothing_posted_as_the_limits_before_breaks_the_form(inspector: Client, before: str) -> None:
    bob = with_password("bob")
    assert inspector.post(f"/people/{bob.pk}/limits/", {"tokens": "5", "before": before}).status_code < 500
    assert load_account_limits(bob.pk) == {}


def test_a_new_password_ends_the_one_before_and_every_sign_in(inspector: Client) -> None:
    bob = with_password("bob")
    browser = client_of(bob)
    page = inspector.post(f"/people/{bob.pk}/link/").content.decode()
    assert not is_in(browser)
    assert not signed_in_by_password(bob)
    assert (
        Client()
        .post(link_in(page), {"new_password1": "another-long-one", "new_password2": "another-long-one"})
        .status_code
        == 302
    )
    assert signed_in_by_password(bob, "another-long-one")


def test_signing_out_everywhere_ends_browsers_and_nothing_else(inspector: Client) -> None:
    bob = with_password("bob")
    browsers, key = [client_of(bob), client_of(bob)], create_key(owner_id=bob.pk)
    for _ in range(2):
        page = inspector.post(f"/people/{bob.pk}/sign-out/").content.decode()
        assert "Signed out everywhere" in page
        bob.refresh_from_db()
        assert len(bob.password) <= 128
        assert not any(map(is_in, browsers))
        assert signed_in_by_password(bob)
        assert not signed_in_by_password(bob, "wrong")
        browsers = [client_of(bob)]
    assert Client(headers={"Authorization": f"Bearer {key}"}).get("/api/sessions").status_code == 200
    assert is_in(inspector)


def test_a_person_without_a_password_is_signed_out_too(inspector: Client) -> None:
    nora = make_user("nora")
    browser = client_of(nora)
    inspector.post(f"/people/{nora.pk}/sign-out/")
    assert not is_in(browser)


def test_staff_may_sign_themselves_out_everywhere(inspector: Client, ada: User) -> None:
    other = client_of(ada)
    assert inspector.post(f"/people/{ada.pk}/sign-out/")["Location"] == "/sign-in/"
    assert not is_in(inspector)
    assert not is_in(other)


def test_a_closed_account_opens_nothing_and_keeps_everything(inspector: Client) -> None:
    bob = with_password("bob")
    session, browser, key = new_session(bob), client_of(bob), create_key(owner_id=bob.pk)
    program = Client(headers={"Authorization": f"Bearer {key}"})
    page = inspector.post(f"/people/{bob.pk}/close/").content.decode()
    assert "The account is closed" in page
    assert not is_in(browser)
    assert not signed_in_by_password(bob)
    assert program.get("/api/sessions").status_code == 401
    assert list_keys(owner_id=bob.pk)[0].revoked_at is not None
    assert inspector.post(f"/people/{bob.pk}/link/").status_code == 403
    assert inspector.get(f"/sessions/{session}/inspect/").status_code == 200
    assert "The account is reopened" in inspector.post(f"/people/{bob.pk}/reopen/").content.decode()
    assert not is_in(browser)
    assert signed_in_by_password(bob)
    assert program.get("/api/sessions").status_code == 401
    said = [entry.get_change_message() for entry in LogEntry.objects.order_by("pk")]
    assert said == ["Closed, with 1 API key.", "Reopened."]


def test_a_key_is_revoked_for_its_owner(inspector: Client) -> None:
    bob, eve = with_password("bob"), with_password("eve")
    mine, other = create_key(owner_id=bob.pk, name="Notebook"), create_key(owner_id=eve.pk)
    assert "Notebook" in text(inspector, f"/people/{bob.pk}/")
    assert inspector.post(f"/people/{bob.pk}/keys/{other.prefix}/revoke/").status_code == 404
    assert "is revoked" in inspector.post(f"/people/{bob.pk}/keys/{mine.prefix}/revoke/").content.decode()
    assert Client(headers={"Authorization": f"Bearer {mine}"}).get("/api/sessions").status_code == 401
    assert Client(headers={"Authorization": f"Bearer {other}"}).get("/api/sessions").status_code == 200


def test_a_key_is_made_for_another_account_and_shown_once(inspector: Client) -> None:
    bob = with_password("bob")
    path, wanted = f"/people/{bob.pk}/keys/", {"name": "Nightly <b>", "scope": "read", "mode": ""}
    page = inspector.post(path, wanted).content.decode()
    [key] = re.findall(r"<code>(mns_[^<…]+)</code>", page)
    assert "Nightly &lt;b&gt;" in page
    program = Client(headers={"Authorization": f"Bearer {key}"})
    assert program.get("/api/sessions").status_code == 200
    assert program.post("/api/sessions", {}, content_type="application/json").status_code == 403
    assert key not in text(inspector, f"/people/{bob.pk}/")
    [said] = [entry.get_change_message() for entry in LogEntry.objects.all()]
    assert re.fullmatch(r"Created the API key \w+\.", said)
    assert said[20:-1] in key
    assert "errorlist" in inspector.post(path, wanted | {"scope": "\x00"}).content.decode()
    for _ in range(MOST_KEYS - 1):
        create_key(owner_id=bob.pk)
    assert "Revoke one that is not used any more" in inspector.post(path, wanted).content.decode()
    assert client_of(bob).post(path, wanted).status_code == 404
    inspector.post(f"/people/{bob.pk}/close/")
    assert inspector.post(path, wanted).status_code == 403


@pytest.mark.parametrize("number", ["0", "999999", "9" * 40])
def test_an_account_that_is_not_there_is_not_found(inspector: Client, number: str) -> None:
    assert inspector.get(f"/people/{number}/").status_code == 404
    for path in ("link/", "close/", "reopen/", "sign-out/", "limits/"):
        assert inspector.post(f"/people/{number}/{path}", {"before": "{}"}).status_code == 404


def test_acts_are_posted_with_a_token_of_ours(ada: User) -> None:
    bob, client = with_password("bob"), Client(enforce_csrf_checks=True)
    client.force_login(ada)
    for path in ("", "link/", "close/", "sign-out/", "limits/"):
        assert client.post(f"/people/{bob.pk}/{path}").status_code == 403
        assert path == "" or client.get(f"/people/{bob.pk}/{path}").status_code == 405


# Django's administration


def test_staff_change_no_account_and_no_group_in_the_administration(subtests: Any) -> None:
    sam, bob = staff_of("north"), with_password("bob")
    put_into("north", bob.pk)
    group = Group.objects.create(name="Writers")
    sam.user_permissions.set(Permission.objects.filter(content_type__app_label="auth"))
    client = client_of(sam)
    for path in (f"user/{sam.pk}/change/", f"user/{bob.pk}/change/", f"group/{group.pk}/change/"):
        with subtests.test(path):
            assert client.post(f"/admin/auth/{path}", {"username": "x", "is_superuser": "on"}).status_code == 403
    for path in ("user/add/", f"user/{bob.pk}/password/", f"user/{bob.pk}/delete/", "group/add/"):
        with subtests.test(path):
            assert client.get(f"/admin/auth/{path}").status_code == 403
    sam.user_permissions.add(*Permission.objects.filter(codename__endswith="_accountlimit"))
    sent = {"owner": sam.pk, "limits": '{"day": {"tokens": 1000}}'}
    assert client.post("/admin/sessions_app/accountlimit/add/", sent).status_code == 403
    there = make_user("there")
    put_into("south", there.pk)
    page = text(client, "/admin/auth/user/")
    assert ">bob<" in page
    assert ">there<" not in page


def test_administrators_change_accounts_in_the_administration_as_before(inspector: Client) -> None:
    bob = with_password("bob")
    for path in (f"user/{bob.pk}/change/", "user/add/", f"user/{bob.pk}/password/", "group/add/"):
        assert inspector.get(f"/admin/auth/{path}").status_code == 200
