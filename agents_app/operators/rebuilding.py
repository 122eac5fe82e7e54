"""Story: what a model was sent for one item, made again from the run, the item and the tries before (decision 5)."""

from __future__ import annotations

from typing import Any

from agents_app.queries import load_item, load_run, tries_of_item
from files_app.queries import load_file_reference, read_of_session
from mnesis_core.assembly.manifest import read_manifest
from mnesis_core.operators.input_lines import read_item
from mnesis_core.operators.prompts import map_payload
from mnesis_core.operators.wording import FIRST, wording_of
from mnesis_core.record import CallRecord


def rebuild_map_payload(call: CallRecord) -> tuple[dict[str, Any], list[str]]:
    """The payload of a question about an item; see ``compaction_app.rebuilding``.

    :raises ValueError: the manifest names no item, or a prompt of which nobody knows the words.
    :raises NotFound: it names something that is not there, or the input's content is gone.
    """
    rows = [row for row in read_manifest(call.manifest) if row["kind"] == "map"]
    if len(rows) != 1:
        raise ValueError("the manifest names no item")
    run = load_run(rows[0]["run_id"], session_id=call.session_id)
    item = load_item(run.id, rows[0]["item"])
    tries = [one for one in tries_of_item(run.id, item.number) if one.number < rows[0]["attempt"]]
    file = load_file_reference(run.input_file_id, session_id=call.session_id)
    line = read_of_session(call.session_id, file.content_id, item.offset, item.length)
    wording = wording_of(rows[0].get("prompt", FIRST.version))
    return map_payload(run.spec, read_item(line), tries, wording=wording), []
