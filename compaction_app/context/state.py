"""The active context of a session, now or as of any event, as a payload and as numbers; and what past calls were sent.

A context is two reads whatever the history: its items with their messages and parts, and the summaries among them; and
a few for what stands beside these: the user's last questions, and the refill of the last compaction. The
payload of a past call is made again from the record and compared with its digest (decision 5), or with another call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import asdict, dataclass, replace
from functools import partial
from math import ceil
from typing import Any

from django.utils import timezone

from compaction_app.context.refills import load_refill
from compaction_app.queries import (
    load_drafts,
    load_facts,
    load_preview_entries,
    load_standing_facts,
    load_summary_entries,
)
from mnesis_core.compaction.requests import SummaryPrompt, parse_prompt, rebuild_file_question, rebuild_question
from mnesis_core.compaction.selection import Situation, choose_pinned
from mnesis_core.compaction.summarise import draft_text
from mnesis_core.compaction.transcript import piece_limit
from mnesis_core.config import Config
from mnesis_core.context.additions import Passages, PromptFacts, choose_facts, size_of_facts
from mnesis_core.context.assembly import LARGEST_FACTS, assemble, rebuild, without_opaque
from mnesis_core.context.branches import LINE, Path
from mnesis_core.context.continuation import LastCall, SentPrompt
from mnesis_core.context.entries import (
    BESIDE,
    Assembled,
    ContextEntry,
    ContextRows,
    MessageEntry,
    Picture,
    Row,
    SummaryEntry,
    in_order,
    read_manifest,
)
from mnesis_core.context.fitting import Budget, Pressure, Size, make_budget, pressure, pressure_between, whole
from mnesis_core.context.manifests import (
    branch_of,
    entries_before,
    fold_manifest,
    is_folded,
    outlines_of,
    unfold_manifest,
)
from mnesis_core.context.pictures import SHOWN_KINDS, picture_files
from mnesis_core.errors import NotFound
from mnesis_core.facts import FactRecord, without_contradictions
from mnesis_core.files.pictures import MOST_AUDIO_BYTES, MOST_PDF_BYTES, rule_for
from mnesis_core.llm.caching import with_marks
from mnesis_core.llm.interface import ModelSpec, ToolSpec, read_tools, spec_as_said, spec_in_place, spec_in_session
from mnesis_core.llm.parameters import merge_asked, read_stored
from mnesis_core.llm.tokens import Calibration, calibration_after
from mnesis_core.messages import Message, StoredMessage, StoredPart
from mnesis_core.providers.litellm_ import kinds_shown, takes_pictures_in_results
from mnesis_core.providers.litellm_parameters import TakesBack, takes_back
from mnesis_core.providers.rendering import GIVERS, IN_RESULTS, answers_after_other_prompts, digest, render, with_data
from mnesis_core.records import GATEWAY, CallRecord, SessionRecord, record_of
from mnesis_core.text import nests_within
from mnesis_core.turns.gateway import body_digest
from sessions_app.conf import get_spec_to_read, session_config
from sessions_app.record import context_queries, file_port, message_queries, session_queries, turn_queries
from sessions_app.record.branch_queries import load_path, path_in
from sessions_app.record.project_store import prompt_of

# To measure a context, as many of the newest messages are read as would fill the window with this many tokens each, and
# then four times as many while they do not fill it.
USUAL_TOKENS = 50
FEWEST_READ = 200
READ_MORE = 4
_NAMING = ("message", "pinned")  # rows that show one message
# Names of a call's texts beside its context: the schema of its answer, and what was wrong with the answer before.
FORMAT, CORRECTION = "response_format", "correction"
DEEPEST_SHOWN = (
    100  # objects and lists inside each other in a request through the gateway; a deeper one is shown as its text alone
)
Payload = tuple[dict[str, Any], list[str]]  # a payload, and what of it was not kept, in words


@dataclass(frozen=True, slots=True, kw_only=True)
class BuiltContext:
    assembled: Assembled
    payload: dict[str, Any]
    digest: str
    budget: Budget
    pressure: Pressure
    estimated_tokens: int  # the size of the payload, uncalibrated, to be compared with what the provider reports
    whole_tokens: int  # the size of everything in the context, tools included, left out or not; uncalibrated
    stored_manifest: list[Row]  # folded, as a call keeps it
    calibration: Calibration
    context_seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """The size of the context and of its parts, in tokens."""

    used_tokens: int  # what a prompt takes, or where something has to be left out, what all of it would take
    context_tokens: int  # the same without a refill, which gives way: the number that the thresholds are for
    usable_tokens: int
    soft_tokens: int
    hard_tokens: int
    window: int
    window_source: str  # configured, litellm or default, which is assumed
    breakdown: dict[str, int]
    source: str  # what corrects the estimate: a value of calibration.CountSource
    ratio: float  # the estimate is our own count times this
    samples: int  # how many reports of the provider the ratio comes from
    error: float | None  # by how much the corrected estimates missed those reports, as a share; None without reports

    @property
    def pressure(self) -> Pressure:
        return pressure_between(self.context_tokens, soft=self.soft_tokens, hard=self.hard_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The values that a context is assembled and measured with. A turn loads them once."""

    session: SessionRecord
    system_prompt: str  # as it is now, with what the turn adds
    spec: ModelSpec
    config: Config
    budget: Budget
    calibration: Calibration
    tool_tokens: int
    last_call: LastCall | None  # None where no turn has called a model before

    @property
    def has_calls(self) -> bool:
        return self.last_call is not None

    @property
    def takes_back(self) -> TakesBack:
        asked = merge_asked(self.spec.parameters, read_stored(self.config.parameters))
        return takes_back(self.spec, asked.effort, asked.provider_tools)


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextState(Frame):
    entries: list[ContextEntry]
    context_seq: int
    pinned: Sequence[StoredMessage] = ()  # what the user asked for and a summary stands for
    refill: Sequence[StoredMessage] = ()  # what an automatic compaction left room for
    refill_room: int = 0  # tokens for it, by our own estimate
    facts: PromptFacts | None = None
    pictures: Mapping[str, Picture] | None = None  # by the ids of their files; none where the model takes none
    branch: int = 0  # whose context it is
    sent: SentPrompt | None = None  # with which the next prompt begins, where it can
    # The size of older messages that are not among the entries, since nothing of them can fit; uncalibrated.
    unread_tokens: int = 0

    def assemble(
        self, tools: Sequence[ToolSpec] = (), *, back: TakesBack | None = None, passages: Passages | None = None
    ) -> Assembled:
        """:param back: what goes back to the model; by default what its parameters without a turn's own say."""
        return assemble(
            self.entries,
            system_prompt=self.system_prompt,
            tools=tools,
            budget=self.budget,
            calibration=self.calibration.ratio,
            provider=(self.takes_back if back is None else back).provider,
            pinned=self.pinned,
            facts=self.facts,
            passages=passages,
            refill=self.refill,
            refill_room=self.refill_room,
            pictures=self.pictures,
            picture_bytes=rule_for(self.spec.litellm_model).together,
            sent=self.sent,
        )

    def build(
        self,
        tools: Sequence[ToolSpec] = (),
        *,
        format: str = "openai_chat",
        back: TakesBack | None = None,
        passages: Passages | None = None,
    ) -> BuiltContext:
        if back is None:
            back = TakesBack(provider=GIVERS[format]) if format in GIVERS else self.takes_back
        assembled = self.assemble(tools, back=back, passages=passages)
        in_results = format == "openai_chat" and takes_pictures_in_results(self.spec.litellm_model)
        if back.is_bound:
            moved = answers_after_other_prompts(
                with_data(assembled, _reader_of(self.session.id), in_results=in_results), back.tools
            )
            assembled = without_opaque(assembled, moved, calibration=self.calibration.ratio)
        payload = render(with_data(assembled, _reader_of(self.session.id), in_results=in_results), provider=format)
        return BuiltContext(
            assembled=assembled,
            payload=payload,
            digest=digest(payload),
            budget=self.budget,
            pressure=pressure(assembled.wanted_tokens, self.budget),
            estimated_tokens=int(assembled.used_tokens / self.calibration.ratio),
            whole_tokens=int(assembled.wanted_tokens / self.calibration.ratio),
            stored_manifest=fold_manifest(assembled.manifest, self.entries, branch=self.branch),
            calibration=self.calibration,
            context_seq=self.context_seq,
        )

    def summariser(self) -> ModelSpec:
        alias = self.config.compaction.model
        return get_spec_to_read(alias) if alias and alias != self.session.model else self.spec

    def priced(self, asked: ModelSpec) -> ModelSpec:
        """Return a model with the prices that count here: the session's own prices are those of its own model."""
        return spec_in_session(asked, self.config) if asked.alias == self.session.model else asked

    def situation(
        self,
        *,
        used: int,
        running_turn_id: str | None = None,
        everything: bool = False,
        turn_ids: Sequence[str] = (),
    ) -> Situation:
        """Return what a round of compaction decides on; ``used`` is the size of the whole context in tokens."""
        return Situation(
            entries=self.entries,
            config=self.config,
            budget=self.budget,
            used=used,
            reads=piece_limit(self.summariser(), self.config),
            calibration=self.calibration.ratio,
            running_turn_id=running_turn_id,
            everything=everything,
            turn_ids=turn_ids,
        )


