"""Files outside the context, as an app."""

from django.apps import AppConfig


class FilesConfig(AppConfig):
    """References to files."""

    name = "files_app"
    verbose_name = "Files"
