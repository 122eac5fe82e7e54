"""Rerankers through litellm: a score for each text, or an error of ours."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from mnesis_core.errors import ModelError, ModelNotAllowed, ModelReplyIncomplete, ModelTimeout, ModelUnreachable
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.providers import make_reranker
from tests.support.providers.rerank_server import RerankServer

TEXTS = ["a ferry", "ferry after ferry", "a rose"]
QUESTION = "Who took the ferry?"


@pytest.fixture(scope="module")
def server() -> Iterator[RerankServer]:
    with RerankServer() as server:
        yield server


def spec_of(model: str, address: str, **values: Any) -> ModelSpec:
    return ModelSpec(
        **{"alias": "judge", "litellm_model": f"hosted_vllm/{model}", "api_base": address, "api_key": "sk-secret-key"}
        | {"context_window": 500, "max_output_tokens": 1}
        | values
    )


@pytest.mark.parametrize("model", ["fine", "shuffled"])
async def test_each_text_gets_its_own_score(server: RerankServer, model: str) -> None:
    scores = await make_reranker(spec_of(model, server.url)).rerank(QUESTION, TEXTS, seconds=20)
    assert scores == (1.0, 2.0, 0.0)
    asked = server.requests[-1]
    assert (asked["query"], asked["documents"], asked["top_n"]) == (QUESTION, TEXTS, 3)


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("few", ModelReplyIncomplete),
        ("twice", ModelReplyIncomplete),
        ("nan", ModelReplyIncomplete),
        ("words", ModelError),
        ("bare", ModelError),
        ("slow", ModelTimeout),
    ],
)
async def test_everything_else_is_an_error_of_ours(server: RerankServer, model: str, error: type[ModelError]) -> None:
    before, seconds = len(server.requests), 0.3 if model == "slow" else 20
    with pytest.raises(error) as raised:
        await make_reranker(spec_of(model, server.url)).rerank(QUESTION, TEXTS, seconds=seconds)
    assert "sk-secret-key" not in str(raised.value)
    assert len(server.requests) == before + 1


async def test_a_server_that_is_down_is_said_to_be() -> None:
    with pytest.raises(ModelUnreachable):
        await make_reranker(spec_of("fine", "http://127.0.0.1:9")).rerank(QUESTION, TEXTS, seconds=20)


async def test_only_listed_addresses_are_asked(server: RerankServer) -> None:
    before = len(server.requests)
    with pytest.raises(ModelNotAllowed):
        await make_reranker(spec_of("fine", server.url, listed_addresses=())).rerank(QUESTION, TEXTS, seconds=20)
    assert len(server.requests) == before


async def test_the_demo_reranker_counts_words() -> None:
    scores = await make_reranker(spec_of("any", "", litellm_model="demo/rerank")).rerank("the ferry", TEXTS, seconds=1)
    assert scores == (0.5, 0.5, 0.0)
