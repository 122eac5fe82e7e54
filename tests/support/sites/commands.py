"""Commands of manage.py, run in this process."""

from __future__ import annotations

from io import StringIO

from django.core.management import call_command


def printed(*words: str) -> str:
    """What a command prints.

    :raises CommandError: it failed.
    """
    output = StringIO()
    call_command(*words, stdout=output, stderr=StringIO())
    return output.getvalue()
