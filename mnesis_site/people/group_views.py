"""The pages of groups: their list, one with its members, and the question before one is deleted."""

from __future__ import annotations

from typing import Any

from django.contrib.auth.models import User
from django.http import Http404, HttpRequest, HttpResponse
from django.shortcuts import redirect, render
from django.utils.translation import gettext as _
from django.views.decorators.cache import never_cache

from mnesis_core.errors import InvalidRequest, PermissionDenied
from mnesis_core.network.people import Standing, groups_to_give
from mnesis_site.people import people_store
from mnesis_site.people.accounts import find_user, list_accounts, list_candidates
from mnesis_site.people.forms import GroupForm, MemberForm
from mnesis_site.people.groups import count_grants, find_group, list_summaries
from mnesis_site.people.views import CHANGE, LONGEST_QUERY, PAGE, VIEW, actor_of, require
from sessions_app.pages.formats import error_text
from sessions_app.pages.markdown import show_invisible
from sessions_app.pages.permissions import address_of, administrators, may_administer
from sessions_app.schemas import page_of

VIEW_GROUPS = "auth.view_group"
SUGGESTED = 10
"""Usernames that are suggested for a new member."""


@never_cache
@administrators(VIEW_GROUPS)
def list_page(request: HttpRequest) -> HttpResponse:
    """The list; the name of a new group is posted here."""
    actor = _reader(request)
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
    actor = _reader(request)
    if request.method != "POST":
        return _page(request, actor, group_id)
    _require_administrator(actor)
    form = GroupForm(request.POST, group_id=group_id)
    if not form.is_valid():
        return _page(request, actor, group_id, form=form)
    try:
        people_store.rename_group(actor.id, group_id, **form.cleaned_data)
    except InvalidRequest as error:
        form.add_error("name", error_text(error))
        return _page(request, actor, group_id, form=form)
    return _page(request, actor, group_id, said=_("Saved."))


@never_cache
@administrators(VIEW_GROUPS)
def delete(request: HttpRequest, group_id: int) -> HttpResponse:
    """Ask, with what goes with the group; the answer is posted here."""
    actor = _reader(request)
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
    actor = _reader(request)
    group, typed = find_group(actor, group_id), request.GET.get("username", "")[:LONGEST_QUERY].strip()
    names = list_candidates(actor, group_id=group.id, query=typed, limit=SUGGESTED) if typed else []
    return render(request, "people/_candidates.html", {"names": names})


@never_cache
@administrators(VIEW_GROUPS, methods=("POST",))
def add_member(request: HttpRequest, group_id: int) -> HttpResponse:
    require(request, CHANGE)
    actor = _reader(request)
    form = MemberForm(actor, request.POST)
    if not form.is_valid():
        return _page(request, actor, group_id, member_form=form)
    try:
        people_store.set_membership(actor.id, form.user.pk, group_id, is_member=True)
    except PermissionDenied as error:
        return _page(request, actor, group_id, member_form=form, problem=error_text(error))
    return _page(request, actor, group_id, said=_said(_("%(name)s is now in this group."), form.user))


@never_cache
@administrators(VIEW_GROUPS, methods=("POST",))
def remove_member(request: HttpRequest, group_id: int, account_id: int) -> HttpResponse:
    require(request, CHANGE)
    actor = _reader(request)
    user = find_user(actor, account_id)
    try:
        people_store.set_membership(actor.id, user.pk, group_id, is_member=False)
    except PermissionDenied as error:
        return _page(request, actor, group_id, problem=error_text(error))
    return _page(request, actor, group_id, said=_said(_("%(name)s is no longer in this group."), user))


def _reader(request: HttpRequest) -> Standing:
    """:raises Http404: this reader may not see people."""
    require(request, VIEW)
    return actor_of(request)


def _require_administrator(actor: Standing) -> None:
    if not actor.is_administrator:
        raise Http404


def _said(words: str, user: User) -> str:
    return words % {"name": show_invisible(user.get_username())}


def _page(
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
