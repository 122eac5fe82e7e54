"""The process that lives conversations in a database of its own: ``python -m audit_app.evaluation.child``.

A job comes as a line of JSON on standard input. What was found and measured goes to standard output, a line each
(``mnesis_core.compaction.evaluation.values``); nothing is lived before a second line has come, since models may cost money.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from contextlib import redirect_stdout
from typing import Any

import django
from django.core.management import call_command


def main() -> int:
    os.environ["DJANGO_SETTINGS_MODULE"] = "mnesis_site.settings"
    django.setup()
    out = sys.stdout

    def say(**line: Any) -> None:
        out.write(json.dumps(line) + "\n")
        out.flush()

    with redirect_stdout(sys.stderr):
        call_command("migrate", verbosity=0)
        # After django.setup(), because it imports models.
        work = importlib.import_module("audit_app.evaluation.work")
        return int(work.run(json.loads(sys.stdin.readline()), say, lambda: bool(sys.stdin.readline())))


if __name__ == "__main__":
    sys.exit(main())
