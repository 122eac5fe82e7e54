"""``manage.py fill_vectors``."""

from __future__ import annotations

import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import CommandError

from mnesis_core.errors import ModelError, ModelNotFoundError
from sessions_app.conf import embedding_spec
from sessions_app.management.acting import SiteCommand
from sessions_app.search.vector_store import coverage, fill, forget_all


class Command(SiteCommand):
    """Make the vectors that search.embedding_model lacks, as workers do by themselves, and say how far they are.

    Without such a model, remove those that are left of an earlier one.
    """

    help = __doc__

    def add_arguments(self, parser: ArgumentParser) -> None:
        parser.add_argument("--show", action="store_true", help="only say how far they are")
        parser.add_argument("--anew", action="store_true", help="remove all vectors first")

    def handle(self, *args: Any, show: bool, anew: bool, **options: Any) -> None:
        try:
            spec = embedding_spec()
            if not show and (anew or spec is None):
                forget_all()
            if spec is None:
                self.stderr.write("search.embedding_model is empty: search goes by words alone.")
                return
            while not show and fill(progress=self._show):
                pass
        except (ModelError, ModelNotFoundError) as error:
            raise CommandError(f"{error.code}: {error.message}", returncode=error.exit_status) from None
        if sys.stderr.isatty():
            self.stderr.write("")
        found = coverage(spec.litellm_model)
        self.stdout.write(
            f"{found.vectors:,} messages have a vector of {spec.litellm_model}; {found.skipped:,} texts get none. "
            f"{found.sessions_behind:,} sessions have texts to read. "
            f"Read so far: {found.tokens:,} tokens, for {found.cost_micros / 1_000_000:g}."
        )

    def _show(self, done: int) -> None:
        if sys.stderr.isatty():
            self.stderr.write(f"\r{done:,} messages read ", ending="")
