"""Links by which a person without a password chooses one, and the mails that bring them.

A link is bound to what is stored in the place of the password, so the first choice voids it, and so does each newer link.
"""

from __future__ import annotations

import logging

from django.conf import settings
from django.contrib.auth.models import User
from django.core.mail import send_mail
from django.http import HttpRequest
from django.urls import reverse
from django.utils.encoding import force_bytes, force_str
from django.utils.http import urlsafe_base64_decode, urlsafe_base64_encode
from django.utils.translation import gettext_lazy, ngettext_lazy

from mnesis_site.sign_in import FirstSignInToken

logger = logging.getLogger(__name__)
SUBJECT = gettext_lazy("Your account at Mnesis")
TEXT = ngettext_lazy(
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


class ChoiceToken(FirstSignInToken):
    key_salt = "mnesis_site.people"  # a name, not a module: another one would void the links that are out


TOKENS = ChoiceToken()


def link_for(request: HttpRequest, user: User) -> str:
    key = urlsafe_base64_encode(force_bytes(user.pk))
    return request.build_absolute_uri(reverse("welcome", args=[key, TOKENS.make_token(user)]))


def user_of_link(key: str, token: str) -> User | None:
    """Return the account for which a link is good; ``None`` if it is wrong, too old, or something took its place."""
    try:
        primary_key = int(force_str(urlsafe_base64_decode(key)))
    except (ValueError, OverflowError):
        return None
    user = User.objects.filter(pk=primary_key, is_active=True).first()
    if user is None or user.has_usable_password() or not TOKENS.check_token(user, token):
        return None
    return user


def days_of_link() -> int:
    return max(1, settings.PASSWORD_RESET_TIMEOUT // 86_400)


def can_mail() -> bool:
    return bool(settings.EMAIL_HOST)


def mail_link(user: User, url: str) -> bool:
    """Send a link to the account's mail address, in the language of whoever makes it; return whether a mail server took it. A failure is only logged."""
    days = days_of_link()
    text = TEXT % {"name": user.get_username(), "url": url, "days": days}
    try:
        return bool(send_mail(str(SUBJECT), text, None, [user.email]))
    except (OSError, ValueError) as error:  # smtplib's errors are of the first kind, refused addresses of the second
        logger.warning("A link could not be mailed: %s", type(error).__name__)
        return False
