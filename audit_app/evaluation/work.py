"""Lives conversations in this process's own database, and measures what each policy's prompts show of them.

Only ``child`` runs this: it writes sessions, models and an account.
"""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import zlib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import timedelta
from functools import cache, partial
from itertools import chain, groupby, takewhile
from operator import attrgetter
from pathlib import Path
from random import Random
from typing import Any

from django.contrib.auth.models import User
from django.core.management import call_command
from django.utils import timezone

from agents_app.turns.transactions import TurnEnd, finish_turn
from audit_app.evaluation.asking import MOST_ROWS, Asker
from audit_app.evaluation.job import AskedModel, AskedSession, Job, read_job
from audit_app.transfer.imports import import_sessions, lines_of
from compaction_app.compact import compact, compact_before_call, request_during_turn
from compaction_app.context.state import load_state, size_of
from compaction_app.facts.queries import forgotten_reflections
from compaction_app.facts.reflect import reflect
from compaction_app.queries import live_run
from files_app.store import store_file_reference
from mnesis_core.actor import Actor, ActorKind, Via
from mnesis_core.compaction.evaluation.datasets import plant, read_conversations
from mnesis_core.compaction.evaluation.measures import Conversation, Measurement, Told
from mnesis_core.context.fitting import Pressure, pressure
from mnesis_core.errors import InvalidRequest, MnesisError, RequestTooLarge
from mnesis_core.llm.tokens import estimate_message
from mnesis_core.messages import DataPart, FileRefPart, MediaPart, Message, Part, StoredMessage, ToolPart
from mnesis_core.records import MessageEnd, TurnState, UsageRecord, new_request_id
from mnesis_core.transcripts.values import Transcript, TranscriptMessage, TranscriptTurn
from sessions_app.conf import site_config
from sessions_app.llm.model_store import put_model
from sessions_app.record import message_store, session_store, turn_store
from sessions_app.record.actor import acting_as
from sessions_app.record.branch_queries import path_in
from sessions_app.record.change import Change, change
from sessions_app.record.message_queries import load_messages, prepare_parts
from sessions_app.record.session_queries import load_session
from sessions_app.record.turn_queries import load_turn
from sessions_app.search.vector_store import fill_or_log

MOST_BYTES = 2**30
"""The most bytes of one file after unpacking."""
Say = Callable[..., None]
Progress = Callable[[int], None]
"""Turns done."""
BeforeAnswer = Callable[[str, str], None]
"""Called with the session and the id of its newest question, when the prompt of an answer would be built."""


def run(values: Mapping[str, Any], say: Say, may_go: Callable[[], bool]) -> int:
    """Do a job and return the exit status; every line that is said has one of the keys of ``process.Line``."""
    job = read_job(values)
    acting = Actor(kind=ActorKind.COMMAND, ref="evaluate_memory", via=Via.COMMAND, request=new_request_id())
    with acting_as(acting):
        try:
            conversations = list(_conversations(job, say))
            if not any(one.questions for one in conversations):
                raise InvalidRequest("No fact is to be planted, and no question came with a conversation.")
            for conversation in conversations:
                say(told=asdict(_told(conversation)))
            say(ready=True)
            if not may_go():
                return 0
            owner = _owner()
            for helper in job.helpers:
                put_model(helper.spec, api_key_env=helper.api_key_env, sealed_key=helper.sealed_key)
            for conversation in conversations:
                for measurement in _measure(job, owner, conversation, say):
                    say(measured=asdict(measurement))
        except MnesisError as error:
            say(error={"code": error.code, "message": error.message, "exit_status": error.exit_status})
            return error.exit_status
    say(done=True)
    return 0


@cache
def _owner() -> User:
    """Return the account whose sessions are lived; the first call makes the database, which a refused job does without."""
    call_command("migrate", verbosity=0)
    return User.objects.create_user("evaluation")


