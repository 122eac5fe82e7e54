"""The pages of people: their list, an invitation, one account with what staff may do to it, and the choice of a password."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import login
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from mnesis_core.errors import AccountChanged, InvalidRequest
from mnesis_core.network.people import Standing, State, why_not_change, why_not_end
from mnesis_core.spending import lines_of
from mnesis_core.text import printable
from mnesis_site.people import links, people_store
from mnesis_site.people.accounts import account_of, find_user, list_accounts, list_acts, standing_of
from mnesis_site.people.forms import AccountForm, DayForm, InviteForm
from sessions_app.llm.limits import limits_for_person, look
from sessions_app.llm.model_store import list_keys
from sessions_app.llm.spending_store import load_account_limits
from sessions_app.pages.formats import error_text
from sessions_app.pages.permissions import address_of, administrators, may_administer
from sessions_app.pages.views import reader_of
from sessions_app.record.organisation_store import are_several
from sessions_app.schemas import page_of

PAGE = 50
LONGEST_QUERY = 200
VIEW, ADD, CHANGE = (f"auth.{verb}_user" for verb in ("view", "add", "change"))
LIMIT, REVOKE = "sessions_app.change_accountlimit", "sessions_app.change_apikey"


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
    return render(request, "people/invite.html", context | {"form": form, "can_mail": links.can_mail()})


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
@administrators(REVOKE, methods=("POST",))
def revoke(request: HttpRequest, account_id: int, prefix: str) -> HttpResponse:
    require(request, VIEW)
    people_store.revoke(reader_of(request), account_id, prefix)
    return _page(request, account_id, said=_("The key %(prefix)s is revoked and no longer works.") % {"prefix": prefix})


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def welcome(request: HttpRequest, key: str, token: str) -> HttpResponse:
    """Let the holder of a valid link choose the password of its account and sign in. Opening the link changes nothing."""
    user = links.user_of_link(key, token)
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
    url = links.link_for(request, user)
    is_to_be_mailed = links.can_mail() and bool(user.email)
    return {
        "link": url,
        "link_name": user.get_username(),
        "link_days": links.days_of_link(),
        "link_to": user.email if is_to_be_mailed else "",
        "is_mailed": is_to_be_mailed and links.mail_link(user, url),
    }


def _page(
    request: HttpRequest,
    account_id: int,
    *,
    form: AccountForm | None = None,
    day_form: DayForm | None = None,
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
