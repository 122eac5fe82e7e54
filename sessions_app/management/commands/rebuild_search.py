"""``manage.py rebuild_search``."""

from __future__ import annotations

import sys
from typing import Any

from sessions_app.management.acting import SiteCommand
from sessions_app.search.index import rebuild


class Command(SiteCommand):
    """Make the search index again from the record. The site may run meanwhile; it finds what is done so far."""

    help = __doc__

    def handle(self, *args: Any, **options: Any) -> None:
        count = rebuild(self._show)
        if sys.stderr.isatty():
            self.stderr.write("")
        self.stderr.write(f"{count:,} sessions can be searched.")

    def _show(self, done: int, total: int) -> None:
        if sys.stderr.isatty():
            self.stderr.write(f"\rindexed {done:,} of {total:,} sessions ", ending="")
