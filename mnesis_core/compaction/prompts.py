"""The prompts of compaction: text files with a version, read once."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_FOLDER = Path(__file__).parent.parent / "prompts"
_SHAPE = re.compile(r"version: (\w+)\n\n# System\n\n(.+?)\n\n# User\n\n(.+)", re.DOTALL)
MARKER = "MNESIS-SUMMARISE"
"""In every system text: by it a model, or a gateway, knows what is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryPrompt:
    """One prompt file."""

    version: str
    """Name and version, such as ``level1.1``."""
    system: str
    user: str
    """With ``{{target}}`` and ``{{source}}``."""

    def messages(self, source: str, target: int) -> list[dict[str, Any]]:
        """The two messages of a request; ``source`` is quoted already."""
        before, after = self.user.replace("{{target}}", str(target)).split("{{source}}")
        return [
            {"role": "system", "content": self.system},
            {"role": "user", "content": f"{before}{source}{after}"},
        ]


def read_prompt(name: str) -> SummaryPrompt:
    """The prompt in ``prompts/<name>.md``.

    :raises ValueError: the file does not have the shape of a prompt.
    """
    found = _SHAPE.fullmatch((_FOLDER / f"{name}.md").read_text(encoding="utf-8"))
    if not found or MARKER not in found[2] or found[3].count("{{source}}") != 1:
        raise ValueError(f"prompts/{name}.md is not a prompt")
    return SummaryPrompt(version=f"{name}.{found[1]}", system=found[2], user=found[3].rstrip())


LEVEL1, LEVEL2, CONDENSE = map(read_prompt, ("level1", "level2", "condense"))
