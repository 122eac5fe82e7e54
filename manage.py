#!/usr/bin/env python
"""Django's command-line entry point."""

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import DatabaseError

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "mnesis_site.settings")
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as error:
        sys.exit(f"Mnesis cannot start: {error}")
    except DatabaseError as error:
        from sessions_app.database.outages import outage_of

        outage = outage_of(error)
        # What stops a migration needs its traceback.
        if outage is None or sys.argv[1:2] == ["migrate"]:
            raise
        sys.stderr.write(f"{outage.code}: {outage.message} ({str(error).splitlines()[0]})\n")
        sys.exit(outage.exit_status)
