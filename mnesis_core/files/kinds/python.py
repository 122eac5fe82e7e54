"""Python source: its classes, functions, constants and imports, each with its line."""

from __future__ import annotations

import ast
import warnings

from mnesis_core.errors import fill, gettext_noop
from mnesis_core.files.source import Findings, Source, Unreadable, counted, listed, shown, walk

MOST_BYTES = 4_194_304  # A syntax tree takes about a hundred times as much memory as its source.
HEADER_CHARACTERS = 160
MOST_METHODS = 12
_Definition = ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
# What is inside these is at the top level of the module, too.
_BLOCKS = (ast.If, ast.Try, ast.TryStar, ast.ExceptHandler, ast.With)


def explore(source: Source) -> Findings:
    data = source.whole(MOST_BYTES)
    module = _parsed(data)
    definitions: list[_Definition] = []
    imports, constants = [], []
    for one in walk(module.body, lambda node: ast.iter_child_nodes(node) if isinstance(node, _BLOCKS) else ()):
        if isinstance(one, _Definition):
            definitions.append(one)
        elif isinstance(one, ast.Import):
            imports += [name.name for name in one.names]
        elif isinstance(one, ast.ImportFrom):
            imports.append("." * one.level + (one.module or ""))
        elif isinstance(one, ast.Assign | ast.AnnAssign):
            targets = one.targets if isinstance(one, ast.Assign) else [one.target]
            constants += [name.id for name in targets if isinstance(name, ast.Name) and name.id.isupper()]
    classes = sum(isinstance(one, ast.ClassDef) for one in definitions)
    lines = [
        f"Python, {counted(len(data.splitlines()), 'line')}: {counted(classes, 'class', 'classes')}, "
        f"{counted(len(definitions) - classes, 'function')}"
    ]
    if document := ast.get_docstring(module):
        lines.append(f"It says of itself: {shown(document.partition(chr(10))[0], characters=HEADER_CHARACTERS)}")
    if any(isinstance(one, ast.If) and ast.unparse(one.test) == "__name__ == '__main__'" for one in module.body):
        lines.append("It runs as a program")
    if imports:
        lines.append(f"Imports: {listed(dict.fromkeys(imports))}")
    if constants:
        lines.append(f"Constants: {listed(dict.fromkeys(constants))}")
    public_first = sorted(definitions, key=lambda one: one.name.startswith("_"))
    return Findings(lines=(*lines, *map(_line, public_first)))


def _parsed(data: bytes) -> ast.Module:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return ast.parse(data)
    except SyntaxError as error:
        values = {"reason": shown(error.msg)}
        if not error.lineno:
            raise Unreadable(fill(gettext_noop("not valid Python: %(reason)s"), values)) from None
        text = gettext_noop("not valid Python in line %(line)s: %(reason)s")
        raise Unreadable(fill(text, {"line": error.lineno, **values})) from None
    except ValueError as error:
        raise Unreadable(fill(gettext_noop("not valid Python: %(reason)s"), {"reason": shown(str(error))})) from None


def _line(definition: _Definition) -> str:
    if isinstance(definition, ast.ClassDef):
        bases = ", ".join(ast.unparse(base) for base in definition.bases)
        header = shown(f"class {definition.name}({bases})" if bases else f"class {definition.name}")
        fields, methods, inner = [], [], []
        for one in definition.body:
            if isinstance(one, ast.AnnAssign) and isinstance(one.target, ast.Name):
                fields.append(one.target.id)
            elif isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef):
                methods.append(f"async {one.name}" if isinstance(one, ast.AsyncFunctionDef) else one.name)
            elif isinstance(one, ast.ClassDef):
                inner.append(one.name)
        said = (("fields", fields), ("methods", methods), ("classes", inner))
        parts = [f"{word} {listed(dict.fromkeys(names), most=MOST_METHODS)}" for word, names in said if names]
        return f"{definition.lineno}: {header}" + (f": {'; '.join(parts)}" if parts else "")
    word = "async def" if isinstance(definition, ast.AsyncFunctionDef) else "def"
    returns = f" -> {ast.unparse(definition.returns)}" if definition.returns else ""
    header = f"{word} {definition.name}({ast.unparse(definition.args)}){returns}"
    return f"{definition.lineno}: {shown(header, characters=HEADER_CHARACTERS)}"
