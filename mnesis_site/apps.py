"""The site as an app, for its commands."""

from django.apps import AppConfig
from django.contrib.auth.signals import user_logged_in


class SiteConfig(AppConfig):
    """Commands, readiness and the processes of ``up``."""

    name = "mnesis_site"

    def ready(self) -> None:
        """Have devices remembered that sign in."""
        from mnesis_site.auth.sign_in import note_sign_in  # it imports models, which are not there before

        user_logged_in.connect(note_sign_in)
