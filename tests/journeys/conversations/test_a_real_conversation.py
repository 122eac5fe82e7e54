"""A real conversation lived in a window that is far too small for it (``benchmarks/conversations.py`` lives more)."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.contrib.auth.models import User

from benchmarks.conversations import live_in, put_models
from tests.support.material.samples import read_samples


@pytest.mark.slow
@pytest.mark.django_db(transaction=True)
@pytest.mark.parametrize(("name", "window"), [("agent session", "128K"), ("LoCoMo conv-30", "8K")])
def test_nothing_of_it_is_lost_and_no_compaction_is_in_vain(real_data: Path, name: str, window: str) -> None:
    put_models()
    [sample] = [sample for sample in read_samples(real_data) if sample.name == name]
    lived = live_in(User.objects.create_user("ada"), sample, window)
    assert lived.said > 2 * lived.soft
    assert lived.runs
    assert not lived.needless
    assert all(run.tokens_after < run.tokens_before for run in lived.runs if run.tokens_after and run.tokens_before)
    assert [id for id, _ in lived.reached] == lived.originals
    assert len(lived.evidence) == len(sample.evidence)
    assert lived.files_named == lived.files
    assert lived.files or sample.evidence
    assert not any(prompt.absent for prompt in lived.prompts)
    assert all(prompt.has_question for prompt in lived.prompts)
    assert all(prompt.used >= 0.5 for prompt in lived.prompts if prompt.is_compacted)
