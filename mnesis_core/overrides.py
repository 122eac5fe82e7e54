"""Settings as a site or a session changes them: what they may be, and a configuration with some of them replaced."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from functools import cache
from typing import Any, get_type_hints

from mnesis_core.config import Config, PriceConfig
from mnesis_core.errors import InvalidRequest

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
"""Smallest and largest value of every number, both allowed."""
CHOICES = {"turn.on_doom_loop": ("continue", "stop")}
"""The texts that a setting may be, where not any."""
LONGEST_TEXT = 200
"""Characters of a value that is a text."""
LONGEST_LIST = 100
"""Values of one that is a list."""


def override(config: Config, values: dict[str, Any], *, path: str = "") -> Config:
    """A copy of ``config`` with some values replaced.

    :raises InvalidRequest: a name is unknown, a type is wrong or a number is out of its bounds; the
        message says which and what is allowed.
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
    """Likewise with values that were accepted once. What is no setting any more, or does not fit by now, is passed over.

    Of another version, or of a site that has other defaults since: neither makes a session unreadable.
    """
    try:
        return override(config, values)
    except InvalidRequest:
        pending, count = list(_single_changes(values)), 0
    while len(pending) != count:  # one may fit after another one
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
    types = _types(value.__class__)
    known = types.keys()
    result: dict[str, Any] = {}
    for name, change in changes.items():
        where = f"{path}.{name}" if path else str(name)
        if name not in known:
            raise InvalidRequest(f"{where} is not a setting; known here: {', '.join(sorted(known))}", field=where)
        current = getattr(value, name)
        result[name] = (
            _override(current, change, where) if is_dataclass(current) else _checked(where, types[name], change)
        )
    return replace(value, **result)


@cache
def _types(kind: type) -> dict[str, Any]:
    """The type of each setting; cached, since each turn asks several times and the hints take long to read."""
    return get_type_hints(kind)


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
