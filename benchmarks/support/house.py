"""Code metrics, compared with other projects: ``python -m benchmarks.support.house``.

Migrations, tests, and the client written by ``make format`` are left out.

``--trace`` prints how many of our files a chat message with one tool call enters, from the endpoint to the socket.
"""

from __future__ import annotations

import argparse
import ast
import asyncio
import io
import os
import sys
import tempfile
import threading
import tokenize
from collections import Counter
from pathlib import Path
from statistics import median, quantiles
from types import FrameType
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
NOT_COUNTED = {"tests", "migrations", "benchmarks", ".venv", "node_modules", "docs", "build"}
GENERATED = {ROOT / "clients/python/mnesis_client/client.py"}
DIRECTIVES = ("# noqa", "# type: ignore", "# fmt:", "# ruff:")
"""Comments to tools, which are not counted. The other projects' figures include theirs."""
COLUMNS = ("healthchecks", "procrastinate", "httpx", "goal")
OTHERS = {
    "modules": ("225", "49", "23", "<= 320"),
    "lines": ("17.1k", "8.7k", "8.9k", "<= 60k"),
    "module median / p90 / largest": ("33/134/1585", "92/433/1043", "249/642/2020", "150-220 / - / 800"),
    "modules under 100 lines, %": ("-", "-", "-", "-"),
    "function median / p90 / largest": ("7/32/181", "7/23/121", "6/31/133", "6-8 / 20-28"),
    "functions over 50 lines, %": ("3", "2", "3", "<= 1"),
    "private functions used once, %": ("1", "5", "5", "<= 5"),
    "  of at most five lines": ("-", "-", "-", "-"),
    "docstrings on public functions, %": ("10", "34", "48", "where a contract is"),
    "comments per 100 lines of code": ("6.1", "6.3", "7.8", "3-5"),
    "docstring lines per 100 of code": ("3.6", "29", "27", "-"),
    "import lines, % of text": ("8.3", "4.9", "3.9", "-"),
    "most siblings in a folder": ("-", "-", "-", "<= 20"),
    "fan-out median / largest": ("1/10", "1/11", "3/13", "-"),
}
"""The same figures of three code bases that are pleasant to read, and what this one is to reach."""
MOST_FILES_ENTERED, FILES_ENTERED_BEFORE = 55, 101
Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules_of(package: Path) -> list[Path]:
    """Return the files of a package that are measured."""
    paths = {path for path in package.rglob("*.py") if not NOT_COUNTED & {*path.relative_to(ROOT).parts}}
    return sorted(paths - GENERATED)


