"""The process that lives conversations in a database of its own: ``python -m audit_app.evaluation.child``.

A job comes as a line of JSON on standard input. What was found and measured goes to standard output, a line each
(``mnesis_core.compaction.evaluation.measures``); nothing is lived before a second line has come, since models may cost money.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import threading
from contextlib import redirect_stdout
from typing import Any

import django


def main() -> int:
    os.environ["DJANGO_SETTINGS_MODULE"] = "mnesis_site.settings"
    django.setup()
    out = sys.stdout

    def say(**line: Any) -> None:
        out.write(json.dumps(line) + "\n")
        out.flush()

    with redirect_stdout(sys.stderr):
        # After django.setup(), because it imports models.
        work = importlib.import_module("audit_app.evaluation.work")
        job = json.loads(sys.stdin.readline())
        return int(work.run(job, say, _may_go))


def _may_go() -> bool:
    """Wait for the second line. From then on this process ends with the one that started it, whose end closes the pipe."""
    may_go = bool(sys.stdin.readline())
    threading.Thread(target=_end_with_the_pipe, daemon=True).start()
    return may_go


def _end_with_the_pipe() -> None:
    sys.stdin.read()
    os._exit(1)


if __name__ == "__main__":
    sys.exit(main())
