"""The pages of people and of groups: lists, an invitation, one account with what staff may do to it, one group, and the
choice of a password.
"""

from __future__ import annotations

import logging
from typing import Any

from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import User
from django.core.mail import send_mail
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.encoding import force_bytes, force_str
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy, ngettext_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from mnesis_core.errors import AccountChanged, InvalidRequest, PermissionDenied
from mnesis_core.network.people import Standing, State, groups_to_give, why_not_change, why_not_end
from mnesis_core.spending import lines_of
from mnesis_core.text import printable
from mnesis_site.people import people_store
from mnesis_site.people.accounts import (
    account_of,
    count_grants,
    find_group,
    find_user,
    list_accounts,
    list_acts,
    list_candidates,
    list_summaries,
    standing_of,
)
from mnesis_site.people.forms import AccountForm, DayForm, GroupForm, InviteForm, MemberForm
from mnesis_site.sign_in import FirstSignInToken
from sessions_app.llm.keys import KeyForm
from sessions_app.llm.limits import limits_for_person, look
from sessions_app.llm.model_store import list_keys
from sessions_app.llm.spending_store import load_account_limits
from sessions_app.pages.formats import error_text
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.permissions import address_of, administrators, may_administer
from sessions_app.pages.views import reader_of
from sessions_app.record.organisation_store import are_several
from sessions_app.schemas import page_of

PAGE = 50
LONGEST_QUERY = 200
VIEW, ADD, CHANGE = (f"auth.{verb}_user" for verb in ("view", "add", "change"))
LIMIT, REVOKE = "sessions_app.change_accountlimit", "sessions_app.change_apikey"
MAKE = "sessions_app.add_apikey"
KEY_IDS = "key_%s"  # other forms of the page have a name, too
VIEW_GROUPS = "auth.view_group"
SUGGESTED = 10
"""Accounts that are suggested while a name is typed."""
logger = logging.getLogger(__name__)
MAIL_SUBJECT = gettext_lazy("Your account at Mnesis")
MAIL_TEXT = ngettext_lazy(
    """Hello %(name)s,

this link lets you choose a password for your account at Mnesis:

%(url)s

It works once and expires after %(days)s day, or when a newer link is created.
""",
    """Hello %(name)s,

this link lets you choose a password for your account at Mnesis:

%(url)s

It works once and expires after %(days)s days, or when a newer link is created.
""",
    "days",
)


@never_cache
@administrators(VIEW, methods=("GET", "HEAD"))
def list_page(request: HttpRequest) -> HttpResponse:
    """Return the page, or with a cursor only the rows after it; a search asks for the part below its field."""
    query = printable(request.GET.get("q", "").strip())[:LONGEST_QUERY]
    cursor, name = request.GET.get("cursor", "")[:LONGEST_QUERY], request.GET.get("state", "")
    state = next((state for state in State if state == name), None)
    found = list_accounts(actor_of(request), query=query, state=state, after=cursor, limit=PAGE + 1)
    page, wanted = page_of(found, PAGE, lambda account: account.name), {"q": query, "state": state or ""}
    context = {
        "accounts": page["items"],
        "more_url": address_of("people", **wanted, cursor=page["next_cursor"]) if page["next_cursor"] else "",
        "query": query,
        "state": state,
        "longest": LONGEST_QUERY,
        "has_organisations": are_several(),
        "may_invite": may_administer(request, ADD),
        "may_see_groups": may_administer(request, "auth.view_group"),
    }
    if cursor:
        return render(request, "people/_rows.html", context)
    if request.headers.get("HX-Target") != "people-found":
        return render(request, "people/people.html", context)
    response = render(request, "people/_people.html", context)
    response.headers["HX-Push-Url"] = address_of("people", **wanted)
    return response


@never_cache
@administrators(VIEW, methods=("GET", "HEAD"))
def options(request: HttpRequest) -> HttpResponse:
    """Return the first accounts whose name or mail contains ``q``, for the palette; without words there are none."""
    query = printable(request.GET.get("q", "").strip())[:LONGEST_QUERY]
    accounts = list_accounts(actor_of(request), query=query, limit=SUGGESTED) if query else []
    return render(request, "people/_options.html", {"accounts": accounts})


@never_cache
@administrators(ADD)
def invite(request: HttpRequest) -> HttpResponse:
    """The form; what it makes is shown with the link, this one time."""
    actor, context = actor_of(request), {}
    form = InviteForm(actor, request.POST if request.method == "POST" else None)
    if form.is_bound and form.is_valid():
        try:
            user = people_store.invite(actor.id, **form.cleaned_data)
            context, form = _link(request, user), InviteForm(actor)
        except InvalidRequest as error:
            form.add_error("username", error_text(error))
    return render(request, "people/invite.html", context | {"form": form, "can_mail": can_mail()})


