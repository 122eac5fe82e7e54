"""The prompts of summaries: text files with a version. A site may have its own in place of any of them."""

from __future__ import annotations

import re
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

SHIPPED_FOLDER = Path(__file__).parent.parent / "prompts"
_SHAPE = re.compile(r"version: ([\w.-]{1,16})\n\n# System\n\n(.+?)\n\n# User\n\n(.+)", re.DOTALL)
MARKER = "MNESIS-SUMMARISE"
"""In every system text: by it a model, or a gateway, knows what is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SummaryPrompt:
    """One prompt file."""

    version: str
    """Name and version, such as ``level1.1``."""
    text: str
    """The whole file."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompts:
    """One for each level that asks a model, of messages and of summaries, and one for files; each is a file of its name."""

    level1: SummaryPrompt
    level2: SummaryPrompt
    condense: SummaryPrompt
    condense2: SummaryPrompt
    prose: SummaryPrompt


def read_prompt(path: Path) -> SummaryPrompt:
    """The prompt in a file.

    :raises OSError: the file cannot be read.
    :raises ValueError: it is not UTF-8, or does not have the shape of a prompt.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ValueError(f"{path} is not UTF-8") from error
    return parse_prompt(path.stem, text, where=str(path))


def parse_prompt(name: str, text: str, *, where: str = "the text") -> SummaryPrompt:
    """The prompt of a file's text, which may be one that was kept with a call of an older version.

    :raises ValueError: it does not have the shape of a prompt.
    """
    found = _SHAPE.fullmatch(text)
    if not found or MARKER not in found[2] or found[3].count("{{source}}") != 1 or "{{target}}" not in found[3]:
        raise ValueError(
            f"{where} is not a prompt: it needs a line 'version: …', a part '# System' with {MARKER} in it, "
            "and a part '# User' with {{target}} and, once, {{source}}"
        )
    return SummaryPrompt(version=f"{name}.{found[1]}", text=text, system=found[2], user=found[3].rstrip())


def read_prompts(folder: Path) -> Prompts:
    """The shipped prompts, replaced by what files of the same names in ``folder`` say.

    :raises OSError: the folder or a file cannot be read.
    :raises ValueError: a file has no prompt's name or shape, or the version of the shipped prompt but not its
        text: a summary's version must tell what was asked.
    """
    known = {field.name for field in fields(Prompts)}
    changed = {}
    for path in sorted(folder.iterdir()):
        if path.suffix != ".md":
            continue
        if path.stem not in known:
            raise ValueError(f"{path} replaces no prompt; those there are: {', '.join(sorted(known))}")
        changed[path.stem] = read_prompt(path)
        shipped: SummaryPrompt = getattr(SHIPPED, path.stem)
        if changed[path.stem].version == shipped.version and changed[path.stem] != shipped:
            raise ValueError(f"{path} has the shipped prompt's version and another text; give it a version of its own")
    return replace(SHIPPED, **changed)


SHIPPED = Prompts(**{field.name: read_prompt(SHIPPED_FOLDER / f"{field.name}.md") for field in fields(Prompts)})
"""The prompts of ``mnesis_core/prompts``."""
