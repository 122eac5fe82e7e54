"""Story: ask a model what a text that is kept as a file says. Every call a row, nothing held while it is asked.

A call is written before it is made. Who dies in between leaves one that runs, and whoever explores the file next
closes it; while it may still come to an end nobody asks again, since each answer is paid for.
"""

from __future__ import annotations

import time
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any

from django.utils import timezone

from files_app.contents import read_content
from files_app.queries import is_waiting
from mnesis_core.config import Config
from mnesis_core.endings import BudgetExhausted, ModelCallAbandoned
from mnesis_core.errors import CallNotFoundError, FileContentNotFound, ModelNotFoundError
from mnesis_core.limits import spec_in_session
from mnesis_core.llm import Model, ModelSpec, Outcome, Reply, Usage, complete, cost_micros
from mnesis_core.prose import KINDS, READ_BYTES, Question, problem_of, question_about, with_description
from mnesis_core.providers.litellm_ import close_connections
from mnesis_core.record import FileReference, MessageEnd, SessionRecord
from mnesis_core.recording import end_of_reply
from mnesis_core.rendering import digest
from mnesis_core.retrying import Retry, ask_patiently, fallbacks_of, may_ask_another, patience_of
from mnesis_core.spending import Spent, highest_of
from mnesis_core.text import LONGEST_CHARACTER
from sessions_app import store
from sessions_app.conf import get_model, get_spec_to_read, session_config, site_prompts
from sessions_app.database import in_waiting_thread, waiting_for
from sessions_app.ledger import Change, change
from sessions_app.queries import load_session, running_file_calls
from sessions_app.spending import draw, load_limits

CALL_SECONDS = 60.0
"""The longest that one call may take, and all that are made for one file together."""
LOST_AFTER = timedelta(seconds=2 * CALL_SECONDS)
"""A call that has run for so long has lost its process."""


class AlreadyAsked(Exception):
    """Somebody else is asking about this file, or has."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Describer:
    """Who describes the prose of a session's files."""

    alias: str
    """What the configuration names."""
    prompt_version: str
    session: SessionRecord
    config: Config


