"""Every default with its unit and its reason, and how a site or a session changes them.

``sessions_app.conf`` reads the site's settings into these values. A fraction "of usable" is one of the tokens that the
budget leaves to the context.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import cache
from typing import Any, get_type_hints

from mnesis_core.errors import InvalidRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class BudgetConfig:
    """How much of a model's window the context may take."""

    # Left free for the work of compaction (seed 000); at most an eighth of what the answer leaves.
    compaction_reserve_tokens: int = 20_000
    # The largest share of the window that the answer may reserve, so that small models stay usable.
    reserved_output_share: float = 0.25
    # Of usable: above it a compaction is requested after the turn (seed 000).
    soft_threshold_fraction: float = 0.6
    # Of usable: compaction goes down to this, so that one is not followed by another at once.
    target_fraction: float = 0.3


@dataclass(frozen=True, slots=True, kw_only=True)
class PruneConfig:
    """Which tool outputs become tombstones. Defaults of seed 000."""

    enabled: bool = True
    protect_tokens: int = 40_000  # The newest outputs up to this stay; at most a quarter of usable.
    # Less than this is not worth a change of the prompt's prefix; at most an eighth of usable.
    minimum_tokens: int = 20_000
    protect_turns: int = 2
    protected_tools: tuple[str, ...] = ("skill",)


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionConfig:
    """When and how spans become summaries."""

    auto: bool = True
    protect_turns: int = 2  # The last user turns stay verbatim whatever the pressure (seed 000).
    level2_enabled: bool = True
    summary_target_tokens: int = 2_000  # The most that a level 1 summary may have; level 2 gets half (LCM paper 2.3).
    # The most that level 3 writes (LCM paper 2.3), except for the names of many merged summaries.
    level3_tokens: int = 512
    spacing_fraction: float = 0.1  # Of usable: what must be new since the last compaction before a soft one runs again.
    # The most text that one leaf stands for, so that a long history becomes many leaves; never more than the
    # summarising model reads in one call, and exactly that at 0.
    leaf_chunk_tokens: int = 20_000
    condense_fan_in: int = 8  # The most summaries that one condensed summary stands for, so that the DAG gets depth.
    # The fewest of them below the soft threshold: merging two at a time would read everything again and again.
    condense_min_fan_in: int = 4
    input_share: float = 0.6  # Of the summarising model's window: longer spans are read in several pieces, never cut.
    # The most summaries that one compaction writes (seed 000); the next compaction does what is left.
    max_compaction_rounds: int = 10
    model: str = ""  # Alias of the model that summarises; empty for the session's own.
    model_timeout_seconds: float = 180.0  # For one call to the summarising model; after that level 3 does it.
    run_timeout_seconds: float = (
        900.0  # For the model calls of one attempt; what is left after that is done at level 3.
    )
    # The most that all summaries of a session, or of one person since midnight UTC, may cost, in millionths of the
    # currency unit; 0 for no limit. Above it level 3 does it.
    spend_limit_session_micros: int = 0
    spend_limit_day_micros: int = 0
    lease_seconds: float = 120.0  # How long a worker may be silent before another one takes its compaction over.
    max_attempts: int = 5  # A compaction whose workers died this often is given up: each attempt may cost a model call.
    # How long a turn at the hard threshold waits for a compaction that another process runs. After that it asks with
    # what fits.
    wait_seconds: float = 90.0


@dataclass(frozen=True, slots=True, kw_only=True)
class TurnConfig:
    """Limits of one turn."""

    max_steps: int = 50  # Model calls.
    # Names of the tools that the model is offered.
    tools: tuple[str, ...] = ("lcm_grep", "lcm_describe", "lcm_read", "lcm_expand", "task", "tasks", "calculator")
    # Names of tools that a person is asked about before each call, in addition to those that always ask.
    ask_before: tuple[str, ...] = ()
    read_only: bool = False  # Offer only the tools that change nothing.
    unattended: bool = False  # No person can be asked: tools that ask before each call are not offered.
    doom_loop_threshold: int = 3  # Identical consecutive tool calls (seed 000).
    # What follows when there are too many: with ``continue`` the model is told and goes on, with ``stop`` the turn ends.
    on_doom_loop: str = "continue"
    lease_seconds: float = 15.0
    heartbeat_seconds: float = 0.25  # How often leases are renewed and interrupts read.
    tool_timeout_seconds: float = 60.0
    # Characters of one tool output that stay in the conversation, about 25,000 tokens (LCM paper: large files). A
    # longer output is kept whole in a file.
    tool_output_inline: int = 100_000
    tool_output_limit: int = 20_000_000  # Characters of one tool output that are kept; a longer one says it was cut.
    max_retries: int = 2  # Of a call that failed before its first token, for errors that may pass.
    retry_base_seconds: float = 0.5  # Before the first retry; twice as long before each later one.
    # The longest pause before a retry. A provider that asks for a longer one is not asked again: people do not watch a
    # silent turn for longer than this.
    retry_longest_seconds: float = 60.0
    capacity: int = 200  # Turns that one web process runs at a time. Only the site's value counts, as in the next one.
    # Turns of one person that one web process runs at a time. Turns of sub-agents, of operators' runs and those that
    # begin with an inbox message are not counted: each of these has limits of its own.
    most_at_once: int = 100