def load_frame(session_id: str, *, model: str | None = None) -> Frame:
    """Return the session, its model and how that counts; or those of another ``model``, which is asked in its place.

    :raises SessionNotFoundError: there is no such session.
    """
    session = session_queries.load_session(session_id)
    config = session_config(session.config)
    is_own = model is None or model == session.model
    spec = spec_in_session(get_spec_to_read(session.model), config)
    if model is not None and not is_own:
        spec = spec_in_place(get_spec_to_read(model), config)
    newest = context_queries.newest_call(session_id)
    measure, last_call = newest or (None, None)
    calibration = calibration_after(
        measure, model=spec.alias, shared_ratio=spec.shared_ratio, window=spec.context_window
    )
    return Frame(
        session=session,
        system_prompt=prompt_of(session),
        spec=spec_as_said(spec, calibration.window),
        config=config,
        budget=make_budget(spec, config, window_said=calibration.window),
        calibration=calibration,
        # The tools belong to the turn; the newest call tells what they took.
        tool_tokens=measure.tool_tokens if measure else 0,
        last_call=last_call,
    )


def load_state(session_id: str, *, at: int | None = None, branch: int | None = None) -> ContextState:
    """:raises SessionNotFoundError: there is no such session.
    :raises BranchNotFoundError: it has no such branch.
    """
    return read_state(load_frame(session_id), at=at, branch=branch)