@never_cache
@administrators(VIEW)
def person(request: HttpRequest, account_id: int) -> HttpResponse:
    """One account; what the form says about it is posted here."""
    if request.method != "POST":
        return _page(request, account_id)
    require(request, CHANGE)
    actor = actor_of(request)
    form = AccountForm(actor, account_of(find_user(actor, account_id)), request.POST)
    if not form.is_valid():
        return _page(request, account_id, form=form)
    try:
        people_store.change_account(actor.id, account_id, **form.cleaned_data)
    except AccountChanged as error:
        return _page(request, account_id, problem=error_text(error))
    return _page(request, account_id, said=_("Saved."))


@never_cache
@administrators(LIMIT, methods=("POST",))
def limits(request: HttpRequest, account_id: int) -> HttpResponse:
    require(request, VIEW)
    form = DayForm({}, request.POST)
    if not form.is_valid():
        return _page(request, account_id, day_form=form)
    before = form.cleaned_data["before"] or {}
    try:
        people_store.limit_day(reader_of(request), account_id, form.day, before=before)
    except (AccountChanged, InvalidRequest) as error:
        return _page(request, account_id, problem=error_text(error))
    return _page(request, account_id, said=_("Limits saved. They apply from the next call."))


@never_cache
@administrators(CHANGE, methods=("POST",))
def new_link(request: HttpRequest, account_id: int) -> HttpResponse:
    user = people_store.forget_password(reader_of(request), account_id)
    return _page(request, account_id, **_link(request, user))


@never_cache
@administrators(CHANGE, methods=("POST",))
def sign_out(request: HttpRequest, account_id: int) -> HttpResponse:
    people_store.sign_out_everywhere(reader_of(request), account_id)
    if account_id != reader_of(request):
        return _page(request, account_id, said=_("Signed out everywhere. Open pages stop within half a minute."))
    there = reverse("sign-in")
    is_part = "HX-Request" in request.headers
    return HttpResponse(status=204, headers={"HX-Redirect": there}) if is_part else redirect(there)


@never_cache
@administrators(CHANGE, methods=("POST",))
def close(request: HttpRequest, account_id: int) -> HttpResponse:
    people_store.close(reader_of(request), account_id)
    return _page(request, account_id, said=_("The account is closed. Its sessions are kept."))


@never_cache
@administrators(CHANGE, methods=("POST",))
def reopen(request: HttpRequest, account_id: int) -> HttpResponse:
    people_store.reopen(reader_of(request), account_id)
    return _page(request, account_id, said=_("The account is reopened."))


@never_cache
@administrators(MAKE, methods=("POST",))
def make_key(request: HttpRequest, account_id: int) -> HttpResponse:
    require(request, VIEW)
    form = KeyForm(request.POST, auto_id=KEY_IDS)
    if not form.is_valid():
        return _page(request, account_id, key_form=form)
    try:
        made = people_store.make_key(reader_of(request), account_id, **form.cleaned_data)
    except InvalidRequest as error:
        form.add_error(None, error_text(error))
        return _page(request, account_id, key_form=form)
    return _page(request, account_id, made=made)


@never_cache
@administrators(REVOKE, methods=("POST",))
def revoke(request: HttpRequest, account_id: int, prefix: str) -> HttpResponse:
    require(request, VIEW)
    people_store.revoke(reader_of(request), account_id, prefix)
    return _page(request, account_id, said=_("The key %(prefix)s is revoked and no longer works.") % {"prefix": prefix})


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def welcome(request: HttpRequest, key: str, token: str) -> HttpResponse:
    """Let the holder of a valid link choose the password of its account and sign in. Opening the link changes nothing."""
    user = user_of_link(key, token)
    if user is None:
        return render(request, "people/link_spent.html", status=410)
    form: SetPasswordForm[User] = SetPasswordForm(user, request.POST if request.method == "POST" else None)
    if not (form.is_bound and form.is_valid()):
        return render(request, "people/welcome.html", {"form": form, "name": user.get_username()})
    if not people_store.choose_password(user, form.cleaned_data["new_password1"]):
        return render(request, "people/link_spent.html", status=410)
    login(request, User.objects.get(pk=user.pk))
    return redirect("new-chat")


def actor_of(request: HttpRequest) -> Standing:
    return standing_of(User.objects.get(pk=reader_of(request)))


def require(request: HttpRequest, permission: str) -> None:
    """:raises Http404: the reader does not have this permission."""
    if not may_administer(request, permission):
        raise Http404


