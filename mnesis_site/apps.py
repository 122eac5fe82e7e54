"""The site as an app, for its commands, and Django's admin."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import AppConfig
from django.contrib.admin import autodiscover
from django.contrib.admin.apps import SimpleAdminConfig
from django.contrib.admin.checks import check_admin_app, check_dependencies
from django.contrib.auth.signals import user_logged_in
from django.core.checks import CheckMessage, Tags, register


class SiteConfig(AppConfig):
    name = "mnesis_site"

    def ready(self) -> None:
        # Both import models, which are not there before.
        from mnesis_site.sign_in import note_sign_in
        from mnesis_site.table_names import translate_names

        translate_names()
        user_logged_in.connect(note_sign_in)


class AdminConfig(SimpleAdminConfig):
    """Django's admin. The URL configuration loads its pages, so that workers and most commands start without them."""

    def ready(self) -> None:
        register(check_dependencies, Tags.admin)
        register(check_pages, Tags.admin)


def check_pages(app_configs: Sequence[AppConfig] | None, **_: Any) -> list[CheckMessage]:
    """Check the admin as Django does, whether or not the URL configuration was loaded before."""
    autodiscover()
    return check_admin_app(app_configs)
