"""Runs one benchmark in its own process, because Django has one database per process. Prints its rows as JSON."""

from __future__ import annotations

import importlib
import json
import os
import sys

import django
from django.core.management import call_command

OF_WEB = ("turns", "crowd", "fanout", "bytes", "caches")
"""What a web process does."""
IN_BROWSER = ("pages", "drawing", "writing")


def main() -> None:
    """Migrate the new database and measure."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "mnesis_site.settings"
    if sys.argv[1] in OF_WEB:
        os.environ["MNESIS_ROLE"] = "web"  # with its pool of connections
    django.setup()
    call_command("migrate", verbosity=0)
    # After django.setup(), because the benchmarks import models.
    folder = "benchmarks.browser" if sys.argv[1] in IN_BROWSER else "benchmarks"
    benchmark = importlib.import_module(f"{folder}.{sys.argv[1]}")
    if sys.argv[1] in OF_WEB:
        importlib.import_module("mnesis_site.asgi").settle()  # as a web process does when it begins
    print(json.dumps(benchmark.measure()))


if __name__ == "__main__":
    main()
