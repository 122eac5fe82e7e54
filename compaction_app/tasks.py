"""The worker's tasks. Do not rename them, nor ``compaction_app.compact.compact``: rows of the queue name them."""

from compaction_app.compact import compact
from compaction_app.facts.reflect import reflect
from compaction_app.lineage.claims import align

__all__ = ["align", "compact", "reflect"]
