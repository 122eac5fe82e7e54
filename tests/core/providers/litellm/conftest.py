"""A model server on loopback, and litellm as a site has it: warm, its connections closed at the end."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import pytest

from mnesis_core.providers.litellm_ import close_connections, warm_up
from tests.support.providers.openai.openai_server import OpenAIServer


@pytest.fixture(scope="module")
def server() -> Iterator[OpenAIServer]:
    with OpenAIServer() as running:
        yield running


@pytest.fixture(autouse=True)
async def _close_connections() -> AsyncIterator[None]:
    await warm_up()
    yield
    await close_connections()