def measure(paths: list[Path], packages: set[str]) -> dict[str, str]:
    """Return all metrics of these modules."""
    texts = {path: path.read_text() for path in paths}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    sizes = [len(text.splitlines()) for text in texts.values()]
    functions = [node for node in nodes if isinstance(node, Function)]
    lengths = [_length(node) for node in functions]
    public = [node for node in functions if not node.name.startswith("_")]
    used = Counter(name for node in nodes if (name := _used(node)))
    private = [node for node in functions if node.name.startswith("_") and not node.name.endswith("__")]
    # Counted by name over all modules, as for the other projects: a name defined in two modules counts as used twice.
    once = [node for node in private if used[node.name] == 1]
    docs = sum(_doc_lines(node) for node in nodes)
    imports = sum(_length(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    tokens = [token for text in texts.values() for token in tokenize.generate_tokens(io.StringIO(text).readline)]
    comments = sum(token.type == tokenize.COMMENT and not token.string.startswith(DIRECTIVES) for token in tokens)
    code = max(1, sum(bool(line.strip()) for text in texts.values() for line in text.splitlines()) - docs - comments)
    fan_out = [_fan_out(tree, packages) for tree in trees.values()]
    siblings = Counter(path.parent for path in paths if path.name != "__init__.py")
    siblings += Counter(folder.parent for folder in {path.parent for path in paths})
    return {
        "modules": f"{len(paths)}",
        "lines": f"{sum(sizes):,}",
        "module median / p90 / largest": _three(sizes),
        "modules under 100 lines, %": _share(sum(size < 100 for size in sizes), len(sizes)),
        "function median / p90 / largest": _three(lengths),
        "functions over 50 lines, %": _share(sum(length > 50 for length in lengths), len(lengths)),
        "private functions used once, %": f"{_share(len(once), len(functions))} ({len(once)})",
        "  of at most five lines": f"{sum(_length(node) <= 5 for node in once)}",
        "docstrings on public functions, %": _share(sum(map(bool, map(ast.get_docstring, public))), len(public)),
        "comments per 100 lines of code": f"{100 * comments / code:.1f}",
        "docstring lines per 100 of code": f"{100 * docs / code:.1f}",
        "import lines, % of text": _share(imports, sum(sizes)),
        "most siblings in a folder": f"{max(siblings.values())}",
        "fan-out median / largest": f"{median(fan_out):g}/{max(fan_out)}",
    }


def _used(node: ast.AST) -> str:
    if isinstance(node, ast.Name):
        return node.id
    return node.attr if isinstance(node, ast.Attribute) else ""


def _length(node: ast.stmt) -> int:
    return (node.end_lineno or node.lineno) - node.lineno + 1


def _doc_lines(node: ast.AST) -> int:
    """Return the number of lines of a standalone string: a docstring, or the description of an attribute."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return _length(node) if is_text else 0  # type: ignore[arg-type]


def _fan_out(tree: ast.Module, packages: set[str]) -> int:
    """Return how many of our modules this one imports from."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return sum(name.partition(".")[0] in packages for name in names)


def _three(values: list[int]) -> str:
    p90 = quantiles(values, n=10)[-1] if len(values) > 1 else sum(values)
    return f"{median(values):g}/{p90:.0f}/{max(values, default=0)}" if values else "-"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.1f}"


class Trace:
    """Records the functions of our packages entered in any thread while ``is_on``."""

    def __init__(self, folders: list[Path]) -> None:
        self.is_on = False
        self.functions: Counter[tuple[str, str, int]] = Counter()
        self._ours = tuple(f"{folder}{os.sep}" for folder in folders)
        # Threads inherit the profile function when they start, so it is set before any does.
        threading.setprofile(self._note)
        sys.setprofile(self._note)

    def _note(self, frame: FrameType, event: str, _: Any) -> None:
        code = frame.f_code
        if self.is_on and event == "call" and code.co_filename.startswith(self._ours) and code.co_name != "<module>":
            self.functions[code.co_filename, code.co_qualname, code.co_firstlineno] += 1

    @property
    def files(self) -> Counter[str]:
        """Return the number of functions entered in each file."""
        return Counter(str(Path(name).relative_to(ROOT)) for name, _, _ in self.functions)


def scripted_model(spec: Any) -> Any:
    """Return the model used while tracing (``MODEL_FACTORY``): it calls a tool and then answers."""
    from mnesis_core.llm.interface import ToolCall
    from mnesis_core.providers.scripted import ScriptedModel, Step

    call = ToolCall(id="call_1", name="calculator", arguments='{"expression": "6 * 7"}')
    return ScriptedModel(
        spec, lambda request: "It is 42." if '"call_1"' in str(request).replace("'", '"') else Step(tool_calls=(call,))
    )


def trace_message(folders: list[Path]) -> Trace:
    """Send a chat message to the site's own ASGI application, twice, and trace the second."""
    trace = Trace(folders)
    with tempfile.TemporaryDirectory(prefix="mnesis-trace-") as directory:
        settings_module = {"DJANGO_SETTINGS_MODULE": "mnesis_site.settings", "MNESIS_ROLE": "web"}
        os.environ.update(settings_module | {"MNESIS_DATA_DIR": directory, "DATABASE_URL": "", "REDIS_URL": ""})
        import django
        from django.conf import settings
        from django.core.management import call_command

        django.setup()
        settings.MNESIS = {**settings.MNESIS, "MODEL_FACTORY": "benchmarks.support.house.scripted_model"}
        settings.ALLOWED_HOSTS = ["*"]
        call_command("migrate", verbosity=0)
        key = io.StringIO()

        from django.contrib.auth.models import User

        from agents_app.turns.lifecycle import create_session

        owner = User.objects.create_user("benchmark")
        call_command("apikey", "create", "benchmark", stdout=key)
        session_id = create_session(owner=owner, config={"turn": {"tools": ["calculator"]}}).id
        asyncio.run(_send_and_follow(trace, session_id, key.getvalue().strip()))
    return trace


async def _send_and_follow(trace: Trace, session_id: str, key: str) -> None:
    from channels.testing import HttpCommunicator, WebsocketCommunicator

    from agents_app.turns.runner import runner
    from mnesis_site.asgi import application

    headers = [(b"authorization", f"Bearer {key}".encode()), (b"host", b"localhost")]
    socket = WebsocketCommunicator(application, f"/ws/sessions/{session_id}", headers=headers)
    assert (await socket.connect())[0]
    for number in range(2):
        runner._swept_at = asyncio.get_running_loop().time()  # the sweep is not part of the message
        trace.is_on = number == 1
        post = HttpCommunicator(
            application,
            "POST",
            f"/api/sessions/{session_id}/turns",
            body=b'{"message": "What is 6 * 7?"}',
            headers=[*headers, (b"content-type", b"application/json")],
        )
        response = await post.get_response(timeout=30)
        assert response["status"] < 300, response
        while "turn.completed" not in str(await socket.receive_from(timeout=30)):
            pass
        trace.is_on = False
    await socket.disconnect()
    await runner.shutdown()


def main() -> None:
    """Print the metrics next to those of other projects, then per package; or trace a message."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trace", action="store_true", help="trace a chat message with one tool call instead")
    is_trace = parser.parse_args().trace
    packages = sorted(path.parent for path in ROOT.glob("*/__init__.py") if path.parent.name not in NOT_COUNTED)
    if is_trace:
        trace = trace_message(packages)
        for name, count in sorted(trace.files.items()):
            print(f"{count:5} {name}")
        print(f"files entered: {len(trace.files)} (goal: at most {MOST_FILES_ENTERED}; before: {FILES_ENTERED_BEFORE})")
        print(f"functions entered: {len(trace.functions)}, {trace.functions.total():,} times")
        return
    packages += [path.parent for path in ROOT.glob("clients/*/*/__init__.py")]
    names = {package.name for package in packages}
    ours = measure([path for package in packages for path in modules_of(package)], names)
    print(f"{'':36}{'ours':>18}" + "".join(f"{name:>20}" for name in COLUMNS))
    for figure, others in OTHERS.items():
        print(f"{figure:36}{ours[figure]:>18}" + "".join(f"{value:>20}" for value in others))
    print()
    each = {package.name: measure(modules_of(package), names) for package in packages}
    print(f"{'':36}" + "".join(f"{name:>18}" for name in each))
    for figure in OTHERS:
        print(f"{figure:36}" + "".join(f"{found[figure]:>18}" for found in each.values()))


if __name__ == "__main__":
    main()
