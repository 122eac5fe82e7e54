"""Runs one benchmark in its own process, because Django has one database per process. Prints its rows as JSON."""

from __future__ import annotations

import importlib
import json
import os
import sys

import django
from django.core.management import call_command

FOLDERS = {
    **dict.fromkeys(("turns", "crowd", "fanout", "bytes", "caches"), "benchmarks.web"),
    **dict.fromkeys(("pages", "switching", "drawing", "writing"), "benchmarks.browser"),
}


def main() -> None:
    """Migrate the new database and measure."""
    os.environ["DJANGO_SETTINGS_MODULE"] = "mnesis_site.settings"
    folder = FOLDERS.get(sys.argv[1], "benchmarks")
    if folder == "benchmarks.web":
        os.environ["MNESIS_ROLE"] = "web"  # with its pool of connections
    django.setup()
    call_command("migrate", verbosity=0)
    # After django.setup(), because the benchmarks import models.
    benchmark = importlib.import_module(f"{folder}.{sys.argv[1]}")
    if folder == "benchmarks.web":
        importlib.import_module("mnesis_site.asgi").settle()  # as a web process does when it begins
    print(json.dumps(benchmark.measure()))


if __name__ == "__main__":
    main()
