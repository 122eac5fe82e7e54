"""The worker's task. Do not rename it: rows of the queue name it."""

from compaction_app.compact import compact

__all__ = ["compact"]
