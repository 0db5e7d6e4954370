"""Makes the page of all public names for the site, `docs/API.md`, from their docstrings.

The page has the functions, the classes and the errors of `dbio_commit`, and the types of their results and options. The
tests hold that each of these, and each of their members, has a docstring.
"""

import ast
import inspect
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from importlib import import_module
from typing import Any, NamedTuple

import dbio_commit as dbio
from dbio_commit.commit import options
from dbio_commit.commit.write import options as of_writes
from dbio_commit.maintenance.compact.options import TARGET_BYTES
from dbio_commit.maintenance.vacuum.report import HISTORY_DAYS

WIDTH = 100
"""Of a signature on one line."""

RESULTS = {
    "dbio_commit.feed.streams": ["CommitChanges", "StreamLag"],
    "dbio_commit.log.frames.scan": ["Scan"],
    "dbio_commit.protocol.applications": ["Application"],
    "dbio_commit.protocol.entry": ["Entry"],
    "dbio_commit.protocol.garbage": ["Reason"],
    "dbio_commit.protocol.markers.files": ["Bounds"],
    "dbio_commit.protocol.markers.provenance": ["Provenance"],
    "dbio_commit.protocol.scope": ["Scope"],
    "dbio_commit.maintenance.check": ["CheckReport", "PendingTransaction", "WrongSize"],
    "dbio_commit.maintenance.compact.report": ["CompactReport", "Compacted", "LeftFiles"],
    "dbio_commit.maintenance.compact.spread": ["Clustering"],
    "dbio_commit.maintenance.copy": ["CopyReport"],
    "dbio_commit.maintenance.diff": ["Difference", "Total", "Change"],
    "dbio_commit.maintenance.drop": ["DropReport"],
    "dbio_commit.maintenance.erase.report": ["EraseReport", "Pending"],
    "dbio_commit.maintenance.inspect": ["TransactionReport", "TransactionState"],
    "dbio_commit.maintenance.publish.places": ["Published"],
    "dbio_commit.maintenance.restore": ["RestorePlan"],
    "dbio_commit.maintenance.trace": ["FileTrace"],
    "dbio_commit.maintenance.vacuum.report": ["VacuumReport", "Deletion", "Failure"],
}
"""Classes that are only returned, by module."""

OPTIONS = {
    "dbio_commit.base.options": ["Mode", "Compression", "Isolation"],
    "dbio_commit.base.progress": ["Progress"],
    "dbio_commit.commit.request": ["Terms"],
    "dbio_commit.commit.provenance": ["Labels"],
    "dbio_commit.data.conditions.terms": ["Filter", "Term", "Where"],
    "dbio_commit.protocol.commits": ["AsOf"],
    "dbio_commit.protocol.markers.commit": ["Operation"],
    "dbio_commit.protocol.names": ["Partition"],
    "dbio_commit.protocol.partition_values": ["Given"],
    "dbio_commit.protocol.settings": ["Format", "Layout"],
    "dbio_commit.protocol.versions": ["AppVersion"],
    "dbio_commit.commit.write.clauses": ["Clause", "Matched", "NotMatched", "NotMatchedBySource"],
    "vacuum": ["VacuumOptions", "Control", "vacuum_table"],
}
"""Types of arguments, by module."""

OPAQUE = {"Terms"}
"""Classes that are passed on, and not looked into."""

TESTING = {"dbio_commit.testing": ["ManualClock", "MemoryStore"]}


@dataclass(frozen=True)
class Member:
    """A function, a method, a field or a property."""

    name: str
    signature: str
    doc: str


