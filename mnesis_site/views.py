"""Pages and probes of the site itself: signing in and out, a first password, whether the server lives and is ready."""

from __future__ import annotations

from django.contrib.auth import login
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import PasswordChangeForm, SetPasswordForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, LogoutView, PasswordChangeView
from django.http import HttpRequest, HttpResponse, JsonResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.urls import reverse_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_GET

from audit_app.verifying import ask_for_everything
from mnesis_core.errors import NotFound, NotReady
from mnesis_site.health import forget_health, site_health
from mnesis_site.readiness import missing_parts, waiting
from mnesis_site.sign_in import spend_link
from sessions_app.views import signed_in, signed_in_to_post

sign_in = LoginView.as_view(template_name="registration/sign_in.html", redirect_authenticated_user=True)
sign_out = LogoutView.as_view()


@never_cache
@require_GET  # not HEAD: what previews a link would spend it
def sign_in_link(request: HttpRequest, key: str, token: str) -> HttpResponse:
    """Sign in with the link that the first start printed."""
    user = spend_link(key, token)
    if user is None:
        return render(request, "registration/link_spent.html", status=410)
    login(request, user, backend="django.contrib.auth.backends.ModelBackend")
    return redirect("set-password")


@login_required
def set_password(request: HttpRequest) -> HttpResponseBase:
    """Choose the first password, or change it for another; only then is there an old one to ask for."""
    has_one = not isinstance(request.user, User) or request.user.has_usable_password()
    view = PasswordChangeView.as_view(
        form_class=PasswordChangeForm if has_one else SetPasswordForm,
        template_name="registration/set_password.html",
        success_url=reverse_lazy("session-list"),
    )
    return view(request)


async def livez(request: HttpRequest) -> HttpResponse:
    """Whether this process answers."""
    return JsonResponse({"status": "ok"})


@never_cache
def readyz(request: HttpRequest) -> HttpResponse:
    """Whether everything is there to do the work: 200 and what waits for a worker, or 503 and what is missing."""
    missing = missing_parts()
    if missing:
        return JsonResponse({"ready": False, "error": NotReady(missing=missing).as_dict()}, status=NotReady.status)
    waits = waiting()
    return JsonResponse({"ready": True} | ({"waiting_seconds": waits} if waits else {}))


@never_cache
@signed_in
def health(request: HttpRequest) -> HttpResponse:
    """The health of the site, for staff; for everybody else there is no such page."""
    if not request.user.is_staff:
        raise NotFound()
    return render(request, "health.html", {"health": site_health()})


@signed_in_to_post
def verify_everything(request: HttpRequest) -> HttpResponse:
    """Have the whole database verified by a worker, for staff."""
    if not request.user.is_staff:
        raise NotFound()
    ask_for_everything()
    forget_health()
    return redirect("health")
