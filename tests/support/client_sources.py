"""The client's modules that are made from others: ``python -m tests.support.client_sources`` writes them anew.

Its errors are those of the registry, written out, since it imports nothing of the server's; the client that waits is
the one with async and await, without these words.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from mnesis_core import endings, errors
from mnesis_core.errors import MnesisError
from tests.support.error_table import kinds

CLIENT = Path(__file__).resolve().parents[2] / "mnesis_client"
WITH_ASYNC = ("connection_aio.py", "files_aio.py", "maps_aio.py", "moves_aio.py", "aio.py")
WITHOUT_ASYNC = (
    (r", for code with async and await\.", ". Made from {name}: do not edit."),
    (r"_aio import", "_sync import"),
    (r"AsyncGenerator\[(\w+), None\]", r"Generator[\1, None, None]"),
    (r"\bAsync(?=[A-Z])", ""),
    (r"import asyncio\nimport json\n", "import json\nimport time\n"),
    (r"import asyncio\n(from|\n)", r"import time\n\1"),
    (r"\basyncio\.sleep", "time.sleep"),
    (r"__a(enter|exit)__", r"__\1__"),
    (r"\ba(closing|close|read|iter_lines|iter_bytes)\b", r"\1"),
    (r"\b(async|await) ", ""),
)
"""Patterns and what stands in their place in a client that waits."""
ERRORS = '''"""Why the server refuses a request, one class for each code. Made from the server's registry: do not edit.

The class docstring says what happened and what to do; ``message`` is what the server said this time.
"""

from __future__ import annotations

from typing import Any, ClassVar

__all__ = NAMES


class MnesisError(Exception):
    """The server refused or failed; ``code`` says why."""

    code: ClassVar[str] = "INTERNAL_ERROR"

    def __init__(self, message: str = "", *, code: str = "", status: int = 0, details: dict[str, Any] | None = None) -> None:
        self.message = message or type(self).__doc__ or ""
        self.said_code = code or self.code
        """As the server said it: this class's own, or one that this version of the client does not know."""
        self.status = status
        """Of HTTP; 0 for the error of a turn."""
        self.details = details or {}
        super().__init__(f"{self.said_code}: {self.message}")


class ConnectionFailed(MnesisError):
    """The server cannot be reached, or the connection broke off. What was asked may have been done or not."""

    code = "CONNECTION_FAILED"
'''
ENDINGS = '''"""How work ended on the server, one class for each code. Made from the server's registry: do not edit."""

from __future__ import annotations

from typing import Any

from mnesis_client.errors import MnesisError

__all__ = NAMES
'''
READ_BACK = '''

def _kinds(kind: type[MnesisError]) -> dict[str, type[MnesisError]]:
    found: dict[str, type[MnesisError]] = {}
    for child in kind.__subclasses__():
        found |= _kinds(child)
    return found | {kind.code: kind}


BY_CODE = _kinds(MnesisError)
"""Every error by its code."""


def error_of(code: str, message: str = "", *, status: int = 0, details: dict[str, Any] | None = None) -> MnesisError:
    """The error that a code stands for; ``MnesisError`` itself for one that this version does not know."""
    return BY_CODE.get(code, MnesisError)(message, code=code, status=status, details=details)
'''


def written() -> dict[str, str]:
    """The text of each module by its name."""
    refused = _module(ERRORS, errors.__name__, ["MnesisError", "ConnectionFailed"])
    ended = _module(ENDINGS, endings.__name__, []) + READ_BACK
    return {
        "errors.py": _formatted(refused),
        "endings.py": _formatted(ended),
    } | {name.replace("aio", "sync"): _formatted(_waiting(name)) for name in WITH_ASYNC}


def _waiting(name: str) -> str:
    text = (CLIENT / name).read_text(encoding="utf-8")
    for pattern, other in WITHOUT_ASYNC:
        text = re.sub(pattern, other.replace("{name}", name), text)
    return text


def _module(head: str, registry: str, own: list[str]) -> str:
    found = [kind for kind in kinds() if kind.__module__ == registry and kind is not MnesisError]
    names = sorted([*own, *(kind.__name__ for kind in found)])
    return head.replace("NAMES", repr(names)) + "".join(map(_class, found))


def _formatted(source: str) -> str:
    command = [sys.executable, "-m", "ruff", "format", "--stdin-filename", str(CLIENT / "module.py"), "-"]
    return subprocess.run(command, input=source, capture_output=True, text=True, check=True).stdout


def _class(kind: type[MnesisError]) -> str:
    words = " ".join((kind.__doc__ or "").split())
    text = f'\n\nclass {kind.__name__}({kind.__bases__[0].__name__}):\n    """{words}"""\n'
    return text if kind.code == kind.__bases__[0].code else f'{text}\n    code = "{kind.code}"\n'


if __name__ == "__main__":
    for name, text in written().items():
        (CLIENT / name).write_text(text, encoding="utf-8")
