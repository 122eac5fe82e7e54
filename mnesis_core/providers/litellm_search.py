"""Embedding models and rerankers of every real provider, through litellm (``litellm_``, the one module that knows it)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mnesis_core.errors import ModelError
from mnesis_core.llm.embeddings import Embedded, checked_vectors
from mnesis_core.llm.interface import ModelSpec, Source, Usage
from mnesis_core.llm.reranking import checked_scores
from mnesis_core.llm.tokens import estimate_text
from mnesis_core.providers.answer import DeadlinePassed, before, believable_usage, deadline_in
from mnesis_core.providers.credentials import key_and_address
from mnesis_core.providers.litellm_ import warm_up, with_listed_addresses
from mnesis_core.providers.litellm_errors import model_error, out_of_time


class LiteLLMEmbedder:
    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    async def embed(self, texts: Sequence[str], *, seconds: float) -> Embedded:
        key, address = key_and_address(self.spec)
        litellm = await warm_up()
        call = litellm.aembedding(
            model=self.spec.litellm_model,
            input=list(texts),
            api_key=key,
            api_base=address,
            encoding_format="float",
            timeout=seconds,
            num_retries=0,
            max_retries=0,  # The SDK below litellm has two hidden retries of its own.
        )
        try:
            answer = await before(deadline_in(seconds), with_listed_addresses(self.spec, call))
            vectors = checked_vectors(_in_order(answer), self.spec, count=len(texts))
            return Embedded(vectors=vectors, usage=_usage(answer, texts))
        except DeadlinePassed:
            raise out_of_time(self.spec, seconds, has_begun=False) from None
        except ModelError:
            raise
        except Exception as error:  # Whatever the provider did is an error of ours.
            raise model_error(error, self.spec, has_begun=False) from error


def _in_order(answer: Any) -> list[Any]:
    """Return what stands for each text: some servers number the vectors, and give them in another order."""
    items = [item if isinstance(item, dict) else vars(item) for item in getattr(answer, "data", None) or ()]
    numbers = [item.get("index") for item in items]
    if sorted(map(str, numbers)) == sorted(map(str, range(len(items)))):
        items.sort(key=lambda item: int(item["index"]))
    return [item.get("embedding") for item in items]


def _usage(answer: Any, texts: Sequence[str]) -> Usage:
    counted = believable_usage(prompt=getattr(getattr(answer, "usage", None), "prompt_tokens", None), answer=0)
    estimate = sum(map(estimate_text, texts))
    return counted or Usage(input_tokens=estimate, output_tokens=0, source=Source.ESTIMATED)


class LiteLLMReranker:
    def __init__(self, spec: ModelSpec) -> None:
        self.spec = spec

    async def rerank(self, question: str, texts: Sequence[str], *, seconds: float) -> tuple[float, ...]:
        key, address = key_and_address(self.spec)
        litellm = await warm_up()
        call = litellm.arerank(
            model=self.spec.litellm_model,
            query=question,
            documents=list(texts),
            top_n=len(texts),
            return_documents=False,
            api_key=key,
            api_base=address,
            timeout=seconds,
            num_retries=0,
            max_retries=0,
        )
        try:
            answer = await before(deadline_in(seconds), with_listed_addresses(self.spec, call))
            return checked_scores(getattr(answer, "results", None) or (), self.spec, count=len(texts))
        except DeadlinePassed:
            raise out_of_time(self.spec, seconds, has_begun=False) from None
        except ModelError:
            raise
        except Exception as error:  # Whatever the provider did is an error of ours.
            raise model_error(error, self.spec, has_begun=False) from error
