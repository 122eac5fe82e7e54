"""OpenAI's Embeddings, by the model of the site's search."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from django.test import Client
from openai.types import CreateEmbeddingResponse

from agents_app.endpoints import openai
from mnesis_core.errors import ModelUnavailable
from mnesis_core.search.ranking import unpacked
from sessions_app.llm.model_store import create_key
from tests.support.providers.embedders import ScriptedEmbedder, by_words, failing, search_with


@pytest.fixture
def ask(alice: Any) -> Any:
    client, headers = (
        Client(raise_request_exception=False),
        {"Authorization": f"Bearer {create_key(owner_id=alice.pk)}"},
    )

    def post(**body: Any) -> Any:
        text = json.dumps({"model": "near", "input": "tide", **body})
        return client.post("/v1/embeddings", data=text, content_type="application/json", headers=headers)

    return post


@pytest.fixture
def searching_by(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Have the site search with an embedding model that answers like this."""

    def search_by(answer: Any) -> ScriptedEmbedder:
        embedder = ScriptedEmbedder(answer)
        monkeypatch.setattr(openai, "get_embedder", lambda spec: embedder)
        search_with(monkeypatch)
        return embedder

    return search_by


def test_each_text_gets_a_vector_of_length_one(searching_by: Any, ask: Any) -> None:
    embedder: ScriptedEmbedder = searching_by(by_words(tide=(3.0, 4.0), fog=(0.0, 2.0)))
    answer = CreateEmbeddingResponse.model_validate(ask(input=["the tide", "fog"]).json())
    assert [[round(number, 6) for number in one.embedding] for one in answer.data] == [[0.6, 0.8], [0.0, 1.0]]
    assert (answer.model, answer.usage.total_tokens, embedder.asked) == ("near", 11, [["the tide", "fog"]])
    [packed] = [one["embedding"] for one in ask(encoding_format="base64").json()["data"]]
    assert [round(number, 6) for number in unpacked(base64.b64decode(packed))] == [0.6, 0.8]


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ({"model": "demo"}, "MODEL_NOT_FOUND"),
        ({"input": ""}, "INVALID_REQUEST"),
        ({"input": []}, "INVALID_REQUEST"),
        ({"input": [[1, 2]]}, "INVALID_REQUEST"),
        ({"input": ["a"] * 65}, "INVALID_REQUEST"),
        ({"input": "a" * 400_001}, "REQUEST_TOO_LARGE"),
        ({"input": "\ud800"}, "INVALID_REQUEST"),
        ({"dimensions": 2}, "INVALID_REQUEST"),
        ({"encoding_format": "hex"}, "INVALID_REQUEST"),
    ],
)
def test_what_gets_no_vector_is_refused(searching_by: Any, ask: Any, body: Any, code: str) -> None:
    searching_by(by_words())
    assert ask(**body).json()["error"]["code"] == code


def test_a_site_without_an_embedding_model_says_so(ask: Any) -> None:
    assert ask().json()["error"]["code"] == "MODEL_NOT_FOUND"


def test_a_model_that_fails_is_an_error_of_ours(searching_by: Any, ask: Any) -> None:
    searching_by(failing(ModelUnavailable("gone")))
    response = ask()
    assert (response.status_code, response.json()["error"]["code"]) == (ModelUnavailable.status, "MODEL_UNAVAILABLE")