def _conversations(job: Job, say: Say) -> Iterator[Conversation]:
    """Yield what is to be lived: facts planted, messages numbered, and without what only their first home has."""
    taken: dict[str, int] = {}
    for found in (*(_of_file(name) for name in job.files), *(_of_session(one, _owner()) for one in job.sessions)):
        if len(found) > job.conversations:
            said = f"Of {len(found):,} conversations in a file, {job.conversations:,} were taken"
            say(note=f"{said}, from {found[0].name} on.")
        for one in found[: job.conversations]:
            taken[one.name] = taken.get(one.name, 0) + 1
            name = one.name if taken[one.name] == 1 else f"{one.name} ({taken[one.name]})"
            random = Random(f"{job.seed} {one.transcript.external_id}")  # noqa: S311 - it must be repeatable, not secret
            chosen = sorted(random.sample(range(len(one.questions)), min(job.questions, len(one.questions))))
            own = tuple(one.questions[index] for index in chosen)
            named = replace(one, name=name, questions=own, transcript=_to_be_lived(one.transcript))
            yield plant(named, count=job.plant, seed=job.seed)


def _of_file(name: str) -> list[Conversation]:
    path = Path(name)
    try:
        with gzip.open(path, "rb") if path.suffix == ".gz" else path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
    except (OSError, EOFError, zlib.error) as error:
        raise InvalidRequest(f"{path} cannot be read: {error}") from error
    if len(content) > MOST_BYTES:
        raise RequestTooLarge(f"{path} is larger than {MOST_BYTES:,} bytes.")
    return read_conversations(path.name, content)


def _of_session(asked: AskedSession, owner: User) -> list[Conversation]:
    """Import an export of a session, and return the session's chosen path as a conversation."""
    import_sessions(partial(lines_of, partial(open, asked.file, "rb")), owner_id=owner.pk)
    session = load_session(asked.id)
    messages = load_messages(asked.id, limit=MOST_ROWS, path=path_in(session))
    turns = [
        TranscriptTurn(external_id=str(turn_id), messages=tuple(map(_said, said)))
        for turn_id, said in groupby(messages, key=attrgetter("turn_id"))
    ]
    transcript = Transcript(external_id=asked.id, format="mnesis", title=session.title, turns=tuple(turns))
    if not turns:
        raise InvalidRequest(f"The session {asked.id} has no messages.", session_id=asked.id)
    return [Conversation(name=asked.id, transcript=transcript)]


def _said(message: StoredMessage) -> TranscriptMessage:
    parts = tuple(
        replace(stored.part, compacted_at=None) if isinstance(stored.part, ToolPart) else stored.part
        for stored in message.parts
    )
    return TranscriptMessage(external_id=message.id, role=message.role, is_summary=message.is_summary, parts=parts)


def _to_be_lived(transcript: Transcript) -> Transcript:
    """Number the messages, as evidence does, and leave out files, whose bytes are elsewhere, and data, which no prompt has."""
    number = 0
    turns = []
    for turn in transcript.turns:
        messages = []
        for message in turn.messages:
            number += 1
            parts = tuple(part for part in message.parts if not isinstance(part, DataPart | FileRefPart | MediaPart))
            messages.append(replace(message, external_id=str(number), parts=parts, files=()))
        turns.append(replace(turn, messages=tuple(messages)))
    return replace(transcript, turns=tuple(turns))


def _told(conversation: Conversation) -> Told:
    messages = list(conversation.transcript.messages)
    tokens = sum(estimate_message(message.parts) for message in messages)
    return Told(name=conversation.name, messages=len(messages), tokens=tokens, questions=conversation.questions)


def _measure(job: Job, owner: User, conversation: Conversation, say: Say) -> Iterator[Measurement]:
    for model in job.models:
        for window in job.windows:
            where = f"{conversation.name}, {model.spec.alias}, {window:,}"
            session_id = _live(job, model, window, owner, conversation, partial(_tell, say, where, "turns"))
            asker = Asker(
                conversation=conversation.name,
                owner_id=owner.pk,
                window=window,
                model=model.spec.alias,
                state=load_state(session_id),
                questions=conversation.questions,
                answers=job.answers,
            )
            for policy in job.policies:
                asked = partial(_tell, say, f"{where}, {policy}", "questions", len(conversation.questions))
                yield asker.measure(policy, asked)


