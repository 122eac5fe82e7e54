"""Story: ask a model one word, and keep how it answered."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import Any

from django.utils import timezone

from mnesis_core.errors import MnesisError
from mnesis_core.llm import Model, Reply, Request, complete
from mnesis_core.providers.litellm_ import stated_capabilities
from mnesis_core.visible import excerpt
from sessions_app.conf import get_model
from sessions_app.database import waiting_for
from sessions_app.store.models import keep_check

QUESTION = "Answer with one word: ready?"
SECONDS = 60.0
"""The longest that a check may take; less where the model's entry says so."""
LONGEST_ANSWER, LONGEST_PROBLEM = 200, 1_000
"""Characters that are kept: both are other people's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelCheck:
    """How a model answered."""

    at: str
    """When it was asked, ISO 8601."""
    milliseconds: int
    answer: str
    finish_reason: str
    input_tokens: int
    output_tokens: int
    usage_source: str
    capabilities: tuple[str, ...] = ()
    """What litellm's table says that it can do, in words."""
    code: str = ""
    """Of the error; empty when it answered."""
    problem: str = ""

    @property
    def is_good(self) -> bool:
        """Whether it answered."""
        return not self.code


def check_model(alias: str) -> tuple[ModelCheck, MnesisError | None]:
    """Ask a model one word; how it answers is kept beside it, a failure too, whose error comes with it.

    :raises ModelNotFoundError: there is no such model.
    """
    model, began = get_model(alias, user_id=None), time.monotonic()
    reply = waiting_for(_ask)(model)
    result = _result(model, reply, milliseconds=round((time.monotonic() - began) * 1000))
    keep_check(alias, asdict(result))
    return result, reply.error


def read_check(stored: dict[str, Any]) -> ModelCheck | None:
    """The check of a model's row; ``None`` where nobody has asked it since it is as it is."""
    return ModelCheck(**stored | {"capabilities": tuple(stored["capabilities"])}) if stored else None


async def _ask(model: Model) -> Reply:
    seconds = min(SECONDS, model.spec.total_timeout_seconds)
    payload = {"messages": [{"role": "user", "content": QUESTION}]}
    return await complete(model, Request(payload=payload, max_output_tokens=64, seconds=seconds))


def _result(model: Model, reply: Reply, *, milliseconds: int) -> ModelCheck:
    spec = model.spec
    return ModelCheck(
        at=timezone.now().isoformat(),
        milliseconds=milliseconds,
        answer=excerpt(reply.text.strip(), LONGEST_ANSWER),
        finish_reason=excerpt(reply.finish_reason, 64),
        input_tokens=reply.usage.input_tokens,
        output_tokens=reply.usage.output_tokens,
        usage_source=str(reply.usage.source),
        capabilities=() if spec.api_base else stated_capabilities(spec.litellm_model),
        code="" if reply.error is None else reply.error.code,
        problem="" if reply.error is None else _words_of(reply.error, spec.api_key),
    )


def _words_of(error: MnesisError, key: str) -> str:
    """What went wrong; a provider that repeats the key in its answer does not have it kept here."""
    words = error.message.replace(key, "…") if key else error.message
    return excerpt(words, LONGEST_PROBLEM)
