"""Every default with its unit and its reason, and how a site or a session changes them.

``sessions_app.conf`` reads the site's settings into these values. A fraction "of usable" is one of the tokens that the
budget leaves to the context.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, get_type_hints

from mnesis_core.errors import InvalidRequest, gettext_noop


def bounded(default: float, low: float, high: float) -> Any:
    """Return the field of a number with its default and its bounds, both allowed."""
    return field(default=default, metadata={"bounds": (low, high)})


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetConfig:
    # Left free for the work of compaction (seed 000); at most an eighth of what the answer leaves.
    compaction_reserve_tokens: int = bounded(20_000, 0, 1_000_000)
    # The largest share of the window that the answer may reserve, so that small models stay usable.
    reserved_output_share: float = bounded(0.25, 0.01, 0.9)
    # Of usable: above it a compaction is requested after the turn (seed 000).
    soft_threshold_fraction: float = bounded(0.6, 0.1, 0.95)
    # Of usable: compaction goes down to this and no further, so that the newest half of a window stays verbatim.
    target_fraction: float = bounded(0.5, 0.05, 0.9)


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneConfig:
    """The choice of tool outputs that become tombstones. The defaults are those of seed 000."""

    enabled: bool = True
    # The newest outputs up to this stay; at most a quarter of usable.
    protect_tokens: int = bounded(40_000, 0, 1_000_000)
    # Less than this is not worth a change of the prompt's prefix; at most an eighth of usable.
    minimum_tokens: int = bounded(20_000, 0, 1_000_000)
    protect_turns: int = bounded(2, 1, 1_000)
    protected_tools: tuple[str, ...] = ("skill",)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    auto: bool = True
    # The newest steps of the last user turns stay verbatim (seed 000), as many as fit into a share of usable: in a
    # turn that is larger than this, older steps are summarised while it runs.
    protect_turns: int = bounded(2, 2, 1_000)
    protect_fraction: float = bounded(0.25, 0.01, 0.9)
    level2_enabled: bool = True
    # The most that a level 1 summary may have; level 2 gets half (LCM paper 2.3).
    summary_target_tokens: int = bounded(2_000, 64, 20_000)
    # The most that level 3 writes (LCM paper 2.3), except for the names of many merged summaries.
    level3_tokens: int = bounded(512, 64, 512)
    # Of the window: what must be new since the last compaction before a soft one runs again; at most two thirds of the
    # room that it left. Each compaction has a provider read the prompt anew, so they are far apart.
    spacing_fraction: float = bounded(0.3, 0.0, 0.9)
    # The most text that one leaf stands for, so that a long history becomes many leaves; never more than the
    # summarising model reads in one call, and exactly that at 0.
    leaf_chunk_tokens: int = bounded(20_000, 0, 1_000_000)
    # The most summaries that one condensed summary stands for, so that the DAG gets depth; no more than level 3 can name.
    condense_fan_in: int = bounded(8, 2, 20)
    # The fewest of them below the soft threshold: merging two at a time would read everything again and again.
    condense_min_fan_in: int = bounded(4, 2, 20)
    # Of the summarising model's window: longer spans are read in several pieces, never cut.
    input_share: float = bounded(0.6, 0.1, 0.9)
    # The most summaries that one compaction writes (seed 000); the next compaction does what is left.
    max_compaction_rounds: int = bounded(10, 1, 50)
    model: str = ""  # Alias of the model that summarises; empty for the session's own.
    # The share of the names, numbers, dates, identifiers, instructions and decisions of what it stands for that a summary
    # may lose. Above it one more is asked for, with what is missing named, and what stays lost is an alarm; never at 1.
    fidelity_bound: float = bounded(0.3, 0.0, 1.0)
    reflect: bool = True  # After each summary of messages a worker has that model note the facts that they state.
    # For one call to the summarising model; after that level 3 does it.
    model_timeout_seconds: float = bounded(180.0, 0.01, 3_600)
    # For the model calls of one attempt; what is left after that is done at level 3.
    run_timeout_seconds: float = bounded(900.0, 0.01, 86_400)
    # The most that all summaries of a session, or of one person since midnight UTC, may cost, in millionths of the
    # currency unit; 0 for no limit. Above it level 3 does it.
    spend_limit_session_micros: int = bounded(0, 0, 10**15)
    spend_limit_day_micros: int = bounded(0, 0, 10**15)
    # How long a worker may be silent before another one takes its compaction over.
    lease_seconds: float = bounded(120.0, 0.05, 86_400)
    # A compaction whose workers died this often is given up: each attempt may cost a model call.
    max_attempts: int = bounded(5, 1, 100)
    # How long a turn at the hard threshold waits for a compaction that another process runs. After that it asks with
    # what fits.
    wait_seconds: float = bounded(90.0, 0, 3_600)


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievalConfig:
    """Facts that hold and passages of summarised messages, which a prompt has beside its context (seed 004); 0 for none."""

    max_facts: int = bounded(20, 0, 200)
    # Of all facts together; at most an eighth of usable.
    max_fact_tokens: int = bounded(600, 0, 20_000)
    # Of all facts, those that other sessions hold for the person or the organisation; 0 takes none.
    max_held_facts: int = bounded(10, 0, 200)
    max_passages: int = bounded(10, 0, 20)
    # Of all passages together; at most a sixth of usable, and a third of a prompt with as much free room.
    max_tokens: int = bounded(2_000, 0, 20_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnConfig:
    max_steps: int = bounded(500, 1, 10_000)  # Model calls. What a turn may spend is the limit that is meant.
    # Names of the tools that the model is offered.
    tools: tuple[str, ...] = ("lcm_grep", "lcm_describe", "lcm_read", "lcm_expand", "task", "tasks", "calculator")
    # Names of tools that a person is asked about before each call, in addition to those that always ask.
    ask_before: tuple[str, ...] = ()
    read_only: bool = False
    unattended: bool = False  # No person can be asked: tools that ask before each call are not offered.
    doom_loop_threshold: int = bounded(3, 2, 10)  # Identical consecutive tool calls (seed 000).
    # What follows when there are too many: with ``continue`` the model is told and goes on, with ``stop`` the turn ends.
    on_doom_loop: str = "continue"
    # What becomes of a parameter that the model does not take: with ``drop`` the call goes without it, and says so; with
    # ``refuse`` the turn is not started. A response format is asked for in words and checked either way.
    unsupported_parameters: str = "drop"
    lease_seconds: float = bounded(15.0, 0.05, 86_400)
    heartbeat_seconds: float = bounded(0.25, 0.01, 3_600)  # How often leases are renewed and interrupts read.
    tool_timeout_seconds: float = bounded(60.0, 0.01, 86_400)
    # Characters of one tool output that stay in the conversation, about 25,000 tokens (LCM paper: large files). A
    # longer output is kept whole in a file.
    tool_output_inline: int = bounded(100_000, 200, 20_000_000)
    # Characters of one tool output that are kept; a longer one says it was cut.
    tool_output_limit: int = bounded(20_000_000, 1, 20_000_000)
    max_retries: int = bounded(2, 0, 20)  # Of a call that failed before its first token, for errors that may pass.
    retry_base_seconds: float = bounded(0.5, 0, 600)  # Before the first retry; twice as long before each later one.
    # The longest pause before a retry. A provider that asks for a longer one is not asked again: people do not watch a
    # silent turn for longer than this.
    retry_longest_seconds: float = bounded(60.0, 0, 3_600)
    # Turns that one web process runs at a time. Only the site's value counts, as in the next one.
    capacity: int = bounded(200, 1, 1_000_000)
    # Turns of one person that one web process runs at a time. Turns of sub-agents, of operators' runs and those that
    # begin with an inbox message are not counted: each of these has limits of its own.
    most_at_once: int = bounded(100, 1, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationConfig:
    # Sub-agents below one another; together with scope reduction it ends every delegation.
    max_depth: int = bounded(3, 0, 10)
    max_siblings: int = bounded(8, 1, 100)  # Sub-agents of one call of ``tasks``, which run at the same time.
    max_children: int = bounded(32, 0, 1_000)  # Sub-agents that one turn may launch, however many calls it takes.
    # How long a turn waits for one call's sub-agents, waiting for a person included; then they are interrupted.
    timeout_seconds: float = bounded(3_600.0, 0.01, 86_400)
    # What one sub-agent may read by ``lcm_expand``: about ten pages.
    expand_tokens: int = bounded(40_000, 0, 10_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxConfig:
    waiting: int = bounded(100, 0, 10_000)  # Messages that may wait; one more is refused.
    # Of one message, and of all that one turn reads together: about 12,000 tokens.
    message_characters: int = bounded(50_000, 1, 1_000_000)
    # Messages of agents in a row, each an answer to the one before: two agents that thank each other must stop.
    max_hops: int = bounded(16, 0, 1_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    journal_seconds: float = bounded(0.25, 0, 60)
    journal_bytes: int = bounded(2_048, 1, 10_000_000)
    # Pause between two frames to one client, so that fast models cost no frame a token.
    coalesce_seconds: float = bounded(0.03, 0, 10)
    max_answer_characters: int = bounded(8_000_000, 1, 100_000_000)
    # How often a stream checks that its reader still may read: half of the minute within which access must end.
    recheck_seconds: float = bounded(30.0, 0.05, 60)
    # How long a client may leave frames unread before its stream is closed.
    slow_seconds: float = bounded(20.0, 0.1, 600)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """What the web server accepts before it knows who asks. Only the site's values count."""

    # The largest body without a valid API key or session cookie, such as a sign-in form.
    anonymous_bytes: int = bounded(65_536, 4_096, 2**40)
    # How long a body may keep the server waiting, plus the time that its bytes earn at the next value.
    body_seconds: float = bounded(20.0, 0.1, 3_600)
    # The slowest that a body may come in. A telephone on a bad line is faster.
    body_bytes_per_second: int = bounded(500, 1, 10**9)
    # From the opening of a connection, or the first byte of a later request, to the end of the request's headers.
    header_seconds: float = bounded(20.0, 0.1, 3_600)
    # Between two requests: longer than the 60 seconds of most reverse proxies.
    idle_seconds: float = bounded(75.0, 0.1, 86_400)
    # Connections of one address that have sent no whole request; one more closes the oldest of them. 0 for no limit.
    waiting_connections: int = bounded(256, 0, 1_000_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingConfig:
    """The most that may be spent; 0 for no limit. A site knows its models and people, so it has none by default."""

    tokens: int = bounded(0, 0, 10**15)  # Of prompts and answers, summaries included.
    # Millionths of the currency unit. A model without a known price counts as 0, visibly.
    cost_micros: int = bounded(0, 0, 10**15)
    seconds: float = bounded(0.0, 0, 10**12)  # While models are asked and tools run; waiting for people takes none.
    tool_calls: int = bounded(0, 0, 10**15)


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitConfig:
    """What an endpoint accepts, and what may be spent. A session may tighten what its site allows, never loosen it."""

    message_characters: int = bounded(5_000_000, 1, 100_000_000)
    title_characters: int = bounded(200, 1, 200)
    turn: SpendingConfig = field(default_factory=SpendingConfig)  # One turn with the sessions that it launches.
    session: SpendingConfig = field(default_factory=SpendingConfig)  # A session with the sessions that it launched.
    user: SpendingConfig = field(default_factory=SpendingConfig)
    day: SpendingConfig = field(default_factory=SpendingConfig)  # All sessions of one person since midnight UTC.


@dataclass(frozen=True, slots=True, kw_only=True)
class DeletionConfig:
    """Whether people may delete their sessions. Only the site's values count."""

    people_may_delete: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class SharingConfig:
    """Whether people may share their sessions, and with whom. Only the site's values count, also for links that there are."""

    people_may_share: bool = True
    with_anyone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TemporaryConfig:
    """Whether people may begin temporary chats, and when these leave. Only the site's values count."""

    # "off", or "kept": permitted, and kept in the site's record, as every session is.
    chats: str = "off"
    hours: int = bounded(24, 1, 8_760)  # After the last message, until a temporary chat is deleted for its owner.


@dataclass(frozen=True, slots=True, kw_only=True)
class FileConfig:
    # Tokens: a shorter text goes into the conversation whole, other files by reference.
    inline_threshold: int = bounded(10_000, 0, 1_000_000)
    largest_bytes: int = bounded(4_294_967_296, 0, 2**50)
    # Of all files of one person, each content once; 0 for no limit.
    quota_bytes: int = bounded(21_474_836_480, 0, 2**60)
    import_bytes: int = bounded(500_000_000, 0, 2**40)  # Of the files of one import, as they are sent.
    import_unpacked_bytes: int = bounded(2_000_000_000, 0, 2**42)
    wait_seconds: float = bounded(20.0, 0, 600)  # How long a turn waits for the exploration of a file that it is given.
    # Whether pictures and PDFs that a request names by their addresses are fetched, and how long that may take for all of a
    # request. Only the site's values count.
    fetch_addresses: bool = True
    fetch_seconds: float = bounded(30.0, 0.1, 600)
    exploration_seconds: float = bounded(60.0, 0.1, 3_600)
    # Address space: some libraries reserve much more than they use.
    exploration_memory_bytes: int = bounded(2_147_483_648, 268_435_456, 2**40)
    # Alias of the model that describes prose, text and Markdown, ahead of what is counted; empty for none.
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorConfig:
    """Runs over the lines of a file. For limits that all workers share only the site's values count."""

    per_run: int = bounded(16, 1, 10_000)  # Items of one run in flight, over all workers (LCM paper, Appendix C.2).
    per_run_agentic: int = bounded(4, 1, 1_000)  # The same where each item is a sub-agent.
    per_model: int = bounded(64, 1, 100_000)
    per_provider: int = bounded(128, 1, 100_000)  # Items in flight that ask models of the same provider.
    per_owner: int = bounded(64, 1, 100_000)  # Items in flight of one person's runs.
    # Attempts at an item after its first. The run may say otherwise, as in the next three.
    max_retries: int = bounded(2, 0, 20)
    timeout_seconds: float = bounded(120.0, 0.01, 3_600)
    timeout_agentic_seconds: float = bounded(1_800.0, 0.01, 86_400)  # For one turn of a sub-agent.
    max_turns: int = bounded(20, 1, 10_000)  # Model calls of one turn of a sub-agent.
    most_items: int = bounded(1_000_000, 1, 10**9)
    line_bytes: int = bounded(4_000_000, 1, 100_000_000)
    # How long a worker may be silent before another one takes its items over.
    lease_seconds: float = bounded(15.0, 0.05, 86_400)
    # How often leases are renewed, and pauses and cancellations read.
    heartbeat_seconds: float = bounded(1.0, 0.01, 60)
    flush_seconds: float = bounded(0.25, 0, 60)  # How long results gather before they are written together.
    # How long a worker stays with runs before other work of the queue gets its turn.
    slice_seconds: float = bounded(20.0, 0.01, 3_600)
    # Before the first retry of a failed call; twice as long before each later one.
    retry_base_seconds: float = bounded(0.5, 0, 600)
    retry_longest_seconds: float = bounded(60.0, 0, 3_600)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchConfig:
    """Ranked search. Only the site's values count."""

    # Alias of an embedding model that says beside the words how near each message is to a question; empty for words alone.
    embedding_model: str = ""
    # Alias of a reranker (a cross-encoder) that reads the best messages beside the question; empty for none.
    rerank_model: str = ""
    # The reranker's share of the score of a message that it reads.
    rerank_weight: float = bounded(0.5, 0.0, 1.0)
    # How long each of the two may take for a question: a person waits for it. Later the search does without.
    question_seconds: float = bounded(3.0, 0.01, 60)


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInConfig:
    """How often passwords may be tried: ``_tries`` at once, then one every ``_seconds``.

    Only the site's values count. Attempts with the right password are not counted.
    """

    # For one account from one address: people mistype, and then look the password up.
    pair_tries: int = bounded(5, 1, 100_000)
    pair_seconds: float = bounded(60.0, 0.01, 86_400)
    # From one address (IPv6: one network of 64 bits), whatever the account: a whole office may have one address.
    address_tries: int = bounded(30, 1, 100_000)
    address_seconds: float = bounded(10.0, 0.01, 86_400)
    # For one account from all addresses together, except for devices that have signed in to it before.
    account_tries: int = bounded(20, 1, 100_000)
    # 720 a day: an uncommon password of ten characters outlasts its owner.
    account_seconds: float = bounded(120.0, 0.01, 86_400)
    # For one account from a device that has signed in to it before; and for the old password when it is changed.
    device_tries: int = bounded(10, 1, 100_000)
    device_seconds: float = bounded(30.0, 0.01, 86_400)
    # Passwords that wait to be hashed in one web process; one more is refused. A hash takes about a quarter of a second.
    waiting: int = bounded(3, 1, 10_000)


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestConfig:
    """How fast one key or one signed-in person may ask one web process through the API and its sockets.

    Only the site's values count. Pages are not counted.
    """

    per_second: float = bounded(50.0, 0.01, 1_000_000)
    burst: int = bounded(200, 1, 1_000_000)  # Requests at once, after a pause.


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceConfig:
    """Prices of a million tokens in millionths of the currency unit; -1 for what the model's entry says."""

    input: int = bounded(-1, -1, 10**12)
    output: int = bounded(-1, -1, 10**12)
    cache_read: int = bounded(-1, -1, 10**12)
    cache_write: int = bounded(-1, -1, 10**12)
    cache_write_1h: int = bounded(-1, -1, 10**12)


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration. A session may override any value, as in ``{"compaction": {"protect_turns": 4}}``."""

    budget: BudgetConfig = field(default_factory=BudgetConfig)
    prune: PruneConfig = field(default_factory=PruneConfig)
    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    retrieval: RetrievalConfig = field(default_factory=RetrievalConfig)
    turn: TurnConfig = field(default_factory=TurnConfig)
    delegation: DelegationConfig = field(default_factory=DelegationConfig)
    inbox: InboxConfig = field(default_factory=InboxConfig)
    stream: StreamConfig = field(default_factory=StreamConfig)
    web: WebConfig = field(default_factory=WebConfig)
    limits: LimitConfig = field(default_factory=LimitConfig)
    deletion: DeletionConfig = field(default_factory=DeletionConfig)
    sharing: SharingConfig = field(default_factory=SharingConfig)
    temporary: TemporaryConfig = field(default_factory=TemporaryConfig)
    files: FileConfig = field(default_factory=FileConfig)
    operators: OperatorConfig = field(default_factory=OperatorConfig)
    search: SearchConfig = field(default_factory=SearchConfig)
    prices: PriceConfig = field(default_factory=PriceConfig)
    sign_in: SignInConfig = field(default_factory=SignInConfig)
    requests: RequestConfig = field(default_factory=RequestConfig)
    # Aliases of the models that are asked, in this order, when the session's own gives nothing. Empty for those that
    # its entry names; the session's own model alone means none.
    fallbacks: tuple[str, ...] = ()
    # What the model is told before everything else. A session's takes the place of its system prompt, also an empty one;
    # the site's is for sessions that have neither.
    instructions: str = ""
    context_window: int = bounded(0, 0, 10_000_000)  # Tokens; overrides the model's window when above 0.
    max_output_tokens: int = bounded(0, 0, 10_000_000)  # Tokens; overrides the model's longest answer when above 0.
    # What a model is asked with (``mnesis_core.llm.parameters``, which checks it), before what its entry has.
    parameters: dict[str, Any] = field(default_factory=dict)


def _bounds(kind: Any, path: str = "") -> Iterator[tuple[str, tuple[float, float]]]:
    for item in fields(kind):
        if "bounds" in item.metadata:
            yield f"{path}{item.name}", item.metadata["bounds"]
        elif is_dataclass(item.default_factory):
            yield from _bounds(item.default_factory, f"{path}{item.name}.")


BOUNDS = dict(_bounds(Config))
CHOICES = {
    "temporary.chats": ("off", "kept"),
    "turn.on_doom_loop": ("continue", "stop"),
    "turn.unsupported_parameters": ("drop", "refuse"),
}
LONGEST_TEXT = 200  # characters
LONGEST_INSTRUCTIONS = 100_000  # characters
LONGEST_LIST = 100  # values

_types = cache(get_type_hints)  # Each turn asks several times, and hints are slow to read.


def override(config: Config, values: dict[str, Any], *, path: str = "") -> Config:
    """Return a copy of ``config`` with some values replaced.

    :raises InvalidRequest: a name is unknown, a type is wrong or a number is out of its bounds; the message says which
        and what is allowed.
    """
    changed: Config = _override(config, values, path)
    if changed.budget.target_fraction >= changed.budget.soft_threshold_fraction:
        raise InvalidRequest(
            gettext_noop("budget.target_fraction must be below budget.soft_threshold_fraction"), field="budget"
        )
    if changed.compaction.condense_min_fan_in > changed.compaction.condense_fan_in:
        raise InvalidRequest(
            gettext_noop("compaction.condense_min_fan_in must not be above compaction.condense_fan_in"),
            field="compaction",
        )
    return changed


def layered(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """Return the overrides of two layers as one; where both say something, the upper one counts."""
    both = {
        name: layered(below[name], value) if isinstance(value, dict) and isinstance(below.get(name), dict) else value
        for name, value in above.items()
    }
    return below | both


def tightened(values: dict[str, Any], site: TurnConfig) -> dict[str, Any]:
    """Return what somebody else configured of a session, with all that the site asks before now, and no leave to write that it does
    not give: the site may have become stricter since it was said.
    """
    turn = dict(values.get("turn", {}))
    if "ask_before" in turn:
        turn["ask_before"] = [*dict.fromkeys((*turn["ask_before"], *site.ask_before))]
    if site.read_only:
        turn.pop("read_only", None)
    return values | {"turn": turn} if "turn" in values else values


def override_as_stored(config: Config, values: dict[str, Any]) -> Config:
    """Return a copy of ``config`` with those of some stored values replaced that are still valid.

    Neither another version nor a site's changed defaults may make a session unreadable, so the rest is ignored.
    """
    try:
        return override(config, values)
    except InvalidRequest:
        pending, count = list(_single_changes(values)), 0
    while len(pending) != count:  # One change may become valid through another.
        count, changes, pending = len(pending), pending, []
        for change in changes:
            try:
                config = override(config, change)
            except InvalidRequest:
                pending.append(change)
    return config


def _single_changes(values: dict[str, Any]) -> Iterator[dict[str, Any]]:
    for name, value in values.items():
        inner = _single_changes(value) if isinstance(value, dict) else [value]
        yield from ({name: change} for change in inner)


def _override(value: Any, changes: Any, path: str) -> Any:
    if not isinstance(changes, dict):
        raise InvalidRequest(
            gettext_noop("%(name)s must be an object"), {"name": path or "config"}, field=path or "config"
        )
    if not changes:
        return value
    known = _types(value.__class__)
    result: dict[str, Any] = {}
    for name, change in changes.items():
        where = f"{path}.{name}" if path else str(name)
        if name not in known:
            raise InvalidRequest(
                gettext_noop("%(name)s is not a setting; known here: %(names)s"),
                {"name": where, "names": ", ".join(sorted(known))},
                field=where,
            )
        current = getattr(value, name)
        if isinstance(current, dict) and not isinstance(change, dict):
            raise InvalidRequest(gettext_noop("%(name)s must be an object"), {"name": where}, field=where)
        if isinstance(current, dict):
            result[name] = current | change
            continue
        is_section = is_dataclass(current)
        result[name] = _override(current, change, where) if is_section else _check_value(where, known[name], change)
    return replace(value, **result)


def _check_value(where: str, kind: Any, change: Any) -> Any:
    if kind is float and isinstance(change, int) and not isinstance(change, bool):
        change = float(change)
    if kind not in (int, float, str, bool):
        if not isinstance(change, list | tuple) or not all(isinstance(item, str) for item in change):
            raise InvalidRequest(gettext_noop("%(name)s must be a list of strings"), {"name": where}, field=where)
        if len(change) > LONGEST_LIST or any(len(item) > LONGEST_TEXT for item in change):
            raise InvalidRequest(
                gettext_noop("%(where)s may have %(most)s texts of %(longest)s characters, not more"),
                {"where": where, "most": LONGEST_LIST, "longest": LONGEST_TEXT},
                field=where,
            )
        return tuple(change)
    if type(change) is not kind:
        raise InvalidRequest(
            gettext_noop("%(name)s must be %(kind)s, not %(given)s"),
            {"name": where, "kind": kind.__name__, "given": type(change).__name__},
            field=where,
        )
    longest = LONGEST_INSTRUCTIONS if where == "instructions" else LONGEST_TEXT
    if kind is str and len(change) > longest:
        raise InvalidRequest(
            gettext_noop("%(where)s may have %(most)s characters, not %(count)s"),
            {"where": where, "most": longest, "count": len(change)},
            field=where,
        )
    if where in CHOICES and change not in CHOICES[where]:
        raise InvalidRequest(
            gettext_noop("%(where)s must be one of %(choices)s"),
            {"where": where, "choices": ", ".join(CHOICES[where])},
            field=where,
        )
    if kind in (int, float) and not BOUNDS[where][0] <= change <= BOUNDS[where][1]:
        low, high = BOUNDS[where]
        raise InvalidRequest(
            gettext_noop("%(where)s must lie between %(low)s and %(high)s, not %(change)s"),
            {"where": where, "low": low, "high": high, "change": str(change)},
            field=where,
        )
    return change
