"""No name that others rely on is gone or changed: ``tests/data/public_names.txt`` has them, a name a line. New ones are welcome."""

from __future__ import annotations

import os

import pytest
from django.contrib.auth.models import User

from tests.support.documents.public_names import FILE, WRITE, is_here, public_names
from tests.support.sites.commands import printed


# Committed, because the endpoints that are asked answer in threads with connections of their own.
@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
def test_no_public_name_is_gone() -> None:
    User.objects.create_user("ada")
    now = public_names(printed("apikey", "create", "ada").strip())
    before = FILE.read_text().splitlines() if FILE.exists() else []
    if os.environ.get(WRITE):
        FILE.write_text("".join(f"{name}\n" for name in sorted({*now, *(n for n in before if not is_here(n))})))
        return
    gone = sorted({*filter(is_here, before)} - {*now})
    assert not gone, (
        "Public names are gone. If that is meant, write the list anew on both databases with "
        f"'{WRITE}=1 python -m pytest tests/test_public_names.py', and say so in CHANGELOG.md.\n" + "\n".join(gone)
    )
