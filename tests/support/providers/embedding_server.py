"""A loopback server of OpenAI's ``/v1/embeddings`` for which a vessel is nearly a ferry, and everything else something else."""

from __future__ import annotations

from typing import Any

from tests.support.providers.provider_server import LoopbackServer

NUMBERS = {"ferry": [1.0, 0.0, 0.0], "vessel": [0.95, 0.1, 0.0]}


class EmbeddingServer(LoopbackServer):
    @property
    def asked(self) -> list[str]:
        """The texts of all requests."""
        return [text for request in self.requests for text in request["input"]]

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        vectors = [next((n for word, n in NUMBERS.items() if word in text), [0.1, 0.1, 0.9]) for text in body["input"]]
        data = [{"object": "embedding", "index": at, "embedding": vector} for at, vector in enumerate(vectors)]
        usage = {"prompt_tokens": 9, "total_tokens": 9}
        return {"object": "list", "model": body["model"], "data": data, "usage": usage}
