"""A recorder of attempts at summaries that asks the model and keeps nothing."""

from __future__ import annotations

from mnesis_core.compaction.requests import Answer, Attempt, Judge, Question, attempt_of
from mnesis_core.llm.interface import Model, complete


class Unrecorded:
    def __init__(self, model: Model | None) -> None:
        self._model = model
        self._tries = 0

    async def ask(self, question: Question, judge: Judge) -> Answer:
        assert self._model is not None
        reply = await complete(self._model, question.request)
        attempt = attempt_of(question, judge(reply), reply.usage)
        return Answer(try_id=self._next(), attempt=attempt, reply=reply)

    async def excerpt(self, attempt: Attempt, text: str) -> str:
        return self._next()

    def _next(self) -> str:
        self._tries += 1
        return str(self._tries)
