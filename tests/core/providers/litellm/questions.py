"""Scenarios of the model server, asked for through litellm."""

from __future__ import annotations

from dataclasses import replace

from mnesis_core.llm.interface import ModelSpec, Reply, Request, complete
from mnesis_core.providers.litellm_ import LiteLLMModel
from tests.support.providers.openai.openai_server import OpenAIServer

KEY = "canary.0123456789"
"""Unlike any provider's, so that only the rule for this very key takes it out."""
REQUEST = Request(payload={"messages": [{"role": "user", "content": "What is the answer?"}]}, max_output_tokens=50)


def spec_for(name: str, server: OpenAIServer, **changes: object) -> ModelSpec:
    spec = ModelSpec(
        alias="mine",
        litellm_model=f"openai/{name}",
        api_base=server.base_url,
        api_key=KEY,
        context_window=8_000,
        max_output_tokens=500,
        timeout_seconds=5,
        total_timeout_seconds=10,
    )
    return replace(spec, **changes)  # type: ignore[arg-type]


async def ask(name: str, server: OpenAIServer, **changes: object) -> Reply:
    return await complete(LiteLLMModel(spec_for(name, server, **changes)), REQUEST)
