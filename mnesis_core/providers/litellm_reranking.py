"""Rerankers of every real provider, through litellm (``litellm_``, the one module that knows it)."""

from __future__ import annotations

from collections.abc import Sequence

from mnesis_core.errors import ModelError
from mnesis_core.llm.interface import ModelSpec
from mnesis_core.llm.reranking import checked_scores
from mnesis_core.providers.answer import DeadlinePassed, before, deadline_in
from mnesis_core.providers.credentials import key_and_address
from mnesis_core.providers.litellm_ import warm_up, with_listed_addresses
from mnesis_core.providers.litellm_errors import model_error, out_of_time


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