@dataclass(frozen=True, slots=True, kw_only=True)
class Ending:
    """How a call ended, to be written together with what became of it."""

    call_id: str
    end: MessageEnd
    attempts: int

    def write(self, record: Change) -> None:
        """Write it, unless somebody took this call for lost and has closed it."""
        with suppress(CallNotFoundError):
            store.finish_call(record, self.call_id, self.end, attempts=self.attempts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Description:
    """A file's summary, with or without what a model wrote."""

    summary: str
    note: dict[str, Any] | None
    """Which model was asked in which call, and what went wrong; ``None``: it is not worth a question."""
    ending: Ending | None = None


def describer_of(file: FileReference) -> Describer | None:
    """Who describes a file, if its kind is prose and its session has somebody for that."""
    if file.file_type not in KINDS:
        return None
    session = load_session(file.session_id)
    config = session_config(session.config)
    if not config.files.model:
        return None
    version = site_prompts().prose.version
    return Describer(alias=config.files.model, prompt_version=version, session=session, config=config)


def is_being_asked(file: FileReference) -> bool:
    """Whether a call about a file may still come to an end; those that cannot are closed."""
    running = running_file_calls(file.session_id, file.id)
    if not running:
        return False
    lost = [call_id for call_id, began in running.items() if began < timezone.now() - LOST_AFTER]
    if lost:
        with change(file.session_id) as record:
            for call_id in lost:
                Ending(call_id=call_id, end=_abandoned(), attempts=1).write(record)
    return len(lost) < len(running)


def describe(file: FileReference, ordinary: str, describer: Describer) -> Description:
    """Ask the describer, and another model where it gives nothing. Whatever happens, there is a summary.

    :raises AlreadyAsked: somebody else does, or the file is explored.
    """
    note = {"model": describer.alias, "prompt": describer.prompt_version, "call_id": None, "bytes": 0}
    try:
        models = _models(describer)
        data = read_content(file.content_id, 0, _READ)
    except (ModelNotFoundError, FileContentNotFound) as error:
        return Description(summary=ordinary, note=note | {"problem": error.code})
    asking = _Asking(file=file, describer=describer, data=data, began=time.monotonic())
    try:
        asked = asking.first_answer(models)
    except BudgetExhausted as error:
        return Description(summary=ordinary, note=note | {"problem": str(error.details["reason"])})
    if asked is None:
        return Description(summary=ordinary, note=None)
    length = asked.question.beginning.length
    note |= {"call_id": asked.ending.call_id, "bytes": length, "problem": asked.problem}
    if asked.problem or asked.reply is None:
        return Description(summary=ordinary, note=note, ending=asked.ending)
    size = max(length, file.size or 0)
    summary = with_description(ordinary, asked.reply, alias=asked.alias, length=length, size=size)
    return Description(summary=summary, note=note, ending=asked.ending)


_READ = READ_BYTES + LONGEST_CHARACTER
"""A little more than a model reads, so that it is known where a character ends."""


def _models(describer: Describer) -> list[Model]:
    """The describer and those that are asked, in this order, when it gives nothing.

    :raises ModelNotFoundError: no model has its name.
    """
    own = describer.alias
    user_id = describer.session.owner_id
    models = [get_model(own, user_id=user_id)]
    of_session = describer.config.fallbacks if own == describer.session.model else ()
    for alias in fallbacks_of(own, of_session=of_session, of_entry=get_spec_to_read(own).fallbacks):
        with suppress(ModelNotFoundError):
            models.append(get_model(alias, user_id=user_id))
    return models


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """What came of one call."""

    alias: str
    question: Question
    reply: Reply | None
    """``None``: our side of the call broke."""
    problem: str
    ending: Ending


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asking:
    """A file that models are asked about."""

    file: FileReference
    describer: Describer
    data: bytes
    began: float
    """By ``time.monotonic``."""

    def first_answer(self, models: list[Model]) -> _Asked | None:
        """What the first model says that gives anything, or the last; ``None`` where it is not worth a question."""
        asked: _Asked | None = None
        for model in models:
            question = self._question(model.spec)
            if question is None:
                continue
            if asked is not None:
                with change(self.file.session_id) as record:
                    asked.ending.write(record)
            asked = self._ask(model, question)
            if asked.reply is None or not may_ask_another(asked.reply):
                break
        return asked

    def _question(self, spec: ModelSpec) -> Question | None:
        prompt, config = site_prompts().prose, self.describer.config
        return question_about(self.file.content_id, self.data, prompt=prompt, spec=spec, config=config)

    def _ask(self, model: Model, question: Question) -> _Asked:
        is_own = model.spec.alias == self.describer.session.model
        spec = spec_in_session(model.spec, self.describer.config) if is_own else model.spec
        call_id, seconds = self._start(spec, question)
        noted: list[Retry] = []
        try:
            # A loop of its own: connections to models belong to one, and are closed with it.
            reply = waiting_for(self._reply, own_loop=True)(model, question, call_id, noted, seconds)
        except Exception:  # whatever breaks in an adapter, the file is explored all the same
            ending = Ending(call_id=call_id, end=_abandoned(), attempts=len(noted) + 1)
            problem = ModelCallAbandoned.code
            return _Asked(alias=spec.alias, question=question, reply=None, problem=problem, ending=ending)
        ending = Ending(call_id=call_id, end=end_of_reply(reply, spec), attempts=len(noted) + 1)
        problem = problem_of(reply, question.beginning)
        return _Asked(alias=spec.alias, question=question, reply=reply, problem=problem, ending=ending)

    async def _reply(self, model: Model, question: Question, call_id: str, noted: list[Retry], seconds: float) -> Reply:
        async def once(left: float) -> Reply:
            return await complete(model, replace(question.request, seconds=left))

        async def note(retry: Retry) -> None:
            noted.append(retry)
            await in_waiting_thread(self._note)(call_id, retry)

        try:
            patience = patience_of(self.describer.config.turn)
            return await ask_patiently(once, patience, seconds=seconds, note=note)
        finally:
            await close_connections()

    def _start(self, spec: ModelSpec, question: Question) -> tuple[str, float]:
        """Write the call, and how long it may take.

        :raises AlreadyAsked: somebody else asks, or the file is explored.
        :raises BudgetExhausted: a limit would be passed; ``reason`` says which.
        """
        most = Usage(input_tokens=question.tokens, output_tokens=question.request.max_output_tokens)
        highest = highest_of(most.total_tokens, cost_micros(spec, most))
        limits = load_limits(self.file.session_id)
        with change(self.file.session_id) as record:
            if not is_waiting(self.file.id) or running_file_calls(self.file.session_id, self.file.id):
                raise AlreadyAsked
            time_limit = draw(record, limits, highest)
            call_id = self._write_call(record, spec, question, highest)
        left = CALL_SECONDS - (time.monotonic() - self.began)
        return call_id, max(0.0, left if time_limit is None else min(left, time_limit.left))

    def _write_call(self, record: Change, spec: ModelSpec, question: Question, highest: Spent) -> str:
        return store.start_call(
            record,
            turn_id=None,
            message_id=None,
            purpose="file",
            model=spec.alias,
            provider_model=spec.litellm_model,
            parameters={
                "max_output_tokens": question.request.max_output_tokens,
                "file_id": self.file.id,
                **highest.as_parameters(),
            },
            manifest=question.manifest,
            context_seq=record.event_seq,
            digest=digest(question.request.payload),
            estimated_tokens=question.tokens,
            texts={"prompt": question.prompt.text},
        )

    def _note(self, call_id: str, retry: Retry) -> None:
        with change(self.file.session_id) as record:
            store.note_retry(record, call_id, retry)


def _abandoned() -> MessageEnd:
    """What a call cost whose answer nobody has is not known."""
    reason = ModelCallAbandoned()
    return MessageEnd(outcome=Outcome.BROKEN.value, error_code=reason.code, error_message=reason.message)
