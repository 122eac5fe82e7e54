"""``manage.py makemessages -l de``: Django's own, which also takes what the core says to people and the names of tables, and says less of places."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from django.core.management.commands import makemessages

from agents_app.tools.registry import Tool, built_in_tools
from mnesis_core import errors
from mnesis_core.compaction.evaluation.measures import COLUMNS, POLICY_NAMES
from mnesis_core.maps.values import ItemState, RunState
from mnesis_core.network.people import REFUSALS, Role
from mnesis_core.records import TurnState
from mnesis_core.search.observation import FIELDS
from mnesis_core.turns.mcp_servers import HINTS
from mnesis_site.table_names import CONTEXT, OURS, table_names

KEPT = {"no_location": True, "no_wrap": True, "no_obsolete": True}
NOT_OURS = ["tests/*", "benchmarks/*", "clients/*", "docs/*", "data/*", "static/vendor/*"]


def core_texts() -> set[str]:
    """Return what ``mnesis_core`` and the built-in tools say to people: pages translate it as they show it."""
    # Errors have their messages as docstrings.
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.MnesisError)]
    return {
        *(" ".join((kind.__doc__ or "").split()) for kind in kinds),
        *(tool.spec.description.partition("\n")[0] for tool in built_in_tools() if _is_shipped(tool)),
        *(field.meaning for field in FIELDS.values()),
        *(words for pair in HINTS.values() for words in pair),
        *REFUSALS.values(),
        *COLUMNS,
        *POLICY_NAMES.values(),
        *map(str, Role),
        # What a page shows of a turn, a run, an item or a call.
        *map(str, TurnState),
        *map(str, RunState),
        *map(str, ItemState),
        *("turn", "gateway", "summary", "file", "map"),  # purposes of calls
    }


def _is_shipped(tool: Tool) -> bool:
    """Return whether a tool is ours, and not one that a test has registered."""
    return tool.run.__module__.partition(".")[0] in OURS


class Command(makemessages.Command):
    msgmerge_options = ["-q", "--backup=none", "--previous", "--update", "--no-fuzzy-matching"]

    def handle(self, *args: Any, **options: Any) -> None:
        place = Path("_core_texts.py")
        texts = [f"gettext_noop({text!r})\n" for text in sorted(core_texts())]
        names = [f"pgettext({CONTEXT!r}, {name!r})\n" for name in sorted(table_names())]
        place.write_text("".join((*texts, *names)))
        try:
            super().handle(*args, **options | KEPT | {"ignore_patterns": [*options["ignore_patterns"], *NOT_OURS]})
        finally:
            place.unlink()