def _link(request: HttpRequest, user: User) -> dict[str, Any]:
    """Return a new link as the pages show it, and send it where that is possible."""
    url = link_for(request, user)
    is_to_be_mailed = can_mail() and bool(user.email)
    return {
        "link": url,
        "link_name": user.get_username(),
        "link_days": days_of_link(),
        "link_to": user.email if is_to_be_mailed else "",
        "is_mailed": is_to_be_mailed and mail_link(user, url),
    }


def _page(
    request: HttpRequest,
    account_id: int,
    *,
    form: AccountForm | None = None,
    day_form: DayForm | None = None,
    key_form: KeyForm | None = None,
    **told: Any,
) -> HttpResponse:
    """Return the page of an account as it is now, or the part of it that an act asked for."""
    actor = actor_of(request)
    user = find_user(actor, account_id)
    account, other = account_of(user), standing_of(user)
    is_own, why_not = actor.id == other.id, why_not_change(actor, other)
    may_change = may_administer(request, CHANGE) and not why_not
    stored = load_account_limits(user.pk)
    keys = [key for key in list_keys(owner_id=user.pk) if key.revoked_at is None]
    context = told | {
        "account": account,
        "is_own": is_own,
        "why_not": _(why_not) if why_not else "",
        "may_change": may_change,
        "may_end": may_change and not why_not_end(actor, other),
        "may_sign_out": may_change or (is_own and may_administer(request, CHANGE)),
        "may_limit": may_administer(request, LIMIT) and not why_not,
        "may_revoke": may_administer(request, REVOKE) and (is_own or not why_not),
        "may_make_key": may_administer(request, MAKE) and user.is_active and (is_own or not why_not),
        "key_form": key_form or KeyForm(auto_id=KEY_IDS),
        "site_url": request.build_absolute_uri("/").rstrip("/"),
        "form": form or AccountForm(actor, account),
        "day_form": day_form or DayForm(stored.get("day", {})),
        "other_limits": {scope: values for scope, values in stored.items() if scope != "day"},
        "lines": lines_of(look(limits_for_person(user.pk))),
        "keys": keys,
        "acts": list_acts(user),
        "has_organisations": are_several(),
    }
    part = "_person" if "HX-Request" in request.headers else "person"
    return render(request, f"people/{part}.html", context)


# The pages of groups: their list, one with its members, and the question before one is deleted.


@never_cache
@administrators(VIEW_GROUPS)
def group_list(request: HttpRequest) -> HttpResponse:
    """The list; the name of a new group is posted here."""
    actor = _group_reader(request)
    form = GroupForm(request.POST if request.method == "POST" else None)
    if form.is_bound:
        _require_administrator(actor)
        if form.is_valid():
            try:
                return redirect("group", people_store.create_group(actor.id, **form.cleaned_data))
            except InvalidRequest as error:
                form.add_error("name", error_text(error))
    return render(request, "people/groups.html", {"groups": list_summaries(actor), "form": form, "actor": actor})


@never_cache
@administrators(VIEW_GROUPS)
def group(request: HttpRequest, group_id: int) -> HttpResponse:
    """One group; its new name is posted here."""
    actor = _group_reader(request)
    if request.method != "POST":
        return _group_page(request, actor, group_id)
    _require_administrator(actor)
    form = GroupForm(request.POST, group_id=group_id)
    if not form.is_valid():
        return _group_page(request, actor, group_id, form=form)
    try:
        people_store.rename_group(actor.id, group_id, **form.cleaned_data)
    except InvalidRequest as error:
        form.add_error("name", error_text(error))
        return _group_page(request, actor, group_id, form=form)
    return _group_page(request, actor, group_id, said=_("Saved."))


@never_cache
@administrators(VIEW_GROUPS)
def group_delete(request: HttpRequest, group_id: int) -> HttpResponse:
    """Ask, with what goes with the group; the answer is posted here."""
    actor = _group_reader(request)
    _require_administrator(actor)
    if request.method == "POST":
        people_store.delete_group(actor.id, group_id)
        return redirect("groups")
    context = {"group": find_group(actor, group_id), "grants": count_grants(group_id)}
    return render(request, "people/group_delete.html", context)


@never_cache
@administrators(VIEW_GROUPS)
def candidates(request: HttpRequest, group_id: int) -> HttpResponse:
    """Options for a new member's username: those that contain what was typed so far."""
    require(request, CHANGE)
    actor = _group_reader(request)
    group, typed = find_group(actor, group_id), request.GET.get("username", "")[:LONGEST_QUERY].strip()
    names = list_candidates(actor, group_id=group.id, query=typed, limit=SUGGESTED) if typed else []
    return render(request, "people/_candidates.html", {"names": names})


