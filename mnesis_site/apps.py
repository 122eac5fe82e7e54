"""The site as an app, for its commands."""

from django.apps import AppConfig


class SiteConfig(AppConfig):
    """Commands, readiness and the processes of ``up``."""

    name = "mnesis_site"