@dataclass(frozen=True, slots=True, kw_only=True)
class DelegationConfig:
    """What a turn may hand to sub-agents."""

    max_depth: int = 3  # Sub-agents below one another; together with scope reduction it ends every delegation.
    max_siblings: int = 8  # Sub-agents of one call of ``tasks``, which run at the same time.
    max_children: int = 32  # Sub-agents that one turn may launch, however many calls it takes.
    # How long a turn waits for one call's sub-agents, waiting for a person included; then they are interrupted.
    timeout_seconds: float = 3_600.0
    expand_tokens: int = 40_000  # What one sub-agent may read by ``lcm_expand``: about ten pages.


@dataclass(frozen=True, slots=True, kw_only=True)
class InboxConfig:
    """What a session in host mode takes from its peers."""

    waiting: int = 100  # Messages that may wait; one more is refused.
    message_characters: int = 50_000  # Of one message, and of all that one turn reads together: about 12,000 tokens.
    # Messages of agents in a row, each an answer to the one before: two agents that thank each other must stop.
    max_hops: int = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamConfig:
    """How a streamed answer is made durable."""

    journal_seconds: float = 0.25
    journal_bytes: int = 2_048
    coalesce_seconds: float = 0.03  # Pause between two frames to one client, so that fast models cost no frame a token.
    max_answer_characters: int = 8_000_000
    # How often a stream checks that its reader still may read: half of the minute within which access must end.
    recheck_seconds: float = 30.0
    slow_seconds: float = 20.0  # How long a client may leave frames unread before its stream is closed.


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    """What the web server accepts before it knows who asks. Only the site's values count."""

    anonymous_bytes: int = 65_536  # The largest body without a valid API key or session cookie, such as a sign-in form.
    body_seconds: float = 20.0  # How long a body may keep the server waiting, plus the time that its bytes earn:
    body_bytes_per_second: int = 500  # the slowest that a body may come in. A telephone on a bad line is faster.
    # From the opening of a connection, or the first byte of a later request, to the end of the request's headers.
    header_seconds: float = 20.0
    idle_seconds: float = 75.0  # Between two requests: longer than the 60 seconds of most reverse proxies.
    # Connections of one address that have sent no whole request; one more closes the oldest of them. 0 for no limit.
    waiting_connections: int = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class SpendingConfig:
    """The most that may be spent; 0 for no limit. A site knows its models and people, so it has none by default."""

    tokens: int = 0  # Of prompts and answers, summaries included.
    cost_micros: int = 0  # Millionths of the currency unit. A model without a known price counts as 0, visibly.
    seconds: float = 0.0  # While models are asked and tools run; waiting for people takes none.
    tool_calls: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class LimitConfig:
    """What an endpoint accepts, and what may be spent. A session may tighten what its site allows, never loosen it."""

    message_characters: int = 5_000_000
    title_characters: int = 200
    turn: SpendingConfig = field(default_factory=SpendingConfig)  # One turn with the sessions that it launches.
    session: SpendingConfig = field(default_factory=SpendingConfig)  # A session with the sessions that it launched.
    user: SpendingConfig = field(default_factory=SpendingConfig)  # All sessions of one person.
    day: SpendingConfig = field(default_factory=SpendingConfig)  # All sessions of one person since midnight UTC.


