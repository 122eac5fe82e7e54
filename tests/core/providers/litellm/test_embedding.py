"""Embedding models through litellm: a vector for each text, or an error of ours."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from mnesis_core.errors import (
    ModelAuthenticationFailed,
    ModelError,
    ModelNotAllowed,
    ModelRefusedRequest,
    ModelReplyIncomplete,
    ModelTimeout,
    ModelUnavailable,
    ModelUnreachable,
)
from mnesis_core.llm.interface import ModelSpec, Source
from mnesis_core.providers import make_embedder
from mnesis_core.providers.litellm_ import stated_limits
from mnesis_core.search.ranking import packed
from tests.support.providers.threaded_server import QuietHandler, ThreadedServer

TEXTS = ["one", "two", "three"]


class _Handler(QuietHandler):
    asked: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.asked.append(body)
        model = body["model"]
        data = [{"object": "embedding", "index": n, "embedding": [n + 1.0, 1.0]} for n in range(len(body["input"]))]
        if model == "shuffled":
            data.reverse()
        if model == "few":
            data.pop()
        if model == "nan":
            data[0]["embedding"] = [float("nan"), 1.0]
        if model == "uneven":
            data[0]["embedding"] = [1.0]
        if model == "words":
            data[0]["embedding"] = "no numbers"
        if model == "slow":
            time.sleep(1)
        if model == "bare":
            data = ["one", "two", "three"]  # type: ignore[list-item]
        answer: Any = {"object": "list", "model": model, "data": data, "usage": {"prompt_tokens": 5, "total_tokens": 5}}
        status = int(model) if model.isdigit() else 200
        if status != 200:
            answer = {"error": {"message": "refused", "type": "error", "code": None}}
        payload = b"<html>" if model == "page" else json.dumps(answer).encode()
        self.answer(status, {"Content-Type": "application/json"}, payload)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    _Handler.asked = []
    with ThreadedServer(_Handler) as server:
        yield f"{server.url}/v1"


def spec_of(model: str, address: str, **values: Any) -> ModelSpec:
    return ModelSpec(
        **{"alias": "near", "litellm_model": f"openai/{model}", "api_base": address, "api_key": "sk-secret-key"}
        | {"context_window": 500, "max_output_tokens": 1}
        | values
    )


@pytest.mark.parametrize("model", ["fine", "shuffled"])
async def test_each_text_gets_its_own_vector(address: str, model: str) -> None:
    found = await make_embedder(spec_of(model, address)).embed(TEXTS, seconds=20)
    assert found.vectors == (packed([1.0, 1.0]), packed([2.0, 1.0]), packed([3.0, 1.0]))
    assert (found.usage.input_tokens, found.usage.source) == (5, Source.PROVIDER)
    assert _Handler.asked[-1] == {"model": model, "input": TEXTS, "encoding_format": "float"}


@pytest.mark.parametrize(
    ("model", "error"),
    [
        ("few", ModelReplyIncomplete),
        ("nan", ModelReplyIncomplete),
        ("uneven", ModelReplyIncomplete),
        ("words", ModelError),
        ("page", ModelError),
        ("bare", ModelError),
        ("401", ModelAuthenticationFailed),
        ("400", ModelRefusedRequest),
        ("503", ModelUnavailable),
        ("slow", ModelTimeout),
    ],
)
async def test_everything_else_is_an_error_of_ours(address: str, model: str, error: type[ModelError]) -> None:
    before = len(_Handler.asked)
    with pytest.raises(error) as raised:
        await make_embedder(spec_of(model, address)).embed(TEXTS, seconds=0.3 if model == "slow" else 20)
    assert "sk-secret-key" not in str(raised.value)
    assert len(_Handler.asked) == before + 1


async def test_a_server_that_is_down_is_said_to_be() -> None:
    with pytest.raises(ModelUnreachable):
        await make_embedder(spec_of("fine", "http://127.0.0.1:9/v1")).embed(TEXTS, seconds=20)


async def test_only_listed_addresses_are_asked(address: str) -> None:
    before = len(_Handler.asked)
    with pytest.raises(ModelNotAllowed):
        await make_embedder(spec_of("fine", address, listed_addresses=())).embed(TEXTS, seconds=20)
    assert len(_Handler.asked) == before


def test_the_limits_and_prices_of_known_embedding_models_are_stated() -> None:
    limits = stated_limits("openai/text-embedding-3-small")
    assert limits is not None
    assert (limits.context_window, limits.prices and limits.prices.input) == (8191, 20_000)
