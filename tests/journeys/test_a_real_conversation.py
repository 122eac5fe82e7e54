"""A real conversation lived in a window that is far too small for it (``benchmarks/conversations.py`` lives more)."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User

from benchmarks.conversations import live_in, put_models
from tests.support.samples import read_samples


@pytest.mark.django_db(transaction=True)
def test_nothing_of_it_is_lost_and_no_compaction_is_in_vain(real_data: Path) -> None:
    put_models()
    sample = read_samples(real_data)[-1]
    lived = live_in(User.objects.create_user("ada"), sample, "8K")
    assert lived.said > 12_000
    assert lived.runs
    assert not lived.needless
    assert all(run.tokens_after < run.tokens_before for run in lived.runs if run.tokens_after and run.tokens_before)
    assert [id for id, _ in lived.reached] == lived.originals
    assert len(lived.evidence) == len(sample.evidence) > 60
    assert lived.files_named == lived.files > 20
    assert lived.at_the_end < lived.soft