@dataclass(frozen=True, slots=True, kw_only=True)
class FileConfig:
    """Files beside the conversation (seed 000, large file handling)."""

    inline_threshold: int = 10_000  # Tokens: a shorter text goes into the conversation whole, other files by reference.
    largest_bytes: int = 4_294_967_296
    quota_bytes: int = 21_474_836_480  # Of all files of one person, each content once; 0 for no limit.
    import_bytes: int = 500_000_000  # Of the files of one import, as they are sent.
    import_unpacked_bytes: int = 2_000_000_000
    wait_seconds: float = 20.0  # How long a turn waits for the exploration of a file that it is given.
    exploration_seconds: float = 60.0
    exploration_memory_bytes: int = 2_147_483_648  # Address space: some libraries reserve much more than they use.
    # Alias of the model that describes prose, text and Markdown, ahead of what is counted; empty for none.
    model: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorConfig:
    """Runs over the lines of a file. For limits that all workers share only the site's values count."""

    per_run: int = 16  # Items of one run in flight, over all workers (LCM paper, Appendix C.2).
    per_run_agentic: int = 4  # The same where each item is a sub-agent.
    per_model: int = 64  # Items in flight that ask the same model.
    per_provider: int = 128  # Items in flight that ask models of the same provider.
    per_owner: int = 64  # Items in flight of one person's runs.
    max_retries: int = 2  # Attempts at an item after its first. The run may say otherwise, as in the next three.
    timeout_seconds: float = 120.0  # For one attempt.
    timeout_agentic_seconds: float = 1_800.0  # For one turn of a sub-agent.
    max_turns: int = 20  # Model calls of one turn of a sub-agent.
    most_items: int = 1_000_000
    line_bytes: int = 4_000_000
    lease_seconds: float = 15.0  # How long a worker may be silent before another one takes its items over.
    heartbeat_seconds: float = 1.0  # How often leases are renewed, and pauses and cancellations read.
    flush_seconds: float = 0.25  # How long results gather before they are written together.
    slice_seconds: float = 20.0  # How long a worker stays with runs before other work of the queue gets its turn.
    retry_base_seconds: float = 0.5  # Before the first retry of a failed call; twice as long before each later one.
    retry_longest_seconds: float = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class SignInConfig:
    """How often passwords may be tried: ``_tries`` at once, then one every ``_seconds``.

    Only the site's values count. Attempts with the right password are not counted.
    """

    pair_tries: int = 5  # For one account from one address: people mistype, and then look the password up.
    pair_seconds: float = 60.0
    # From one address (IPv6: one network of 64 bits), whatever the account: a whole office may have one address.
    address_tries: int = 30
    address_seconds: float = 10.0
    # For one account from all addresses together, except for devices that have signed in to it before.
    account_tries: int = 20
    account_seconds: float = 120.0  # 720 a day: an uncommon password of ten characters outlasts its owner.
    # For one account from a device that has signed in to it before; and for the old password when it is changed.
    device_tries: int = 10
    device_seconds: float = 30.0
    # Passwords that wait to be hashed in one web process; one more is refused. A hash takes about a quarter of a second.
    waiting: int = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestConfig:
    """How fast one key or one signed-in person may ask one web process through the API and its sockets.

    Only the site's values count. Pages are not counted.
    """

    per_second: float = 50.0
    burst: int = 200  # Requests at once, after a pause.