def read_state(
    frame: Frame, *, at: int | None = None, branch: int | None = None, makes_pictures: bool = False
) -> ContextState:
    """Read the context of a session that is loaded, now or as of event ``at``: two queries, whatever the history,
    and up to four more for what stands beside its summaries.

    :param branch: whose context; by default that of the branch that is chosen, or was then
    :param makes_pictures: whether to make the renditions of pictures that are missing, which may take seconds each
    :raises BranchNotFoundError: the session has no such branch.
    """
    path = path_in(frame.session, branch, at=at)
    rows = context_queries.load_context(frame.session.id, at=at, path=path)
    return _state_of(frame, rows, at=at, path=path, makes_pictures=makes_pictures)


def read_newest_state(frame: Frame, *, branch: int | None = None, said: Message | None = None) -> ContextState:
    """Read a context to be measured, not sent: all of one that fits, else its end, its summaries and the size of the rest.

    So the texts that are read are bounded by the window, however much was said since the last compaction. In a tree all
    of it is read, by default of the chosen branch.

    :param said: what the user is about to say: the context as it will be then
    :raises BranchNotFoundError: the session has no such branch.
    """
    session_id = frame.session.id
    path = path_in(frame.session, branch)
    if path is not None:
        return _state_of(frame, _with(said, frame, context_queries.load_context(session_id, path=path)), path=path)
    items = max(FEWEST_READ, frame.budget.usable // USUAL_TOKENS)
    state = _state_of(frame, _with(said, frame, context_queries.load_newest_context(session_id, items=items)))
    while state.unread_tokens:
        messages = [entry for entry in state.entries if isinstance(entry, MessageEntry)]
        tokens = sum(whole(entry).tokens for entry in messages) * state.calibration.ratio
        if tokens > state.budget.usable and any(entry.message.role == "user" for entry in messages):
            break  # nothing older than these can come into the prompt, but for summaries
        items *= READ_MORE
        state = _state_of(frame, _with(said, frame, context_queries.load_newest_context(session_id, items=items)))
    return state


def _with(said: Message | None, frame: Frame, rows: ContextRows) -> ContextRows:
    if said is None:
        return rows
    parts = tuple(
        StoredPart(id=f"next_{index}", index=index, part=part, token_estimate=0)
        for index, part in enumerate(said.parts)
    )
    seq, now = frame.session.message_seq + 1, timezone.now()
    message = StoredMessage(id="next", seq=seq, turn_id=None, role=said.role, parts=parts, created_at=now)
    return replace(rows, messages=[*rows.messages, MessageEntry(position=seq, message=message)])


def _state_of(
    frame: Frame,
    rows: ContextRows,
    *,
    at: int | None = None,
    path: Path | None = None,
    makes_pictures: bool = False,
) -> ContextState:
    seq = frame.session.event_seq if rows.event_seq is None else rows.event_seq
    entries, branch = _entries_of(frame.session.id, rows), path.branch if path else 0
    is_read = not rows.unread_tokens  # else the context is too large for anything beside it
    pinned = _load_pinned(frame, entries, path or LINE) if is_read else []
    room, refill, ended_seq = 0, list[StoredMessage](), 0
    if is_read:
        room, refill, ended_seq = load_refill(
            frame.session.id, entries, pinned, branch=branch, at=seq if at is None else at, path=path
        )
    facts, standing = _load_facts(frame, seq if at is None else at, path)
    sent = None
    if is_read and at is None and frame.last_call and ended_seq <= frame.last_call.context_seq:
        sent = _load_sent(frame, frame.last_call, entries, [*pinned, *refill], standing, branch=branch)
    beside = [MessageEntry(position=0, message=message) for message in (*pinned, *(sent.messages if sent else ()))]
    return record_of(
        ContextState,
        frame,
        entries=entries,
        pinned=pinned,
        refill=refill,
        refill_room=room,
        facts=facts,
        pictures=_load_pictures(frame, [*entries, *beside], makes=makes_pictures),
        context_seq=seq if at is None else at,
        branch=branch,
        sent=sent,
        unread_tokens=rows.unread_tokens,
    )


def _load_sent(
    frame: Frame,
    last: LastCall,
    entries: Sequence[ContextEntry],
    beside: Sequence[StoredMessage],
    standing: Sequence[FactRecord],
    *,
    branch: int,
) -> SentPrompt | None:
    """Return what the newest call was sent, if it was this model's on this branch and its facts hold; one query at most.

    :param beside: messages that are read already
    """
    try:
        manifest = read_manifest(last.manifest)
        if last.model != frame.spec.alias or branch_of(manifest) != branch:
            return None
        rows = unfold_manifest(manifest, outlines_of(entries_before(manifest, entries)), at=last.context_seq)
    except ValueError:  # It comes from elsewhere, or the context is another one by now.
        return None
    shown = {entry.message.id for entry in entries if isinstance(entry, MessageEntry)}
    named = {line["id"] for row in rows if row["kind"] in BESIDE for line in row.get("lines", (row,))} - shown
    found = {message.id: message for message in beside if message.id in named}
    if missing := sorted(named - found.keys()):
        loaded = message_queries.load_messages_by_ids(missing, session_id=frame.session.id)
        found |= {message.id: message for message in loaded}
    told = [id for row in rows if row["kind"] == "facts" for id in row["ids"]]
    facts = {fact.id: fact for fact in standing}
    if not facts.keys() >= set(told):
        return None
    return SentPrompt(
        rows=rows,
        messages=list(found.values()),
        facts=[facts[id] for id in told],
        new_facts=_choose_facts(frame, [fact for fact in standing if fact.id not in told], [facts[id] for id in told]),
    )


def _load_pictures(frame: Frame, entries: Sequence[ContextEntry], *, makes: bool) -> Mapping[str, Picture] | None:
    """Return the pictures that the model is shown: two queries, and none where there are none or it takes none."""
    file_ids = picture_files(entries, SHOWN_KINDS)
    if not file_ids or not (kinds := kinds_shown(frame.spec)) or not (file_ids := picture_files(entries, kinds)):
        return None
    return file_port.find_pictures(frame.session, file_ids, rule_for(frame.spec.litellm_model), makes=makes)


def _reader_of(session_id: str) -> Callable[[str], bytes]:
    return lambda content_id: file_port.read_content(session_id, content_id, 0, max(MOST_PDF_BYTES, MOST_AUDIO_BYTES))


def _load_facts(frame: Frame, at: int, path: Path | None) -> tuple[PromptFacts | None, list[FactRecord]]:
    """Return the facts of a prompt that is made anew, and all among which they were chosen."""
    most, most_copies = frame.config.retrieval.max_facts, frame.config.retrieval.max_held_facts
    if not (most and _room_for_facts(frame)):
        return None, []
    session = frame.session
    projects = [session.project_id] if session.project_id else None
    facts = load_standing_facts(
        session.id, at=at, path=path, limit=most + most_copies, projects=projects, with_copies=most_copies > 0
    )
    return _choose_facts(frame, facts), without_contradictions(facts)


def _choose_facts(frame: Frame, facts: Sequence[FactRecord], told: Sequence[FactRecord] = ()) -> PromptFacts | None:
    """Return the facts of a prompt that there is room for beside those that it has already."""
    config, taken = frame.config.retrieval, size_of_facts(told)
    return choose_facts(
        facts,
        most=config.max_facts - len(told),
        tokens=_room_for_facts(frame) - taken,
        most_copies=config.max_held_facts - sum(fact.is_copy for fact in told),
    )


def _room_for_facts(frame: Frame) -> int:
    usable = int(frame.budget.usable / frame.calibration.ratio)
    return min(frame.config.retrieval.max_fact_tokens, usable // LARGEST_FACTS)


def _load_pinned(frame: Frame, entries: Sequence[ContextEntry], path: Path) -> list[StoredMessage]:
    """Return the last questions of the user that a summary stands for; no query where none can be."""
    questions = [entry for entry in entries if isinstance(entry, MessageEntry) and entry.message.role == "user"]
    wanted = frame.config.compaction.protect_turns - len(questions)
    summaries = [entry for entry in entries if isinstance(entry, SummaryEntry)]
    if wanted <= 0 or not summaries:
        return []
    standing = {entry.message.id for entry in questions}
    last_seq = max(entry.message.seq if isinstance(entry, MessageEntry) else entry.last_seq for entry in entries)
    newest = message_queries.newest_of_user(
        frame.session.id, path, last_seq=last_seq, limit=frame.config.compaction.protect_turns
    )
    # What is about to be said is not in the record.
    newest += [entry.message for entry in questions if not newest or entry.message.seq > newest[-1].seq]
    pinned = choose_pinned(newest, frame.config, frame.budget)
    return [message for message in pinned if message.id not in standing]


def _entries_of(session_id: str, rows: ContextRows) -> list[ContextEntry]:
    """:raises SummaryNotFoundError: the context has a summary that is not there."""
    if not rows.summaries:
        return list(rows.messages)
    return in_order([*rows.messages, *load_summary_entries(rows.summaries, session_id=session_id)])


def build_context(session_id: str, *, tools: Sequence[ToolSpec] = (), at: int | None = None) -> BuiltContext:
    return load_state(session_id, at=at).build(tools)


def size_of(state: ContextState) -> Size:
    return Size(tokens=meter_of(state).context_tokens, source=state.calibration.source)


def load_meter(session_id: str, *, branch: int | None = None) -> Meter:
    return meter_of(read_newest_state(load_frame(session_id), branch=branch))


def meter_of(state: ContextState) -> Meter:
    assembled = state.assemble()
    breakdown = asdict(assembled.breakdown) | {"tools": state.tool_tokens}
    breakdown["free"] = max(0, breakdown["free"] - state.tool_tokens)
    context_tokens = assembled.wanted_tokens + ceil(state.unread_tokens * state.calibration.ratio) + state.tool_tokens
    return Meter(
        used_tokens=max(context_tokens, assembled.used_tokens + state.tool_tokens),
        context_tokens=context_tokens,
        usable_tokens=state.budget.usable,
        soft_tokens=state.budget.soft,
        hard_tokens=state.budget.hard,
        window=state.budget.window,
        window_source=state.spec.context_window_source.value,
        breakdown=breakdown,
        **state.calibration.as_dict(),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RebuiltPayload:
    payload: dict[str, Any] | None  # None when the record does not give one
    digest: str  # the digest of this payload; empty without one
    stored_digest: str
    problems: tuple[str, ...]  # what is missing or differs, in words; empty when the two digests are the same
    body: str | None = None  # of a call through the gateway: exactly what was sent, of which the digest is

    @property
    def digest_matches(self) -> bool:
        return self.digest == self.stored_digest


@dataclass(frozen=True, slots=True, kw_only=True)
class PromptSources:
    manifest: list[Row]
    entries: list[ContextEntry]
    system_prompt: str
    tools: Sequence[ToolSpec]
    facts: Sequence[FactRecord]
    beside: Mapping[str, str]  # what it was sent beside the context, by ``FORMAT`` and ``CORRECTION``
    problems: list[str]  # what was not kept, in words


def rebuild_payload(call: CallRecord, *, sources: PromptSources | None = None) -> RebuiltPayload:
    """Return the payload of a call, whatever was said, pruned, summarised or redescribed since. Never fails.

    ``sources`` are those of the call's prompt, if they were read before.
    """
    try:
        if call.purpose == GATEWAY:
            return _passed_on(call)
        rebuild_it = _PAYLOADS.get(call.purpose)
        if rebuild_it:
            payload, problems = rebuild_it(call)
        else:
            found = sources or load_sources(call)
            prompt = rebuild(
                found.manifest,
                found.entries,
                system_prompt=found.system_prompt,
                tools=found.tools,
                facts=found.facts,
            )
            in_results = call.parameters.get(IN_RESULTS) is True
            payload = render(with_data(prompt, _reader_of(call.session_id), in_results=in_results))
            problems = found.problems
        payload = with_marks(_with_parameters(call, payload), call.parameters.get("cache"))
    except ValueError as error:
        return RebuiltPayload(payload=None, digest="", stored_digest=call.digest, problems=(str(error),))
    except NotFound as error:
        missing = " ".join([error.message, *map(str, error.details.values())])
        return RebuiltPayload(payload=None, digest="", stored_digest=call.digest, problems=(missing,))
    rebuilt_digest = digest(payload)
    if rebuilt_digest == call.digest:
        problems = []
    elif not problems:
        problems = ["everything it names is there, and yet it reads differently: the rules of rendering have changed"]
    return RebuiltPayload(payload=payload, digest=rebuilt_digest, stored_digest=call.digest, problems=tuple(problems))


def _passed_on(call: CallRecord) -> RebuiltPayload:
    """:raises ValueError: the bytes were not kept.
    :raises NotFound: a call that they rest on is not there.
    """
    body = turn_queries.load_body(call)
    sent = body_digest(body)
    problems = () if sent == call.digest else ("the bytes that were kept are not those that were sent",)
    try:
        payload = json.loads(body)
    except RecursionError:
        payload = None
    # What could just be read might not be written again, from another depth of Python's stack.
    payload = payload if nests_within(payload, DEEPEST_SHOWN) else None
    return RebuiltPayload(payload=payload, digest=sent, stored_digest=call.digest, problems=problems, body=body)


def _with_parameters(call: CallRecord, payload: dict[str, Any]) -> dict[str, Any]:
    """Return a payload with what its call was sent beside messages and tools."""
    sent, texts = call.parameters.get("sent"), _texts(call)
    whole = payload | (sent if isinstance(sent, dict) else {})
    if given := texts.get(FORMAT):
        whole[FORMAT] = json.loads(given)
    if CORRECTION in texts:
        whole["messages"] = [*whole["messages"], {"role": "user", "content": texts[CORRECTION]}]
    return whole


def load_sources(call: CallRecord) -> PromptSources:
    """:raises ValueError: the manifest is none, or the record has not the context that it describes.
    :raises NotFound: it names something that is not there.
    """
    manifest, session_id = read_manifest(call.manifest), call.session_id
    entries: list[ContextEntry]
    if is_folded(manifest):
        path = load_path(session_id, branch_of(manifest))
        entries = _entries_of(session_id, context_queries.load_context(session_id, at=call.context_seq, path=path))
        manifest = unfold_manifest(manifest, outlines_of(entries), at=call.context_seq)
        standing = {entry.message.id for entry in entries if isinstance(entry, MessageEntry)}
        entries += _entries_named([row for row in manifest if row["kind"] in BESIDE], session_id, without=standing)
    else:
        entries = _entries_named(manifest, session_id)
    texts = _texts(call)
    tools: Sequence[ToolSpec] = ()
    problems = []
    try:
        tools = read_tools(texts["tools"]) if "tools" in texts else ()
    except ValueError as error:
        problems.append(str(error))
    named = {name for row in manifest if row["kind"] == "tools" for name in row["names"]}
    if missing := named - {tool.name for tool in tools}:
        problems.append(f"the descriptions of then are missing of: {', '.join(sorted(missing))}")
    system = texts["system"] if "system" in texts else session_queries.load_session(session_id).system_prompt
    facts = load_facts([id for row in manifest for id in row.get("ids", ())], session_id=session_id)
    return PromptSources(
        manifest=manifest,
        entries=entries,
        system_prompt=system,
        tools=tools,
        facts=facts,
        beside={name: texts[name] for name in (FORMAT, CORRECTION) if name in texts},
        problems=problems,
    )


def _entries_named(manifest: Sequence[Row], session_id: str, *, without: Set[str] = frozenset()) -> list[ContextEntry]:
    """:raises NotFound: one of the messages and summaries that the manifest names is not there."""
    lines = (line for row in manifest for line in row.get("lines", (row,) if row["kind"] in _NAMING else ()))
    message_ids = [id for id in dict.fromkeys(line["id"] for line in lines) if id not in without]
    messages = message_queries.load_messages_by_ids(message_ids, session_id=session_id)
    positions = {row["id"]: row["first_seq"] for row in manifest if row["kind"] == "summary"}
    summaries = load_summary_entries(positions, session_id=session_id)
    return [*(MessageEntry(position=message.seq, message=message) for message in messages), *summaries]


def _summary_payload(call: CallRecord) -> Payload:
    """:raises ValueError: the manifest is none, or the prompt of then was not kept.
    :raises NotFound: it names something that is not there.
    """
    manifest, session_id = read_manifest(call.manifest), call.session_id
    prompt = _prompt(call, manifest)
    positions = {row["id"]: place for place, row in enumerate(manifest) if row["kind"] == "summary"}
    # A preview that was applied since is the summary of the same id, with the same text.
    summaries = load_preview_entries(positions, session_id=session_id) if positions else []
    stored = {id: positions[id] for id in positions.keys() - {entry.id for entry in summaries}}
    summaries += load_summary_entries(stored, session_id=session_id)
    ranges = [span for row in manifest if row["kind"] == "messages" for span in row["ranges"]]
    drafts = load_drafts([row["id"] for row in manifest if row["kind"] == "try"], session_id=session_id)
    payload = rebuild_question(
        manifest,
        prompt,
        messages=load_ranges(session_id, ranges),
        summaries=sorted(summaries, key=lambda entry: entry.position),
        drafts=[text if level == 3 else draft_text(text) for level, text in drafts],
    )
    return payload, []


def _file_payload(call: CallRecord) -> Payload:
    manifest = read_manifest(call.manifest)
    read = partial(file_port.read_content, call.session_id)
    return rebuild_file_question(manifest, _prompt(call, manifest), read=read), []


def _prompt(call: CallRecord, manifest: Sequence[Row]) -> SummaryPrompt:
    """:raises ValueError: the prompt of then was not kept."""
    version = next((row["id"] for row in manifest if row["kind"] == "prompt"), "")
    text = _texts(call).get("prompt")
    if text is None:
        raise ValueError(f"the prompt {version} of then was not kept")
    return parse_prompt(version.partition(".")[0], text)


_PAYLOADS: dict[str, Callable[[CallRecord], Payload]] = {"summary": _summary_payload, "file": _file_payload}


def register_payload(purpose: str, rebuild: Callable[[CallRecord], Payload]) -> None:
    """Let an app above this one rebuild the calls for a purpose; it registers when Django is ready."""
    _PAYLOADS[purpose] = rebuild


def load_ranges(session_id: str, ranges: Iterable[Sequence[int]]) -> list[StoredMessage]:
    """Return the messages of ranges, each given by its first and last; one read for each."""
    found = (
        message_queries.load_messages(session_id, after=first - 1, limit=last - first + 1) for first, last in ranges
    )
    return [message for stretch in found for message in stretch]


def _texts(call: CallRecord) -> dict[str, str]:
    """Return the texts that a prompt has besides messages, by the names that the call gives them."""
    names = call.parameters.get("texts")
    if not isinstance(names, Mapping):
        return {}
    kept = turn_queries.load_prompt_texts(call.session_id, [str(digest) for digest in names.values()])
    return {name: kept[digest] for name, digest in names.items() if digest in kept}
