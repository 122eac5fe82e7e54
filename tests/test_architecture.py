"""Only the writer writes: each table has one module that changes its rows (docs/architecture.md).

The import contracts cannot see this. What no reading of the code can see (raw SQL, ``apps.get_model``) meets the
database's own triggers instead.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from django.apps import apps

ROOT = Path(__file__).resolve().parents[1]
APPS = ("sessions_app", "compaction_app", "files_app", "agents_app", "audit_app")
PACKAGES = (*APPS, "mnesis_core", "mnesis_site")
WRITES = {
    *("create", "bulk_create", "get_or_create", "update_or_create", "update", "bulk_update", "delete", "save"),
    *("acreate", "abulk_create", "aget_or_create", "aupdate_or_create", "aupdate", "abulk_update", "adelete", "asave"),
}
OWNERS = {
    model.__name__: "sessions_app/record/change.py"
    if model.__name__ == "Event"
    else rf"{model._meta.app_label}/(\w+/)*(\w+_)?store\.py"
    for model in apps.get_models()
    if model._meta.app_label in APPS
}


def writes_elsewhere(path: str, source: str) -> list[str]:
    """The places in a file that change the rows of a table whose writer is another file."""
    tree = ast.parse(source)
    rows_of = {name: model for function in functions(tree) for name, model in assigned_rows(function)}
    found = []
    for call in (node for node in ast.walk(tree) if isinstance(node, ast.Call)):
        if isinstance(call.func, ast.Attribute) and call.func.attr in WRITES:
            model = model_in(call.func.value) or rows_of.get(ast.unparse(call.func.value))
            if model and not re.fullmatch(OWNERS[model], path):
                found.append(f"{path}:{call.lineno} {model}: .{call.func.attr}()")
    return found


def functions(tree: ast.AST) -> Iterator[ast.AST]:
    """Every function, and the module itself."""
    yield tree
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef))


def assigned_rows(function: ast.AST) -> Iterator[tuple[str, str]]:
    """Names that stand for rows or a query of a model: assigned from it, or taken from it one by one."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.For | ast.AnnAssign | ast.NamedExpr):
            source = node.iter if isinstance(node, ast.For) else node.value
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            if source is not None and (model := model_in(source)):
                yield from ((ast.unparse(target), model) for target in targets)


def model_in(expression: ast.expr) -> str | None:
    """The model that a chain of calls begins with: ``Turn`` in ``models.Turn.objects.filter(…)``."""
    while True:
        if isinstance(expression, ast.Name):
            return expression.id if expression.id in OWNERS else None
        if isinstance(expression, ast.Attribute):
            if expression.attr in OWNERS:
                return expression.attr
            expression = expression.value
        elif isinstance(expression, ast.Call):
            expression = expression.func
        elif isinstance(expression, ast.Subscript | ast.Await | ast.NamedExpr):
            expression = expression.value
        else:
            return None


def test_only_the_writer_writes() -> None:
    files = [file for package in PACKAGES for file in (ROOT / package).rglob("*.py") if "migrations" not in file.parts]
    assert len(files) > 50
    found = [
        place
        for file in files
        for place in writes_elsewhere(str(file.relative_to(ROOT)), file.read_text(encoding="utf-8"))
    ]
    assert not found


@pytest.mark.parametrize(
    "line",
    [
        "Session.objects.create(id='a')",
        "models.Turn.objects.filter(state='running').update(state='failed')",
        "rows = Message.objects.all()\n    rows.delete()",
        "for part in MessagePart.objects.all():\n        part.save()",
        "ContextItem(position=1).save()",
        "(row := Event.objects.first()).delete()",
        "await ModelCall.objects.acreate(id='a')",
        "SummaryNode.objects.bulk_create([])",
        "self.row = CompactionRun.objects.get(pk=1)\n    self.row.save()",
    ],
)
def test_a_write_in_the_wrong_place_is_found(line: str) -> None:
    source = f"async def view(self):\n    {line}\n"
    assert len(writes_elsewhere("agents_app/tools/pages.py", source)) == 1


def test_plain_sql_that_writes_is_the_writers_too() -> None:
    """``tables.Table`` inserts and updates without a model's name in the call."""
    users = {
        str(file.relative_to(ROOT))
        for package in PACKAGES
        for file in (ROOT / package).rglob("*.py")
        if re.search(r"sessions_app\.database\.tables import .*\b(?:Table|run)\b", file.read_text(encoding="utf-8"))
    }
    assert users
    assert all(user.endswith(("store.py", "record/change.py", "search/index.py")) for user in users), users


def test_a_write_in_the_right_place_is_not_found() -> None:
    assert not writes_elsewhere("sessions_app/record/turn_store.py", "Turn.objects.filter(pk=1).update(fence=2)")
    assert writes_elsewhere("sessions_app/record/turn_store.py", "Event.objects.create()")
    assert not writes_elsewhere("agents_app/tools/pages.py", "{}.update(Session.objects.values())\nseen.update('a')")
