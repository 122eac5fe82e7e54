"""Doors for the worker. A task may run twice or late: the rows of the runs say what is to be done."""

from __future__ import annotations

from typing import Any

from agents_app.operators.slots import place
from agents_app.operators.work import work_for_a_slice
from agents_app.schedule import is_cluster_stopping, most_workers, wake_workers


def work(**_later: Any) -> None:
    """Work on operators' runs for a slice of time, unless enough workers of this machine do; then queue again."""
    with place(most_workers()) as is_free:
        is_more = is_free and work_for_a_slice(must_stop=is_cluster_stopping)
    if is_more:
        wake_workers(1)
