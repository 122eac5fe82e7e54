"""The worker's task. Do not rename it, nor ``compaction_app.compact.compact``: rows of the queue name either."""

from compaction_app.compact import compact

__all__ = ["compact"]
