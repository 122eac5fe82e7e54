"""Story: what a file holds is found out by a worker, once for all files of the same content, and written down.

Where the session names a model for it, that model describes prose, in front of what was counted.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from files_app.contents import on_disk
from files_app.prose import AlreadyAsked, Describer, Description, describe, describer_of, is_being_asked
from files_app.queries import find_exploration, load_file_reference
from files_app.store import finish_exploration
from mnesis_core.errors import FileContentNotFound
from mnesis_core.exploration.alone import ExplorationLimits, explore_alone
from mnesis_core.exploration.detection import BY_NAME
from mnesis_core.record import FileReference
from sessions_app.conf import site_config
from sessions_app.ledger import change

TASK = "files_app.tasks.explore"


def explore_file(file_id: str, *, owner_id: int) -> FileReference:
    """Explore a file that was not, and write what was found; whatever it is, there is a result.

    It is returned unexplored while somebody else asks a model about it.

    :raises FileReferenceNotFoundError: there is no such file.
    """
    file = load_file_reference(file_id, owner_id=owner_id)
    if file.is_explored or is_being_asked(file):
        return file
    with suppress(AlreadyAsked):
        described, exploration = _explored(file, describer_of(file))
        with change(file.session_id) as record:
            if described.ending is not None:
                described.ending.write(record)
            finish_exploration(record, file.id, summary=described.summary, exploration=exploration)
    return load_file_reference(file_id, owner_id=owner_id)


def _explored(file: FileReference, describer: Describer | None) -> tuple[Description, dict[str, Any]]:
    if describer is not None and (same := _known(file, describer)):
        summary, exploration = same
        # The call is another file's, which may be somebody else's.
        return Description(summary=summary, note=None), exploration | {
            "prose": exploration["prose"] | {"call_id": None}
        }
    summary, exploration = _known(file) or _found(file)
    described = Description(summary=summary, note=None)
    if describer is not None and not exploration.get("problem"):
        described = describe(file, summary, describer)
    return described, exploration | ({} if described.note is None else {"prose": described.note})


def _known(file: FileReference, describer: Describer | None = None) -> tuple[str, dict[str, Any]] | None:
    kind = BY_NAME.get(file.file_type)
    if kind is None:
        return None
    model, prompt = ("", "") if describer is None else (describer.alias, describer.prompt_version)
    same = find_exploration(
        file.content_id, file_type=kind.name, explorer=kind.explorer, model=model, prompt_version=prompt
    )
    return None if same is None or same.exploration is None else (same.exploration_summary, same.exploration)


def _found(file: FileReference) -> tuple[str, dict[str, Any]]:
    try:
        with on_disk(file.content_id) as place:
            config = site_config().files
            limits = ExplorationLimits(seconds=config.exploration_seconds, memory_bytes=config.exploration_memory_bytes)
            explored = explore_alone(place, file.path, limits=limits)
    except FileContentNotFound as error:
        return "", {
            "explorer": "none-1",
            "covered": "nothing",
            "problem": error.message,
            "seconds": 0.0,
            "peak_bytes": 0,
        }
    found = explored.exploration
    return found.summary, {
        "explorer": found.explorer,
        "kind": found.kind,
        "covered": found.covered,
        "problem": found.problem,
        "seconds": round(explored.seconds, 3),
        "peak_bytes": explored.peak_bytes,
    }
