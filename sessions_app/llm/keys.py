"""The API keys of a person: listed, made and revoked by themselves."""

from __future__ import annotations

from django import forms
from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.utils.translation import gettext_lazy as _
from django.views.decorators.cache import never_cache

from mnesis_core.errors import MnesisError
from mnesis_core.network.rate_limits import MODES as KNOWN_MODES
from sessions_app.llm.model_store import create_key, list_keys, revoke_key
from sessions_app.pages.formats import error_text
from sessions_app.pages.views import reader_of, signed_in_to_change, signed_in_to_post

MOST_ENDED = 50  # revoked keys that are listed, the newest
GATEWAY, SERVER = KNOWN_MODES[1:]
SCOPES = [("all", _("Full access")), ("read", _("Read only"))]
MODES = [
    ("", _("Decided by the request or the model")),
    (GATEWAY, _("Passed to the provider unchanged (gateway)")),
    (SERVER, _("Run as turns of sessions here")),
]


_SELECT = forms.Select(attrs={"class": "input"})


class KeyForm(forms.Form):
    name = forms.CharField(
        max_length=100, label=_("Name"), help_text=_("What uses the key, such as “notebook” or “Claude Code”.")
    )
    scope = forms.ChoiceField(choices=SCOPES, label=_("Permissions"), initial="all", widget=_SELECT)
    mode = forms.ChoiceField(choices=MODES, required=False, label=_("Requests at /v1"), widget=_SELECT)


@never_cache
@signed_in_to_change
def own_keys(request: HttpRequest) -> HttpResponse:
    """Return the page of the person's keys; a key that was posted is made and shown, this one time."""
    form, made = KeyForm(request.POST if request.method == "POST" else None), None
    if form.is_bound and form.is_valid():
        try:
            made = str(create_key(owner_id=reader_of(request), **form.cleaned_data))
            form = KeyForm()
        except MnesisError as error:
            form.add_error(None, error_text(error))
    return _page(request, form, made=made)


@never_cache
@signed_in_to_post
def revoke(request: HttpRequest, prefix: str) -> HttpResponse:
    """:raises NotFound: the person has no such key."""
    revoke_key(prefix, owner_id=reader_of(request))
    return _page(request, KeyForm(), revoked=prefix)


def _page(request: HttpRequest, form: KeyForm, *, made: str | None = None, revoked: str = "") -> HttpResponse:
    keys = list_keys(owner_id=reader_of(request))
    context = {
        "form": form,
        "made": made,
        "revoked": revoked,
        "active": [key for key in keys if key.revoked_at is None],
        "ended": [key for key in keys if key.revoked_at is not None][:MOST_ENDED],
        "site_url": request.build_absolute_uri("/").rstrip("/"),
    }
    part = "_keys" if "HX-Request" in request.headers else "keys"
    return render(request, f"sessions_app/keys/{part}.html", context)
