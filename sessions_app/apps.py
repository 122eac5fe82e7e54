"""The record as an app: its guards follow every migration, its checks run with Django's."""

from django.apps import AppConfig
from django.conf import settings
from django.db.backends.signals import connection_created
from django.db.models.signals import post_migrate, post_save, pre_migrate
from django.utils.translation import gettext_lazy as _


class SessionsConfig(AppConfig):
    name = "sessions_app"
    verbose_name = _("The record")

    def ready(self) -> None:
        # Here, not above: both import models, and apps.py is read before any model can be made.
        from sessions_app.database.guards import checks, migrating, rights, triggers
        from sessions_app.record.organisation_store import greet_new_account
        from sessions_app.search import index

        checks.register_checks()
        index.register_checks()
        connection_created.connect(rights.authorize)
        post_save.connect(greet_new_account, sender=settings.AUTH_USER_MODEL)
        # Each signal is sent once per app; this app's is enough, because all tables exist (or do not) by then.
        # Receivers are called in this order: a plan that is refused lifts no guard.
        pre_migrate.connect(migrating.refuse_to_unapply, sender=self)
        pre_migrate.connect(triggers.lift_guards, sender=self)
        post_migrate.connect(triggers.restore_guards, sender=self)
        post_migrate.connect(rights.restore_grants, sender=self)
