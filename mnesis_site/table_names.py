"""The names of tables and columns, in the language of the page of the administration that shows them.

They are given here and not where the models are, since Django writes what a model says of its names into migrations.
"""

from __future__ import annotations

from collections.abc import Iterator

from django.apps import apps
from django.contrib import admin
from django.db.models import Field, Model
from django.utils.translation import pgettext_lazy

CONTEXT = "administration"
OURS = ("sessions_app", "compaction_app", "files_app", "agents_app", "audit_app")


def translate_names() -> None:
    """Have the names of all tables and columns looked up in the catalogue when they are shown."""
    for model in _models():
        meta = model._meta
        meta.verbose_name = pgettext_lazy(CONTEXT, str(meta.verbose_name))
        meta.verbose_name_plural = pgettext_lazy(CONTEXT, str(meta.verbose_name_plural))
        for field in _columns(model):
            field.verbose_name = pgettext_lazy(CONTEXT, str(field.verbose_name))


def table_names() -> set[str]:
    """Return the names that the administration shows, in English."""
    admin.autodiscover()
    names = set[str]()
    for model in filter(admin.site.is_registered, _models()):
        shown = (model._meta.verbose_name, model._meta.verbose_name_plural)
        names |= {str(name) for name in (*shown, *(field.verbose_name for field in _columns(model)))}
    return names


def _models() -> Iterator[type[Model]]:
    return (model for model in apps.get_models() if model._meta.app_label in OURS)


def _columns(model: type[Model]) -> list[Field]:  # type: ignore[type-arg]
    return list(model._meta.local_concrete_fields)
