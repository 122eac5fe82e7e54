"""Pages for administrators within the portal: for anybody else they are not there."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

from django.contrib.auth.views import redirect_to_login
from django.forms import BaseForm
from django.http import Http404, HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.views.decorators.http import require_http_methods

View = Callable[..., HttpResponse]


def may_administer(request: HttpRequest, permission: str) -> bool:
    """Whether who asks may do this in the administration too."""
    user = request.user
    return bool(user.is_active and getattr(user, "is_staff", False) and user.has_perm(permission))


def administrators(
    permission: str, *, methods: tuple[str, ...] = ("GET", "HEAD", "POST")
) -> Callable[[View], Callable[..., HttpResponseBase]]:
    """Only for staff who have this permission. Others find nothing, and who is not signed in is asked to sign in."""

    def guard(view: View) -> Callable[..., HttpResponseBase]:
        @wraps(view)
        def guarded(request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponseBase:
            if not request.user.is_authenticated:
                # After a POST there is nothing to come back to but the list.
                return redirect_to_login(request.get_full_path() if request.method in ("GET", "HEAD") else "/")
            if not may_administer(request, permission):
                raise Http404
            return view(request, *args, **kwargs)

        return require_http_methods(list(methods))(guarded)

    return guard


def forget_refused(form: BaseForm, names: Iterable[str]) -> None:
    """What was refused where a secret may have been written by mistake goes back to nobody's screen."""
    refused = [name for name in names if name in form.errors]
    if not refused:
        return
    data: Any = form.data
    form.data = kept = data.copy()
    for name in refused:
        kept[form.add_prefix(name)] = ""