def public_members(thing: Any) -> Iterator[Member]:
    """The fields, properties and methods of a class that are no internal ones, in the order of the code."""
    hidden: frozenset[str] = getattr(thing, "__internal__", frozenset())
    body = class_body(thing)
    for i, node in enumerate(body):
        name = name_of(node)
        if name is None or name.startswith("_") or name in hidden:
            continue
        if isinstance(node, ast.FunctionDef):
            doc = ast.get_docstring(node) or ""
            if is_overload(node):
                continue
            if is_property(node):
                yield Member(name, f"{name}: {unquoted(node.returns)}", doc)
            else:
                yield Member(name, signature(node, name), inspect.getdoc(getattr(thing, name)) or "")
        else:
            after = body[i + 1] if i + 1 < len(body) else None
            doc = text_of(after)
            if isinstance(node, ast.AnnAssign):
                yield Member(name, f"{name}: {unquoted(node.annotation)}", doc)
            elif issubclass(thing, Enum):
                yield Member(name, f"{name} = {thing[name].value!r}", doc)


def class_body(thing: Any) -> list[ast.stmt]:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(thing))).body
    assert isinstance(tree, ast.ClassDef)
    return tree.body


def name_of(node: ast.stmt) -> str | None:
    match node:
        case ast.FunctionDef(name=name) | ast.AnnAssign(target=ast.Name(id=name)):
            return name
        case ast.Assign(targets=[ast.Name(id=name)]):
            return name
    return None


def is_property(node: ast.FunctionDef) -> bool:
    return any(isinstance(it, ast.Name) and it.id.endswith("property") for it in node.decorator_list)


def text_of(node: ast.stmt | None) -> str:
    """The text of a statement that is only a text: the docstring of what stands before it; else ""."""
    match node:
        case ast.Expr(value=ast.Constant(value=str(text))):
            return inspect.cleandoc(text)
    return ""


def of_function(function: Any) -> Member:
    (tree,) = ast.parse(textwrap.dedent(inspect.getsource(inspect.unwrap(function)))).body
    assert isinstance(tree, ast.FunctionDef)
    return Member(function.__name__, signature(tree, function.__name__), inspect.getdoc(function) or "")


def code(node: ast.AST) -> str:
    """The code, with texts in double quotes, as ruff writes it."""
    text = ast.unparse(node)
    return text if '"' in text else text.replace("'", '"')


def is_overload(node: ast.FunctionDef) -> bool:
    """Whether it is one of several signatures of a method, which the implementation's docstring explains."""
    return any(isinstance(it, ast.Name) and it.id == "overload" for it in node.decorator_list)


def signature(node: ast.FunctionDef, name: str) -> str:
    """As in the code, without quotes around annotations, without `self`, on one line or with a line for each part."""
    args = node.args
    positional = [*args.posonlyargs, *args.args]
    defaults = [None] * (len(positional) - len(args.defaults)) + [*args.defaults]
    parts = [parameter(arg, default) for arg, default in zip(positional, defaults, strict=True)]
    if positional and positional[0].arg in ("self", "cls"):
        parts = parts[1:]
    if args.vararg:
        parts.append(f"*{parameter(args.vararg, None)}")
    named = [parameter(arg, default) for arg, default in zip(args.kwonlyargs, args.kw_defaults, strict=True)]
    match args.kwarg:
        case ast.arg(annotation=ast.Subscript(value=ast.Name(id="Unpack"), slice=ast.Name(id=keywords))):
            named += options_of_a_commit(keywords)
    parts += ["*", *named] if named and not args.vararg else named
    if args.kwarg and "Unpack" not in code(args.kwarg):
        parts.append(f"**{parameter(args.kwarg, None)}")
    returns = f" -> {unquoted(node.returns)}" if node.returns else ""
    line = f"{name}({', '.join(parts)}){returns}"
    return line if len(line) <= WIDTH else f"{name}(\n" + "".join(f"    {part},\n" for part in parts) + f"){returns}"


def options_of_a_commit(keywords: str) -> Iterator[str]:
    """The options that these keywords name, as `takes_options` shows them."""
    names = getattr(of_writes if hasattr(of_writes, keywords) else options, keywords).__annotations__
    for node in [*class_body(of_writes.WriteOptions), *class_body(options.CommitOptions)]:
        if isinstance(node, ast.AnnAssign) and name_of(node) in names:
            yield code(node)


