"""What the rows say of a session's runs of operators too, to be compared with its replayed ledger."""

from __future__ import annotations

from dataclasses import replace

from agents_app.models import OperatorItem, OperatorRun
from compaction_app import projection
from mnesis_core.operators.values import ItemState
from mnesis_core.replay import Projection

_ENDED = [state.value for state in ItemState if state.is_end]


def load_projection(session_id: str, *, using: str = "default") -> Projection:
    """Everything that can be replayed."""
    runs = OperatorRun.objects.using(using).filter(session_id=session_id)
    ended = OperatorItem.objects.using(using).filter(run__session_id=session_id, state__in=_ENDED)
    states = ended.values_list("run_id", "number", "state").iterator()
    helped = OperatorItem.objects.using(using).filter(run__session_id=session_id).exclude(child_session_id="")
    children = helped.values_list("run_id", "number", "child_session_id").iterator()
    return replace(
        projection.load_projection(session_id, using=using),
        maps=dict(runs.values_list("id", "state")),
        map_items={f"{run_id} {number}": state for run_id, number, state in states},
        map_children={f"{run_id} {number}": child_id for run_id, number, child_id in children},
    )
