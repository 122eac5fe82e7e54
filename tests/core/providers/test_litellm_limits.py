"""What litellm's own table says of models, and what reading it costs and does not touch."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from mnesis_core.llm.interface import Prices
from mnesis_core.providers.litellm_ import load_litellm, stated_limits
from tests.support.waiting import PATIENCE_SECONDS


@pytest.mark.parametrize(
    ("litellm_model", "expected"),
    [
        ("openai/gpt-4o", (128_000, 16_384, Prices(input=2_500_000, output=10_000_000, cache_read=1_250_000))),
        (
            "openai/responses/gpt-4o",
            (128_000, 16_384, Prices(input=2_500_000, output=10_000_000, cache_read=1_250_000)),
        ),
        ("gpt-4o", (128_000, 16_384, Prices(input=2_500_000, output=10_000_000, cache_read=1_250_000))),
        (
            "anthropic/claude-sonnet-4-5",
            (
                200_000,
                64_000,
                Prices(
                    input=3_000_000,
                    output=15_000_000,
                    cache_read=300_000,
                    cache_write=3_750_000,
                    cache_write_1h=6_000_000,
                ),
            ),
        ),
        ("gemini/gemini-gemma-2-9b-it", (8_192, 8_192, Prices(input=350_000, output=1_050_000))),
        ("demo/chat", (32_000, 4_000, Prices())),
        ("openai/claude-sonnet-4-5", None),
        ("openai/text-embedding-3-small", (8_191, 8_191, Prices(input=20_000, output=0))),
        ("openai/nobody-knows-this", None),
        ("", None),
    ],
)
def test_litellm_s_table_gives_window_and_prices(litellm_model: str, expected: object) -> None:
    stated = stated_limits(litellm_model)
    assert (stated and (stated.context_window, stated.max_output_tokens, stated.prices)) == expected


def test_a_model_without_prices_in_the_table_is_not_free() -> None:
    unpriced = [name for name, entry in load_litellm().model_cost.items() if _has_window_only(entry)]
    stated = [limits for name in unpriced if (limits := stated_limits(name))]
    assert stated
    assert all(limits.prices is None for limits in stated)


def _has_window_only(entry: dict[str, Any]) -> bool:
    return entry.get("mode") == "chat" and entry.get("max_input_tokens") and "input_cost_per_token" not in entry


@pytest.mark.slow
def test_importing_the_adapters_imports_no_litellm_and_warming_up_reads_no_dotenv(tmp_path: Path) -> None:
    (tmp_path / ".env").write_text("MNESIS_TEST_CANARY=read\n")
    script = (
        "import asyncio, os, sys\n"
        "from mnesis_core.providers import litellm_\n"
        "assert 'litellm' not in sys.modules\n"
        "asyncio.run(litellm_.warm_up())\n"
        "assert 'litellm' in sys.modules and 'MNESIS_TEST_CANARY' not in os.environ\n"
    )
    environment = {"PYTHONPATH": os.pathsep.join(sys.path), "PATH": os.environ.get("PATH", "")}
    done = subprocess.run(
        [sys.executable, "-c", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=PATIENCE_SECONDS,
    )
    assert (done.returncode, done.stdout) == (0, ""), done.stderr
