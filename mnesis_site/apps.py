"""The site as an app, for its commands."""

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in


class SiteConfig(AppConfig):
    name = "mnesis_site"

    def ready(self) -> None:
        from mnesis_site.sign_in import note_sign_in  # it imports models, which are not there before

        user_logged_in.connect(note_sign_in)