def parameter(arg: ast.arg, default: ast.expr | None) -> str:
    kind = f"{arg.arg}: {unquoted(arg.annotation)}" if arg.annotation else arg.arg
    if default is None:
        return kind
    value = default_text(default)
    return f"{kind} = {value}" if arg.annotation else f"{kind}={value}"


def default_text(default: ast.expr) -> str:
    """As in the code, but a constant by its value."""
    text = code(default)
    return _CONSTANTS.get(text, text)


_CONSTANTS = {
    "TARGET_BYTES": f"{TARGET_BYTES:_}",
    "HISTORY_DAYS": repr(HISTORY_DAYS),
    "SYSTEM_CLOCK": "...",
    "silent": "...",
}


class _Unquote(ast.NodeTransformer):
    def visit_Constant(self, node: ast.Constant) -> ast.expr:
        return ast.parse(node.value, mode="eval").body if isinstance(node.value, str) else node

    def visit_Subscript(self, node: ast.Subscript) -> ast.expr:
        if isinstance(node.value, ast.Name) and node.value.id == "Literal":
            return node
        return self.generic_visit(node)  # type: ignore[return-value]


def unquoted(annotation: ast.expr | None) -> str:
    return code(_Unquote().visit(annotation)) if annotation else ""


# --- types --------------------------------------------------------------------------------------------------------


class Alias(NamedTuple):
    """A type that is no class: `Mode = Literal[…]`."""

    definition: str
    doc: str


def aliases() -> Iterator[Alias]:
    """The types of arguments that are no classes, and no functions."""
    for module, names in OPTIONS.items():
        for name in names:
            thing = getattr(import_module(module), name)
            if thing is Any or not (inspect.isclass(thing) or inspect.isfunction(thing)):
                yield alias(module, name)


def alias(module: str, name: str) -> Alias:
    tree = ast.parse(inspect.getsource(import_module(module)))
    for node, after in zip(tree.body, [*tree.body[1:], None], strict=True):
        if name_of(node) == name and isinstance(node, ast.Assign):
            return Alias(code(node), text_of(after))
    raise LookupError(f"{module} defines no {name}")


# --- the page -----------------------------------------------------------------------------------------------------


def functions() -> list[str]:
    return [name for name in dbio.__all__ if inspect.isfunction(getattr(dbio, name))]


def errors() -> list[str]:
    found = {name: getattr(dbio, name) for name in dbio.__all__}
    return [name for name, it in found.items() if inspect.isclass(it) and issubclass(it, dbio.DbioError)]


CLASSES = ["Table", "Snapshot", "Transaction", "Commit", "DataFile", "FileInfo", "Read"]

_INTRODUCTION = """# API of `dbio_commit`

[Reference](REFERENCE.md) says which page explains each function, and [README](../README.md#where-to-go) has the tasks.

The examples say `import dbio_commit as dbio`. Functions, the classes in section [Classes](#classes) and errors are
imported from `dbio_commit`. Other classes are only returned, and options are plain values: for annotations, import
their types from the modules that are named here. What this page does not name is private, and may change. Paths of
files are relative to the root of the table, sizes are in bytes, and times are aware.

Without PySpark, the functions for Spark can be imported, too; a call raises MissingPackageError.

"""


def page() -> str:
    parts = [_INTRODUCTION, contents()]
    parts += ["## Functions\n\n", *(entry(of_function(getattr(dbio, name)), "###", "dbio.") for name in functions())]
    parts += ["## Classes\n\n", *(class_entry(getattr(dbio, name), f"dbio.{name}") for name in CLASSES)]
    parts += ["## Errors\n\n", *error_entries()]
    parts += ["## Results\n\n", *types(RESULTS)]
    parts += ["## Options and values\n\n", *types(OPTIONS)]
    parts += ["## For tests of programs\n\n`Table.over(store)` makes a table on one of these.\n\n", *testing()]
    return "".join(parts).rstrip() + "\n"


