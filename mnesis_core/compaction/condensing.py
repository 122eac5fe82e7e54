"""Which summaries to merge next: the oldest neighbours of one depth, so that the DAG grows like a tree."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from mnesis_core.assembly.fitting import whole
from mnesis_core.budget import Pressure, pressure
from mnesis_core.compaction.spans import Situation
from mnesis_core.config import CompactionConfig
from mnesis_core.dag import SummaryEntry, summary_runs
from mnesis_core.file_ids import find_file_ids
from mnesis_core.footers import ManifestName, Named, files_in_footer

FEWEST = 2
"""Summaries that may become one when the context is too full for the configured number."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Condensation:
    """Neighbouring summaries that one condensed summary is to stand for."""

    summaries: tuple[SummaryEntry, ...]
    tokens: int
    """What they take in the context now, by our own estimate."""

    @property
    def first_seq(self) -> int:
        """Of the oldest message they stand for."""
        return self.summaries[0].first_seq

    @property
    def last_seq(self) -> int:
        """Of the newest message they stand for."""
        return self.summaries[-1].last_seq

    @property
    def message_count(self) -> int:
        """How many messages they stand for."""
        return sum(summary.message_count for summary in self.summaries)

    @property
    def depth(self) -> int:
        """Of the summary that is to be made."""
        return 1 + max(summary.depth for summary in self.summaries)

    @property
    def source_ids(self) -> tuple[str, ...]:
        """The summaries' ids."""
        return tuple(summary.id for summary in self.summaries)

    @property
    def named(self) -> Named:
        """Themselves, and every file named in them, by themselves or in a manifest."""
        files: dict[str, None] = {}
        manifests: dict[str, ManifestName] = {}
        for summary in self.summaries:
            footer = files_in_footer(summary.text)
            files.update(dict.fromkeys((*summary.file_ids, *footer.files, *find_file_ids(summary.text))))
            manifests.update({each.id: each for each in footer.manifests})
        return Named(
            summaries=self.source_ids,
            files=tuple(name for name in files if name not in manifests),
            manifests=tuple(manifests.values()),
        )


def choose_condensation(situation: Situation) -> Condensation | None:
    """The summaries to merge next, or ``None`` when they are not what keeps the context too large.

    That is so when summaries alone are above the target, or the context is at the hard threshold. The oldest
    neighbours of the lowest depth come first: at least ``condense_min_fan_in``, from the soft threshold on
    two, at most ``condense_fan_in``, and never the newest summary, so that not all become one. Only at the
    hard threshold may that happen, and depths be mixed: then nothing else helps.
    """
    summaries = [entry for entry in situation.entries if isinstance(entry, SummaryEntry)]
    level = pressure(situation.used, situation.budget)
    is_too_much = _tokens(summaries) * situation.calibration > situation.budget.target
    if not is_too_much and level is not Pressure.HARD:
        return None
    config = situation.config.compaction
    chosen = next(_candidates(summary_runs(situation.entries), level, config), None)
    return Condensation(summaries=tuple(chosen), tokens=_tokens(chosen)) if chosen else None


def _candidates(
    runs: list[list[SummaryEntry]], level: Pressure, config: CompactionConfig
) -> Iterator[list[SummaryEntry]]:
    if level is Pressure.HARD:
        candidates = [*_of_one_depth(runs), *runs]
    else:
        candidates = _of_one_depth([*runs[:-1], runs[-1][:-1]] if runs else [])
    fewest = config.condense_min_fan_in if level is Pressure.NONE else FEWEST
    for run in candidates:
        if len(run) >= fewest:
            yield run[: config.condense_fan_in]


def _of_one_depth(runs: list[list[SummaryEntry]]) -> list[list[SummaryEntry]]:
    same = [list(group) for run in runs for _, group in groupby(run, key=lambda summary: summary.depth)]
    return sorted(same, key=lambda run: run[0].depth)


def _tokens(summaries: Sequence[SummaryEntry]) -> int:
    return sum(whole(summary).tokens for summary in summaries)