@dataclass(frozen=True, slots=True, kw_only=True)
class PriceConfig:
    """Prices of a million tokens in millionths of the currency unit; -1 for what the model's entry says."""

    input: int = -1
    output: int = -1
    cache_read: int = -1
    cache_write: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration. A session may override any value, as in ``{"compaction": {"protect_turns": 4}}``."""

    budget: BudgetConfig = field(default_factory=BudgetConfig)
    prune: PruneConfig = field(default_factory=PruneConfig)
    compaction: CompactionConfig = field(default_factory=CompactionConfig)
    turn: TurnConfig = field(default_factory=TurnConfig)
    delegation: DelegationConfig = field(default_factory=DelegationConfig)
    inbox: InboxConfig = field(default_factory=InboxConfig)
    stream: StreamConfig = field(default_factory=StreamConfig)
    web: WebConfig = field(default_factory=WebConfig)
    limits: LimitConfig = field(default_factory=LimitConfig)
    files: FileConfig = field(default_factory=FileConfig)
    operators: OperatorConfig = field(default_factory=OperatorConfig)
    prices: PriceConfig = field(default_factory=PriceConfig)
    sign_in: SignInConfig = field(default_factory=SignInConfig)
    requests: RequestConfig = field(default_factory=RequestConfig)
    # Aliases of the models that are asked, in this order, when the session's own gives nothing. Empty for those that
    # its entry names; the session's own model alone means none.
    fallbacks: tuple[str, ...] = ()
    context_window: int = 0  # Tokens; overrides the model's window when above 0.
    max_output_tokens: int = 0  # Tokens; overrides the model's longest answer when above 0.


# The smallest and the largest value of every number, both allowed.
BOUNDS: dict[str, tuple[float, float]] = {
    "budget.compaction_reserve_tokens": (0, 1_000_000),
    "budget.reserved_output_share": (0.01, 0.9),
    "budget.soft_threshold_fraction": (0.1, 0.95),
    "budget.target_fraction": (0.05, 0.9),
    "prune.protect_tokens": (0, 1_000_000),
    "prune.minimum_tokens": (0, 1_000_000),
    "prune.protect_turns": (1, 1_000),
    "compaction.protect_turns": (2, 1_000),
    "compaction.summary_target_tokens": (64, 20_000),
    "compaction.level3_tokens": (64, 512),
    "compaction.spacing_fraction": (0.0, 0.9),
    "compaction.leaf_chunk_tokens": (0, 1_000_000),
    # No more than level 3 can name in its 512 tokens.
    "compaction.condense_fan_in": (2, 20),
    "compaction.condense_min_fan_in": (2, 20),
    "compaction.input_share": (0.1, 0.9),
    "compaction.max_compaction_rounds": (1, 50),
    "compaction.model_timeout_seconds": (0.01, 3_600),
    "compaction.run_timeout_seconds": (0.01, 86_400),
    "compaction.spend_limit_session_micros": (0, 10**15),
    "compaction.spend_limit_day_micros": (0, 10**15),
    "compaction.lease_seconds": (0.05, 86_400),
    "compaction.max_attempts": (1, 100),
    "compaction.wait_seconds": (0, 3_600),
    "turn.max_steps": (1, 10_000),
    "turn.doom_loop_threshold": (2, 10),
    "turn.lease_seconds": (0.05, 86_400),
    "turn.heartbeat_seconds": (0.01, 3_600),
    "turn.tool_timeout_seconds": (0.01, 86_400),
    "turn.tool_output_inline": (200, 20_000_000),
    "turn.tool_output_limit": (1, 20_000_000),
    "turn.max_retries": (0, 20),
    "turn.retry_base_seconds": (0, 600),
    "turn.retry_longest_seconds": (0, 3_600),
    "turn.capacity": (1, 1_000_000),
    "turn.most_at_once": (1, 1_000_000),
    "requests.per_second": (0.01, 1_000_000),
    "requests.burst": (1, 1_000_000),
    "delegation.max_depth": (0, 10),
    "delegation.max_siblings": (1, 100),
    "delegation.max_children": (0, 1_000),
    "delegation.timeout_seconds": (0.01, 86_400),
    "delegation.expand_tokens": (0, 10_000_000),
    "inbox.waiting": (0, 10_000),
    "inbox.message_characters": (1, 1_000_000),
    "inbox.max_hops": (0, 1_000),
    "stream.journal_seconds": (0, 60),
    "stream.journal_bytes": (1, 10_000_000),
    "stream.coalesce_seconds": (0, 10),
    "stream.max_answer_characters": (1, 100_000_000),
    "stream.recheck_seconds": (0.05, 60),
    "stream.slow_seconds": (0.1, 600),
    "web.anonymous_bytes": (4_096, 2**40),
    "web.body_seconds": (0.1, 3_600),
    "web.body_bytes_per_second": (1, 10**9),
    "web.header_seconds": (0.1, 3_600),
    "web.idle_seconds": (0.1, 86_400),
    "web.waiting_connections": (0, 1_000_000),
    "limits.message_characters": (1, 100_000_000),
    "limits.title_characters": (1, 200),
    **{
        f"limits.{scope}.{measure}": (0, 10**12 if measure == "seconds" else 10**15)
        for scope in ("turn", "session", "user", "day")
        for measure in ("tokens", "cost_micros", "seconds", "tool_calls")
    },
    "files.inline_threshold": (0, 1_000_000),
    "files.largest_bytes": (0, 2**50),
    "files.quota_bytes": (0, 2**60),
    "files.import_bytes": (0, 2**40),
    "files.import_unpacked_bytes": (0, 2**42),
    "files.wait_seconds": (0, 600),
    "files.exploration_seconds": (0.1, 3_600),
    "files.exploration_memory_bytes": (268_435_456, 2**40),
    "operators.per_run": (1, 10_000),
    "operators.per_run_agentic": (1, 1_000),
    "operators.per_model": (1, 100_000),
    "operators.per_provider": (1, 100_000),
    "operators.per_owner": (1, 100_000),
    "operators.max_retries": (0, 20),
    "operators.timeout_seconds": (0.01, 3_600),
    "operators.timeout_agentic_seconds": (0.01, 86_400),
    "operators.max_turns": (1, 10_000),
    "operators.most_items": (1, 10**9),
    "operators.line_bytes": (1, 100_000_000),
    "operators.lease_seconds": (0.05, 86_400),
    "operators.heartbeat_seconds": (0.01, 60),
    "operators.flush_seconds": (0, 60),
    "operators.slice_seconds": (0.01, 3_600),
    "operators.retry_base_seconds": (0, 600),
    "operators.retry_longest_seconds": (0, 3_600),
    **{f"sign_in.{bucket}_tries": (1, 100_000) for bucket in ("pair", "address", "account", "device")},
    **{f"sign_in.{bucket}_seconds": (0.01, 86_400) for bucket in ("pair", "address", "account", "device")},
    "sign_in.waiting": (1, 10_000),
    "context_window": (0, 10_000_000),
    "max_output_tokens": (0, 10_000_000),
    **{f"prices.{item.name}": (-1, 10**12) for item in fields(PriceConfig)},
}
CHOICES = {"turn.on_doom_loop": ("continue", "stop")}
LONGEST_TEXT = 200  # characters
LONGEST_LIST = 100  # values


# Each turn asks several times, and hints are slow to read.
_types = cache(get_type_hints)


def override(config: Config, values: dict[str, Any], *, path: str = "") -> Config:
    """Return a copy of ``config`` with some values replaced.

    :raises InvalidRequest: a name is unknown, a type is wrong or a number is out of its bounds; the message says which
        and what is allowed.
    """
    changed: Config = _override(config, values, path)
    if changed.budget.target_fraction >= changed.budget.soft_threshold_fraction:
        raise InvalidRequest("budget.target_fraction must be below budget.soft_threshold_fraction", field="budget")
    if changed.compaction.condense_min_fan_in > changed.compaction.condense_fan_in:
        raise InvalidRequest(
            "compaction.condense_min_fan_in must not be above compaction.condense_fan_in", field="compaction"
        )
    return changed


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
        raise InvalidRequest(f"{path or 'config'} must be an object", field=path or "config")
    if not changes:
        return value
    known = _types(value.__class__)
    result: dict[str, Any] = {}
    for name, change in changes.items():
        where = f"{path}.{name}" if path else str(name)
        if name not in known:
            raise InvalidRequest(f"{where} is not a setting; known here: {', '.join(sorted(known))}", field=where)
        current = getattr(value, name)
        result[name] = (
            _override(current, change, where) if is_dataclass(current) else _checked(where, known[name], change)
        )
    return replace(value, **result)


def _checked(where: str, kind: Any, change: Any) -> Any:
    if kind is float and isinstance(change, int) and not isinstance(change, bool):
        change = float(change)
    if kind not in (int, float, str, bool):
        return _checked_list(where, change)
    if type(change) is not kind:
        raise InvalidRequest(f"{where} must be {kind.__name__}, not {type(change).__name__}", field=where)
    if kind is str and len(change) > LONGEST_TEXT:
        raise InvalidRequest(f"{where} may have {LONGEST_TEXT} characters, not {len(change):,}", field=where)
    if where in CHOICES and change not in CHOICES[where]:
        raise InvalidRequest(f"{where} must be one of {', '.join(CHOICES[where])}", field=where)
    if kind in (int, float) and not BOUNDS[where][0] <= change <= BOUNDS[where][1]:
        low, high = BOUNDS[where]
        raise InvalidRequest(f"{where} must lie between {low:,} and {high:,}, not {change}", field=where)
    return change


def _checked_list(where: str, change: Any) -> tuple[str, ...]:
    if not isinstance(change, list | tuple) or not all(isinstance(item, str) for item in change):
        raise InvalidRequest(f"{where} must be a list of strings", field=where)
    if len(change) > LONGEST_LIST or any(len(item) > LONGEST_TEXT for item in change):
        allowed = f"{LONGEST_LIST} texts of {LONGEST_TEXT} characters"
        raise InvalidRequest(f"{where} may have {allowed}, not more", field=where)
    return tuple(change)