def testing() -> Iterator[str]:
    for module, names in TESTING.items():
        for name in names:
            yield f"### `{name}`\n\n`from {module} import {name}`\n\n"
            yield f"{inspect.getdoc(getattr(import_module(module), name))}\n\n"


def contents() -> str:
    titles = ["Functions", "Classes", "Errors", "Results", "Options and values", "For tests of programs"]
    lines = [f"- [{title}](#{anchor(title)})" for title in titles]
    lines[0] += ": " + ", ".join(f"[{name}](#{anchor(f'dbio.{name}')})" for name in functions())
    lines[1] += ": " + ", ".join(f"[{name}](#{anchor(f'class dbio.{name}')})" for name in CLASSES)
    lines[3] += ": " + ", ".join(f"[{name}](#{anchor(name)})" for names in RESULTS.values() for name in names)
    lines[4] += ": " + ", ".join(f"[{name}](#{anchor(name)})" for names in OPTIONS.values() for name in names)
    return "\n".join(lines) + "\n\n"


def anchor(title: str) -> str:
    """As GitHub makes it of a heading."""
    return "".join(it for it in title.lower().replace(" ", "-") if it.isalnum() or it in "-_")


def entry(member: Member, level: str, prefix: str) -> str:
    return f"{level} `{prefix}{member.name}`\n\n```py\n{prefix}{member.signature}\n```\n\n{member.doc}\n\n"


def class_entry(thing: Any, title: str, *, module: str = "") -> str:
    text = f"### `{title}`\n\n`from {module} import {title}`\n\n" if module else f"### class `{title}`\n\n"
    text += f"{inspect.getdoc(thing)}\n\n"
    if thing.__name__ in OPAQUE:
        return text
    members = [*public_members(thing)]
    hidden: frozenset[str] = getattr(thing, "__internal__", frozenset())
    if init := next((it for it in class_body(thing) if name_of(it) == "__init__" not in hidden), None):
        assert isinstance(init, ast.FunctionDef)
        constructor = signature(init, thing.__name__).removesuffix(" -> None")
        text += f"```py\n{constructor}\n```\n\n{ast.get_docstring(init) or ''}\n\n"
    fields = [it for it in members if "(" not in it.signature.partition(":")[0]]
    text += "".join(f"- `{it.signature}`{inline(f': {it.doc}') if it.doc else ''}\n" for it in fields)
    text += "\n" if fields else ""
    for it in members:
        if it not in fields:
            text += entry(it, "####", f"{thing.__name__}.")
    return text


def inline(doc: str) -> str:
    """The text of a field within a list, with its examples."""
    return textwrap.indent(doc, "  ").removeprefix("  ")


def error_entries() -> Iterator[str]:
    yield "All are a `DbioError`. The message has the facts, and what to do next; it has no credentials.\n\n"
    for name in errors():
        bases = ", ".join(f"`{base.__name__}`" for base in getattr(dbio, name).__bases__ if base is not Exception)
        yield f"- `{name}`{f' ({bases})' if bases else ''}: {inline(inspect.getdoc(getattr(dbio, name)) or '')}\n"
    yield "\n"


def types(homes: dict[str, list[str]]) -> Iterator[str]:
    for module, names in homes.items():
        for name in names:
            thing = getattr(import_module(module), name)
            if inspect.isfunction(thing):
                yield f"### `{name}`\n\n`from {module} import {name}`\n\n"
                yield f"```py\n{of_function(thing).signature}\n```\n\n{inspect.getdoc(thing)}\n\n"
            elif inspect.isclass(thing) and thing is not Any:
                yield class_entry(thing, name, module=module)
            else:
                found = alias(module, name)
                yield f"### `{name}`\n\n`from {module} import {name}`\n\n"
                yield f"```py\n{found.definition}\n```\n\n{found.doc}\n\n"