def _live(
    job: Job,
    model: AskedModel,
    window: int,
    owner: User,
    conversation: Conversation,
    tell: Callable[[int, int], None],
) -> str:
    """Live a conversation with a model of this window, and return the session."""
    alias, turns = f"{model.spec.alias}@{window}", len(conversation.transcript.turns)
    spec = replace(model.spec, alias=alias, context_window=window)
    put_model(spec, api_key_env=model.api_key_env, sealed_key=model.sealed_key)
    # A summarising model of the site that is not here would leave nothing but excerpts.
    summariser = site_config().compaction.model if job.helper(site_config().compaction.model) else ""
    config = {"compaction": {"model": summariser}}
    session_id = session_store.create_session(owner=owner, model=alias, config=config)

    def lived(done: int) -> None:
        # A site's worker looks for facts in what was summarised, beside the turns.
        for reflection_id, _ in forgotten_reflections(timezone.now() + timedelta(days=1)):
            reflect(reflection_id=reflection_id)
        tell(turns, done)

    live(session_id, conversation.transcript, lived)
    while fill_or_log():
        pass
    return session_id


def _tell(say: Say, where: str, unit: str, total: int, done: int) -> None:
    say(progress=[where, unit, done, total])


# Replays a real conversation turn by turn: the session grows and is compacted as if the models answered just now.


@dataclass(slots=True, kw_only=True)
class Life:
    """A session, and the ids that its transcript gives to its messages."""

    session_id: str
    message_ids: dict[str, str] = field(default_factory=dict)
    """External id -> id."""
    files: dict[str, str] = field(default_factory=dict)
    """Path -> id of the file reference that stands for it."""


def live(
    session_id: str,
    transcript: Transcript,
    progress: Progress = lambda done: None,
    before_answer: BeforeAnswer = lambda session_id, question_id: None,
) -> Life:
    """Replay every turn, compacting where a turn would: before a call that does not fit, and by a worker between two steps.

    Files passed to tools become file references where they first appear.
    """
    life = Life(session_id=session_id)
    for done, turn in enumerate(transcript.turns, start=1):
        _live_turn(life, turn, before_answer)
        progress(done)
    return life


def _live_turn(life: Life, lived: TranscriptTurn, before_answer: BeforeAnswer) -> None:
    asked = list(takewhile(lambda message: message.role != "assistant", lived.messages))
    with change(life.session_id) as record:
        turn_id = turn_store.start_turn(record, model="", lease_owner="evaluation", lease_seconds=3_600)
        for message in asked:
            _say(life, record, turn_id, message)
    question = life.message_ids[asked[-1].external_id] if asked else ""
    for message in lived.messages[len(asked) :]:
        _compact_before_answer(life.session_id)
        before_answer(life.session_id, question)
        with change(life.session_id) as record:
            _say(life, record, turn_id, message)
    turn = load_turn(turn_id, session_id=life.session_id)
    state = load_state(life.session_id)
    context = (state, size_of(state))
    finish_turn(turn, TurnEnd(state=TurnState.COMPLETED), step=None, usage=UsageRecord(), context=context)
    if run_id := live_run(life.session_id):
        compact(run_id=run_id)


def _compact_before_answer(session_id: str) -> None:
    """Compact as a turn does before a model call."""
    state = load_state(session_id)
    size = size_of(state)
    if pressure(size.tokens, state.budget) is Pressure.HARD:
        asyncio.run(compact_before_call(session_id, size=size))
    else:
        request_during_turn(state, size)
        if run_id := live_run(session_id):
            compact(run_id=run_id)


def _say(life: Life, record: Change, turn_id: str, message: TranscriptMessage) -> None:
    parts = list(message.parts)
    for path in chain.from_iterable(map(_paths, message.parts)):
        if path not in life.files:
            content_id = hashlib.sha256(path.encode()).hexdigest()
            life.files[path] = store_file_reference(record, content_id=content_id, path=path)
            parts.append(FileRefPart(file_id=life.files[path], path=path))
    life.message_ids[message.external_id] = message_store.append_message(
        record,
        turn_id=turn_id,
        message=Message(role=message.role, parts=tuple(parts), is_summary=message.is_summary),
        parts=prepare_parts(parts),
        external_id=message.external_id,
        end=MessageEnd(outcome="complete"),
    )


def _paths(part: Part) -> list[str]:
    """Return the files passed to a tool."""
    try:
        given = json.loads(part.input) if isinstance(part, ToolPart) else {}
    except (ValueError, RecursionError):
        return []
    path = given.get("file_path") if isinstance(given, dict) else None
    return [path] if isinstance(path, str) and path else []
