"""The pages of the site itself: signing in and out, passwords, and the health of the site."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth import login
from django.contrib.auth.decorators import login_required
from django.contrib.auth.forms import SetPasswordForm
from django.contrib.auth.models import User
from django.contrib.auth.views import LoginView, LogoutView, PasswordChangeView
from django.http import HttpRequest, HttpResponse
from django.http.response import HttpResponseBase
from django.shortcuts import redirect, render
from django.templatetags.static import static
from django.urls import reverse_lazy
from django.views.decorators.cache import never_cache
from django.views.decorators.http import require_http_methods

from audit_app.proof import verify
from audit_app.store import EVERYTHING
from mnesis_core.errors import NotFound, PasswordsBusy, TooManyAttempts
from mnesis_site.errors import answer
from mnesis_site.health import forget_health, site_health
from mnesis_site.sign_in import LimitedPasswordChangeForm, user_of_link
from sessions_app.pages.views import signed_in, signed_in_to_post


class SignIn(LoginView):
    template_name = "registration/sign_in.html"
    redirect_authenticated_user = True

    def post(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        try:
            return super().post(request, *args, **kwargs)
        except (TooManyAttempts, PasswordsBusy) as refused:
            form = self.form_class(request, initial={"username": request.POST.get("username", "")})
            return answer(request, refused, template=self.template_name, form=form, next=self.get_redirect_url())


sign_in = SignIn.as_view()
sign_out = LogoutView.as_view()


@never_cache
@require_http_methods(["GET", "HEAD", "POST"])
def sign_in_link(request: HttpRequest, key: str, token: str) -> HttpResponse:
    """Sign in, by a button, with the link that the first start printed."""
    user = user_of_link(key, token)
    if user is None:
        return render(request, "registration/link_spent.html", status=410)
    if request.method != "POST":
        return render(request, "registration/sign_in_link.html", {"name": user.get_username()})
    login(request, user)
    return redirect("set-password")


@login_required
def set_password(request: HttpRequest) -> HttpResponseBase:
    """Choose the first password, or change it for another; only then is there an old one to ask for."""
    has_one = not isinstance(request.user, User) or request.user.has_usable_password()
    view = PasswordChangeView.as_view(
        form_class=LimitedPasswordChangeForm if has_one else SetPasswordForm,
        template_name="registration/set_password.html",
        success_url=reverse_lazy("new-chat"),
    )
    return view(request)


@never_cache
async def other_static(request: HttpRequest, name: str) -> HttpResponseBase:
    """A static file at the address of another version of the site: pages outlast an upgrade, which reaches processes one by one."""
    if request.path.startswith(settings.STATIC_URL):
        raise NotFound()
    return redirect(static(name))


async def favicon(request: HttpRequest) -> HttpResponseBase:
    """The icon, where browsers look for it by themselves.

    A page that says it is not there would set the cookie for forms, after the page whose form relies on another.
    """
    return redirect(static("img/mnesis.svg"))


@never_cache
@signed_in
def health(request: HttpRequest) -> HttpResponse:
    if not request.user.is_staff:
        raise NotFound()
    return render(request, "health.html", {"health": site_health()})


@signed_in_to_post
def verify_everything(request: HttpRequest) -> HttpResponse:
    if not request.user.is_staff:
        raise NotFound()
    verify.ask(EVERYTHING, entries=0)
    forget_health()
    return redirect("health")
