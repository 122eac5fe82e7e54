"""What the nodes of a syntax tree are, language by language; ``code`` walks the trees."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto


class Part(Enum):
    """What a node of a syntax tree is to us."""

    HOLDER = auto()
    """Has a line, with the names of what is defined in it: a class, a trait."""
    BODIED = auto()
    """A holder where it has a body; a mere mention of its name where it has none."""
    SPACE = auto()
    """Is named, and what is defined in it has lines of its own: a package, a namespace."""
    TYPE = auto()
    """Has a line that shows all of it: an enumeration, an alias."""
    FUNCTION = auto()
    """Has a line, or a name in its holder's; what is in it is its own."""
    DECLARED = auto()
    """A function where it declares one, else a value."""
    ASSIGNED = auto()
    """A function where a function is assigned, an export where it is assigned to one, else a value."""
    VALUE = auto()
    """Is named: a constant, a variable of the whole file, a field, a macro."""
    IMPORT = auto()
    COMMAND = auto()
    """A call; an import where it calls one of the language's ``importing``."""
    EXPORT = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class Language:
    """A language: its name, its grammar, and what its nodes are."""

    title: str
    grammar: str
    nodes: Mapping[str, Part]
    importing: frozenset[str] = frozenset()
    """The calls that import."""


_JAVASCRIPT = {
    "class_declaration": Part.HOLDER,
    "function_declaration": Part.FUNCTION,
    "generator_function_declaration": Part.FUNCTION,
    "method_definition": Part.FUNCTION,
    "field_definition": Part.ASSIGNED,
    "variable_declarator": Part.ASSIGNED,
    "assignment_expression": Part.ASSIGNED,
    "import_statement": Part.IMPORT,
    "call_expression": Part.COMMAND,
    "export_statement": Part.EXPORT,
}
_TYPESCRIPT = _JAVASCRIPT | {
    "abstract_class_declaration": Part.HOLDER,
    "interface_declaration": Part.HOLDER,
    "enum_declaration": Part.TYPE,
    "internal_module": Part.SPACE,
    "module": Part.SPACE,
    "function_signature": Part.FUNCTION,
    "method_signature": Part.FUNCTION,
    "abstract_method_signature": Part.FUNCTION,
    "public_field_definition": Part.ASSIGNED,
    "property_signature": Part.VALUE,
    "type_alias_declaration": Part.TYPE,
}
_RUST = {
    "struct_item": Part.TYPE,
    "enum_item": Part.TYPE,
    "union_item": Part.TYPE,
    "type_item": Part.TYPE,
    "trait_item": Part.HOLDER,
    "impl_item": Part.HOLDER,
    "mod_item": Part.SPACE,
    "function_item": Part.FUNCTION,
    "function_signature_item": Part.FUNCTION,
    "macro_definition": Part.FUNCTION,
    "const_item": Part.VALUE,
    "static_item": Part.VALUE,
    "use_declaration": Part.IMPORT,
    "extern_crate_declaration": Part.IMPORT,
}
_GO = {
    "package_clause": Part.SPACE,
    "type_spec": Part.TYPE,
    "type_alias": Part.TYPE,
    "function_declaration": Part.FUNCTION,
    "method_declaration": Part.FUNCTION,
    "const_spec": Part.VALUE,
    "var_spec": Part.VALUE,
    "import_spec": Part.IMPORT,
}
_JAVA = {
    "class_declaration": Part.HOLDER,
    "interface_declaration": Part.HOLDER,
    "enum_declaration": Part.HOLDER,
    "record_declaration": Part.HOLDER,
    "annotation_type_declaration": Part.HOLDER,
    "method_declaration": Part.FUNCTION,
    "constructor_declaration": Part.FUNCTION,
    "package_declaration": Part.SPACE,
    "import_declaration": Part.IMPORT,
}
_C = {
    "function_definition": Part.FUNCTION,
    "declaration": Part.DECLARED,
    "struct_specifier": Part.BODIED,
    "union_specifier": Part.BODIED,
    "enum_specifier": Part.BODIED,
    "field_declaration": Part.DECLARED,
    "type_definition": Part.TYPE,
    "preproc_def": Part.VALUE,
    "preproc_function_def": Part.VALUE,
    "preproc_include": Part.IMPORT,
}
_CPP = _C | {
    "class_specifier": Part.BODIED,
    "namespace_definition": Part.SPACE,
    "concept_definition": Part.TYPE,
    "alias_declaration": Part.TYPE,
    "using_declaration": Part.IMPORT,
}
_CSHARP = {
    "namespace_declaration": Part.SPACE,
    "file_scoped_namespace_declaration": Part.SPACE,
    "class_declaration": Part.HOLDER,
    "interface_declaration": Part.HOLDER,
    "struct_declaration": Part.HOLDER,
    "record_declaration": Part.HOLDER,
    "enum_declaration": Part.TYPE,
    "delegate_declaration": Part.TYPE,
    "method_declaration": Part.FUNCTION,
    "constructor_declaration": Part.FUNCTION,
    "local_function_statement": Part.FUNCTION,
    "property_declaration": Part.VALUE,
    "using_directive": Part.IMPORT,
}
_RUBY = {
    "class": Part.BODIED,
    "module": Part.BODIED,
    "method": Part.FUNCTION,
    "singleton_method": Part.FUNCTION,
    "call": Part.COMMAND,
}
_PHP = {
    "namespace_definition": Part.SPACE,
    "class_declaration": Part.HOLDER,
    "interface_declaration": Part.HOLDER,
    "trait_declaration": Part.HOLDER,
    "enum_declaration": Part.HOLDER,
    "function_definition": Part.FUNCTION,
    "method_declaration": Part.FUNCTION,
    "const_element": Part.VALUE,
    "namespace_use_declaration": Part.IMPORT,
    "require_expression": Part.IMPORT,
    "require_once_expression": Part.IMPORT,
    "include_expression": Part.IMPORT,
    "include_once_expression": Part.IMPORT,
}
_SHELL = {
    "function_definition": Part.FUNCTION,
    "variable_assignment": Part.VALUE,
    "command": Part.COMMAND,
}
LANGUAGES: dict[str, Language] = {
    "javascript": Language(
        title="JavaScript", grammar="javascript", nodes=_JAVASCRIPT, importing=frozenset(("require", "import"))
    ),
    "typescript": Language(
        title="TypeScript", grammar="typescript", nodes=_TYPESCRIPT, importing=frozenset(("require",))
    ),
    "tsx": Language(title="TypeScript with JSX", grammar="tsx", nodes=_TYPESCRIPT, importing=frozenset(("require",))),
    "rust": Language(title="Rust", grammar="rust", nodes=_RUST),
    "go": Language(title="Go", grammar="go", nodes=_GO),
    "java": Language(title="Java", grammar="java", nodes=_JAVA),
    "c": Language(title="C", grammar="c", nodes=_C),
    "cpp": Language(title="C++", grammar="cpp", nodes=_CPP),
    "csharp": Language(title="C#", grammar="csharp", nodes=_CSHARP),
    "ruby": Language(
        title="Ruby", grammar="ruby", nodes=_RUBY, importing=frozenset(("require", "require_relative", "load"))
    ),
    "php": Language(title="PHP", grammar="php", nodes=_PHP),
    "shell": Language(title="Shell", grammar="bash", nodes=_SHELL, importing=frozenset(("source", "."))),
}
"""By the name of the kind."""
