"""Compaction's decisions: what to summarise next, and a summary that is proven useful.

``next_round`` -> ``reading_of`` -> ``summarise``, until ``next_round`` has nothing.
Nothing here writes: the story that swaps the results into the context is ``compaction_app.compact``.
"""

from __future__ import annotations

from mnesis_core.compaction.asking import Try
from mnesis_core.compaction.condensing import Condensation, choose_condensation
from mnesis_core.compaction.excerpt import Quotable, excerpt, message_quotables, summary_quotables
from mnesis_core.compaction.judging import judge
from mnesis_core.compaction.naming import Naming, name_files
from mnesis_core.compaction.prompts import Prompts, read_prompts
from mnesis_core.compaction.rounds import Outcome, kind_of, must_go_on, next_round, outcome, reading_of
from mnesis_core.compaction.spans import Situation, Span, choose_span
from mnesis_core.compaction.summarise import SummaryResult, summarise
from mnesis_core.compaction.transcript import (
    piece_limit,
    pieces_of_message,
    reading_tokens,
    summary_pieces,
    transcript_pieces,
)

__all__ = [
    "Condensation",
    "Naming",
    "Outcome",
    "Prompts",
    "Quotable",
    "Situation",
    "Span",
    "SummaryResult",
    "Try",
    "choose_condensation",
    "choose_span",
    "excerpt",
    "judge",
    "kind_of",
    "message_quotables",
    "must_go_on",
    "name_files",
    "next_round",
    "outcome",
    "piece_limit",
    "pieces_of_message",
    "read_prompts",
    "reading_of",
    "reading_tokens",
    "summarise",
    "summary_pieces",
    "summary_quotables",
    "transcript_pieces",
]
