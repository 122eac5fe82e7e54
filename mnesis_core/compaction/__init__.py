"""Compaction's decisions: what to summarise next, and a summary that is proven useful.

``choose_span`` or ``choose_condensation`` -> ``transcript_pieces`` or ``summary_pieces`` -> ``summarise``.
Nothing here writes: the story that swaps the result into the context is ``compaction_app.compact``.
"""

from __future__ import annotations

from mnesis_core.compaction.excerpt import Quotable, excerpt, message_quotables, summary_quotables
from mnesis_core.compaction.judging import judge
from mnesis_core.compaction.spans import Condensation, Span, choose_condensation, choose_span
from mnesis_core.compaction.summarise import SummaryResult, Try, summarise
from mnesis_core.compaction.transcript import piece_limit, summary_pieces, transcript_pieces

__all__ = [
    "Condensation",
    "Quotable",
    "Span",
    "SummaryResult",
    "Try",
    "choose_condensation",
    "choose_span",
    "excerpt",
    "judge",
    "message_quotables",
    "piece_limit",
    "summarise",
    "summary_pieces",
    "summary_quotables",
    "transcript_pieces",
]
