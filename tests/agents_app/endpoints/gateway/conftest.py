"""A provider that keeps the bytes it gets, and a program whose requests reach it through the gateway."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from audit_app.proof.verify import verify_session
from sessions_app.llm.model_store import create_key
from sessions_app.models import LanguageModel, Session
from tests.agents_app.endpoints.gateway.client import PATHS, Client
from tests.support.providers.raw_provider import RawProvider


@pytest.fixture
def provider() -> Iterator[RawProvider]:
    with RawProvider() as provider:
        yield provider


@pytest.fixture
def model(alice: User, provider: RawProvider, monkeypatch: Any) -> None:
    monkeypatch.setenv("RAW_KEY", "sk-raw")
    for alias, name, base in (("raw", "anthropic/raw-1", ""), ("raw-openai", "openai/raw-1", "/v1")):
        LanguageModel.objects.create(
            alias=alias,
            litellm_model=name,
            api_base=f"{provider.url}{base}",
            api_key_env="RAW_KEY",
            context_window=200_000,
            max_output_tokens=8_000,
            entered_on_host=True,
        )


@pytest.fixture
def client(alice: User, model: None) -> Iterator[Client]:
    """What it leaves in the record is sound."""
    yield Client(str(create_key(owner_id=alice.pk)), PATHS["anthropic"])
    for session_id in Session.objects.values_list("id", flat=True):
        assert verify_session(session_id).problems == []