@never_cache
@administrators(VIEW_GROUPS, methods=("POST",))
def add_member(request: HttpRequest, group_id: int) -> HttpResponse:
    require(request, CHANGE)
    actor = _group_reader(request)
    form = MemberForm(actor, request.POST)
    if not form.is_valid():
        return _group_page(request, actor, group_id, member_form=form)
    try:
        people_store.set_membership(actor.id, form.user.pk, group_id, is_member=True)
    except PermissionDenied as error:
        return _group_page(request, actor, group_id, member_form=form, problem=error_text(error))
    return _group_page(request, actor, group_id, said=_said(_("%(name)s is now in this group."), form.user))


@never_cache
@administrators(VIEW_GROUPS, methods=("POST",))
def remove_member(request: HttpRequest, group_id: int, account_id: int) -> HttpResponse:
    require(request, CHANGE)
    actor = _group_reader(request)
    user = find_user(actor, account_id)
    try:
        people_store.set_membership(actor.id, user.pk, group_id, is_member=False)
    except PermissionDenied as error:
        return _group_page(request, actor, group_id, problem=error_text(error))
    return _group_page(request, actor, group_id, said=_said(_("%(name)s is no longer in this group."), user))


def _group_reader(request: HttpRequest) -> Standing:
    """:raises Http404: this reader may not see people."""
    require(request, VIEW)
    return actor_of(request)


def _require_administrator(actor: Standing) -> None:
    if not actor.is_administrator:
        raise Http404


def _said(words: str, user: User) -> str:
    return words % {"name": show_invisible(user.get_username())}


def _group_page(
    request: HttpRequest,
    actor: Standing,
    group_id: int,
    *,
    form: GroupForm | None = None,
    member_form: MemberForm | None = None,
    **told: Any,
) -> HttpResponse:
    """Return the page of a group as it is now, the part of it that an act asked for, or with a cursor more members."""
    shown, cursor = find_group(actor, group_id), request.GET.get("cursor", "")[:LONGEST_QUERY]
    found = list_accounts(actor, group_id=group_id, after=cursor, limit=PAGE + 1)
    page = page_of(found, PAGE, lambda account: account.name)
    next_cursor = page["next_cursor"]
    context = told | {
        "group": shown,
        "members": page["items"],
        "more_url": address_of("group", str(group_id), cursor=next_cursor) if next_cursor else "",
        "actor": actor,
        "may_change_members": may_administer(request, CHANGE) and group_id in groups_to_give(actor, [group_id]),
        "form": form or GroupForm(initial={"name": shown.name}),
        "member_form": member_form or MemberForm(actor),
    }
    if cursor:
        return render(request, "people/_group_members.html", context)
    template = "_group_swap" if "HX-Request" in request.headers else "group"
    return render(request, f"people/{template}.html", context)


# Links by which a person without a password chooses one, and the mails that bring them.
#
# A link is bound to what is stored in the place of the password, so the first choice voids it, and so does each newer
# link.


class ChoiceToken(FirstSignInToken):
    key_salt = "mnesis_site.people"  # a name, not a module: another one would void the links that are out


LINK_TOKENS = ChoiceToken()


def link_for(request: HttpRequest, user: User) -> str:
    key = urlsafe_base64_encode(force_bytes(user.pk))
    return request.build_absolute_uri(reverse("welcome", args=[key, LINK_TOKENS.make_token(user)]))


def user_of_link(key: str, token: str) -> User | None:
    """Return the account for which a link is good; ``None`` if it is wrong, too old, or something took its place."""
    try:
        primary_key = int(force_str(urlsafe_base64_decode(key)))
    except (ValueError, OverflowError):
        return None
    user = User.objects.filter(pk=primary_key, is_active=True).first()
    if user is None or user.has_usable_password() or not LINK_TOKENS.check_token(user, token):
        return None
    return user


def days_of_link() -> int:
    return max(1, settings.PASSWORD_RESET_TIMEOUT // 86_400)


def can_mail() -> bool:
    return bool(settings.EMAIL_HOST)


def mail_link(user: User, url: str) -> bool:
    """Send a link to the account's mail address, in the language of whoever makes it; return whether a mail server took it. A failure is only logged."""
    days = days_of_link()
    text = MAIL_TEXT % {"name": user.get_username(), "url": url, "days": days}
    try:
        return bool(send_mail(str(MAIL_SUBJECT), text, None, [user.email]))
    except (OSError, ValueError) as error:  # smtplib's errors are of the first kind, refused addresses of the second
        logger.warning("A link could not be mailed: %s", type(error).__name__)
        return False
