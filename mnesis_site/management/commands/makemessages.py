"""``manage.py makemessages -l de``: Django's own, which also takes the default messages of errors, and says less of places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.commands import makemessages

from mnesis_core import errors

KEPT = {"no_location": True, "no_wrap": True, "no_obsolete": True}
NOT_OURS = ["tests/*", "benchmarks/*", "clients/*", "docs/*", "data/*", "static/vendor/*", "mnesis_core/*"]


class Command(makemessages.Command):
    msgmerge_options = ["-q", "--backup=none", "--previous", "--update", "--no-fuzzy-matching"]

    def handle(self, *args: Any, **options: Any) -> None:
        # Errors have their messages as docstrings, where no extraction looks.
        place = Path("_error_messages.py")
        messages = {
            " ".join((kind.__doc__ or "").split())
            for kind in vars(errors).values()
            if isinstance(kind, type) and issubclass(kind, errors.MnesisError)
        }
        place.write_text("".join(f"gettext_noop({message!r})\n" for message in sorted(messages)))
        try:
            super().handle(*args, **options | KEPT | {"ignore_patterns": [*options["ignore_patterns"], *NOT_OURS]})
        finally:
            place.unlink()
