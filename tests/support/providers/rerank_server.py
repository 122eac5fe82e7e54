"""A loopback server of ``/rerank``, for which the text with the most of the question's last word answers best."""

from __future__ import annotations

import time
from typing import Any

from tests.support.providers.provider_server import LoopbackServer


class RerankServer(LoopbackServer):
    """The model's name says what is wrong with its answers."""

    def answer(self, path: str, body: dict[str, Any]) -> dict[str, Any]:
        assert path.endswith("/rerank")
        word = body["query"].split()[-1].strip("?").lower()
        results: list[Any] = [
            {"index": at, "relevance_score": float(text.lower().count(word))}
            for at, text in enumerate(body["documents"])
        ]
        match body["model"]:
            case "shuffled":
                results.reverse()
            case "few":
                results.pop()
            case "twice":
                results[0]["index"] = 1
            case "nan":
                results[0]["relevance_score"] = float("nan")
            case "words":
                results[0]["relevance_score"] = "high"
            case "bare":
                results = ["one", "two", "three"]
            case "slow":
                time.sleep(1)
        return {"id": "rerank-1", "model": body["model"], "results": results, "usage": {"total_tokens": 9}}
