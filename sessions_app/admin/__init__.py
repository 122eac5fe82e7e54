"""The inspector: Django's admin, which looks at everything that was recorded and changes none of it."""

from django.contrib import admin

from sessions_app.admin.access import AccountLimitAdmin, ApiKeyAdmin, LanguageModelAdmin
from sessions_app.admin.events import ContextItemAdmin, EventAdmin, StreamJournalAdmin
from sessions_app.admin.messages import MessageAdmin, MessagePartAdmin
from sessions_app.admin.read_only import ReadOnlyAdmin
from sessions_app.admin.sessions import SessionAdmin
from sessions_app.admin.turns import ModelCallAdmin, TurnAdmin

admin.site.site_header = admin.site.site_title = "Mnesis inspector"
admin.site.index_title = "Everything that was recorded"

__all__ = [
    "AccountLimitAdmin",
    "ApiKeyAdmin",
    "ContextItemAdmin",
    "EventAdmin",
    "LanguageModelAdmin",
    "MessageAdmin",
    "MessagePartAdmin",
    "ModelCallAdmin",
    "ReadOnlyAdmin",
    "SessionAdmin",
    "StreamJournalAdmin",
    "TurnAdmin",
]
