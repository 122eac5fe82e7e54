"""The shape of the code, beside that of others: ``python -m benchmarks.house``. Migrations and tests are left out."""

from __future__ import annotations

import ast
import io
import tokenize
from collections import Counter
from pathlib import Path
from statistics import median, quantiles

ROOT = Path(__file__).resolve().parents[1]
NOT_COUNTED = {"tests", "migrations", "benchmarks", ".venv", "node_modules", "docs", "build"}
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
Function = ast.FunctionDef | ast.AsyncFunctionDef


def modules_of(package: Path) -> list[Path]:
    """Return the files of a package that count."""
    return [path for path in sorted(package.rglob("*.py")) if not NOT_COUNTED & {*path.relative_to(ROOT).parts}]


def measure(paths: list[Path], packages: set[str]) -> dict[str, str]:
    """Return every figure of these modules."""
    texts = {path: path.read_text() for path in paths}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    nodes = [node for tree in trees.values() for node in ast.walk(tree)]
    sizes = [len(text.splitlines()) for text in texts.values()]
    functions = [node for node in nodes if isinstance(node, Function)]
    lengths = [_length(node) for node in functions]
    public = [node for node in functions if not node.name.startswith("_")]
    used = Counter(name for node in nodes if (name := _used(node)))
    private = [node for node in functions if node.name.startswith("_") and not node.name.endswith("__")]
    # By name over everything that is measured, as it was for the others: a name that two modules have counts as used twice.
    once = [node for node in private if used[node.name] == 1]
    docs = sum(_doc_lines(node) for node in nodes)
    imports = sum(_length(node) for node in nodes if isinstance(node, ast.Import | ast.ImportFrom))
    tokens = [token for text in texts.values() for token in tokenize.generate_tokens(io.StringIO(text).readline)]
    comments = sum(token.type == tokenize.COMMENT for token in tokens)
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
    """Return the lines of a string that stands alone: a docstring, or one under an attribute."""
    is_text = isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
    return _length(node) if is_text else 0  # type: ignore[arg-type]


def _fan_out(tree: ast.Module, packages: set[str]) -> int:
    """Return how many modules of ours one imports from."""
    nodes = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {node.module or "" for node in nodes if isinstance(node, ast.ImportFrom)}
    names |= {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return sum(name.partition(".")[0] in packages for name in names)


def _three(values: list[int]) -> str:
    p90 = quantiles(values, n=10)[-1] if len(values) > 1 else sum(values)
    return f"{median(values):g}/{p90:.0f}/{max(values, default=0)}" if values else "-"


def _share(part: int, whole: int) -> str:
    return f"{100 * part / max(1, whole):.1f}"


def main() -> None:
    """Print all figures beside the others', then each package's."""
    packages = sorted(path.parent for path in ROOT.glob("*/__init__.py") if path.parent.name not in NOT_COUNTED)
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
