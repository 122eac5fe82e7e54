"""Django's admin, which shows everything that was recorded and changes none of it."""

from django.contrib import admin

from sessions_app.admin import records
from sessions_app.admin.read_only import ReadOnlyAdmin

admin.site.site_header = admin.site.site_title = "Mnesis inspector"
admin.site.index_title = "Everything that was recorded"

__all__ = ["ReadOnlyAdmin", "records"]
