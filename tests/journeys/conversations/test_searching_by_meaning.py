"""A site with an embedding model and a reranker: what no word finds is found over every endpoint, and read beside the question."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import quote

import pytest

from tests.journeys.conftest import Caller, caller_for
from tests.support.providers.embedding_server import EmbeddingServer
from tests.support.providers.rerank_server import RerankServer
from tests.support.sites.databases import site_database, with_a_role
from tests.support.sites.site import running_site, wait_until, wait_until_ready

QUESTION = "on which vessel?"


@pytest.fixture(scope="module")
def embedding_server() -> Iterator[EmbeddingServer]:
    with EmbeddingServer() as server:
        yield server


@pytest.fixture(scope="module")
def rerank_server() -> Iterator[RerankServer]:
    with RerankServer() as server:
        yield server


@pytest.fixture(scope="module")
def reader(
    tmp_path_factory: pytest.TempPathFactory, embedding_server: EmbeddingServer, rerank_server: RerankServer
) -> Iterator[Caller]:
    directory = tmp_path_factory.mktemp("site")
    config = directory / "site.toml"
    config.write_text('[search]\nembedding_model = "near"\nrerank_model = "judge"\nquestion_seconds = 30.0\n')
    with (
        site_database("test_meaning", is_prepared=True) as database,
        with_a_role(database, directory) as environment,
        running_site(directory, MNESIS_CONFIG=str(config), **environment) as site,
    ):
        wait_until_ready(site)
        for alias, litellm, server in (
            ("near", "openai/near", embedding_server),
            ("judge", "hosted_vllm/judge", rerank_server),
        ):
            added = site.manage(
                *("model", "add", "--alias", alias, "--litellm", litellm, "--context", "512"),
                *("--api-base", server.url),
            )
            assert added.returncode == 0, added.stderr
        caller = caller_for(site, "admin")
        yield caller
        caller.client.close()


@pytest.mark.slow
def test_what_no_word_finds_is_found_by_meaning(
    reader: Caller, embedding_server: EmbeddingServer, rerank_server: RerankServer
) -> None:
    session_id = reader.new_session()
    reader.say(session_id, "We crossed by ferry.")
    for text in ("The roses are out.", "The boiler broke.", "We had soup.", "The dog barked."):
        reader.say(session_id, text)
    wait_until(lambda: "The dog barked." in embedding_server.asked)
    wait_until(lambda: " 0 sessions have texts to read" in reader.site.manage("fill_vectors", "--show").stdout)
    for path in (f"/api/sessions/{session_id}/search", "/api/search"):
        items = reader.call("GET", f"{path}?q={quote(QUESTION)}")["items"]
        assert "We crossed by ferry." in [item["snippet"] for item in items]
    assert {request["query"] for request in rerank_server.requests} == {QUESTION}
    assert "We crossed by ferry." in rerank_server.requests[-1]["documents"]
    reader.say(session_id, f'!tool lcm_grep {{"pattern": "{QUESTION}"}}')
    [output] = [
        part["output"] for message in reader.messages(session_id) for part in message["parts"] if part["output"]
    ]
    assert "We crossed by ferry." in output
    page = reader.client.get(f"/api/sessions/{session_id}/search?q={quote(QUESTION)}&scope=tools")
    assert page.json()["items"] == []
