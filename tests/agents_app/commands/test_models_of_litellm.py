"""Models that litellm's own table knows; reading it takes seconds, and no database can change what it says."""

from __future__ import annotations

import json

import pytest

from sessions_app.conf import get_spec
from tests.agents_app.commands.test_models import model


@pytest.mark.slow
@pytest.mark.django_db
def test_a_model_of_litellm_s_table_brings_its_numbers(capsys) -> None:
    said = model("add", "--alias=four", "--litellm=openai/gpt-4o", capsys=capsys)
    assert "window 128,000 (litellm), answer 16,384 (litellm), prices 2.5 / 10 (litellm)" in said
    spec = get_spec("four", user_id=None)
    assert spec.prices.cache_read == 1_250_000
    assert spec.prices.cache_write is None


@pytest.mark.django_db
def test_a_model_nobody_knows_is_assumed_aloud(capsys) -> None:
    said = model("add", "--alias=mine", "--litellm=openai/nobody-knows-this", capsys=capsys)
    assert "window 32,000 (default), answer 4,096 (default), prices not known (default)" in said
    assert "32,000 is assumed" in said


@pytest.mark.django_db
def test_what_is_given_is_configured(capsys) -> None:
    words = ["--context=50000", "--max-output=900", "--input-price=1.5", "--output-price=0", "--cache-read-price=.1"]
    said = model("add", "--alias=mine", "--litellm=openai/gpt-4o", *words, capsys=capsys)
    assert "window 50,000 (configured), answer 900 (configured), prices 1.5 / 0 (configured)" in said
    listed = {row["alias"]: row for row in json.loads(model("list", "--json", capsys=capsys))}
    prices = {"input": 1_500_000, "output": 0, "cache_read": 100_000, "cache_write": None, "cache_write_1h": None}
    assert listed["mine"]["prices"] == prices
    assert listed["demo"]["context_window_source"] == "configured"
