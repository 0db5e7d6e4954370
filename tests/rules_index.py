"""Makes an index for the site, `docs/RULES.md`: for each rule of PROTOCOL.md the tests that cite it.

A rule is an invariant (I1 to I10), a promise of a snapshot (R1 to R3) or a numbered section. A test cites a rule in its
body, its docstring, its decorators, the comment above it, or a heading `# --- … ---` above a group of tests. A citation
outside of functions, as in the docstring of a module, belongs to the whole file.
"""

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from textwrap import fill
from typing import NamedTuple

TESTS = Path(__file__).parent
SPECIFICATION = TESTS.parent / "docs/PROTOCOL.md"

_WITHOUT_CITATIONS = {"rules_index.py", "test_specification.py"}
"""Files whose examples of citations are none."""

# --- citations ----------------------------------------------------------------------------------------------------

_NUMBER = r"\d{1,2}(?:\.\d{1,2})?\b"
_ASIDE = r" \([^()]*\)|,? steps? \d"
_NUMBERS = rf"({_NUMBER}(?:(?:{_ASIDE})*(?:, and |, | and | or | to ){_NUMBER})*)"
_CITED = re.compile(
    rf"\bPROTOCOL(?:\.md)?(?:#[\w-]+)?[)\]`'\",:]* (?:sections? )?{_NUMBERS}"
    rf"|\b[Ss]ections? {_NUMBERS}"
    rf"|(?<![\w.]){_NUMBERS} of \S*PROTOCOL"
    rf"|-> None: +# {_NUMBERS}"
)
_ALL_INVARIANTS = re.compile(r"\bI1 to I\d+\b")
"""Explains what such a number is; cites none of them."""
_ALL_PROMISES = re.compile(r"\bR1 to R3\b")
_RULE = re.compile(r"\b(?:I(?:10|[1-9])|R[1-3])\b")


def sections_cited(text: str) -> set[str]:
    """The numbers of all sections that a text cites; no other document has numbered ones."""
    lists = (next(filter(None, match.groups())) for match in _CITED.finditer(_unwrapped(text)))
    return {number for found in lists for number in re.findall(_NUMBER, re.sub(_ASIDE, "", found))}


def rules_cited(text: str) -> set[str]:
    """The invariants and promises that a text cites."""
    text = _ALL_PROMISES.sub("R1, R2, R3", _ALL_INVARIANTS.sub("", _unwrapped(text)))
    return {*_RULE.findall(text)}


def _unwrapped(text: str) -> str:
    """A citation may go on in the next line, of a comment too."""
    return re.sub(r"\s*\n\s*(?:#+ )?", " ", text)


class Citation(NamedTuple):
    """A place in the tests that cites a rule."""

    path: str
    """Relative to `tests`."""
    name: str
    """The function; "" for the whole file."""


@cache
def find_citations() -> dict[str, set[Citation]]:
    """Those of each rule and section, by its number."""
    found: dict[str, set[Citation]] = {}
    for path in sorted(TESTS.rglob("*.py")):
        if path.name not in _WITHOUT_CITATIONS:
            for name, text in _passages(path.read_text()):
                for number in sections_cited(text) | rules_cited(text):
                    found.setdefault(number, set()).add(Citation(path.relative_to(TESTS).as_posix(), name))
    return found


_HEADING = re.compile(r"# --- .* -+")


def _passages(source: str) -> Iterator[tuple[str, str]]:
    """The parts of a module, each with the name of its function; "" outside of functions."""
    owners = _owners(source)
    passages: dict[str, list[str]] = {}
    heading = ""
    for number, line in enumerate(source.splitlines(), 1):
        name = owners.get(number, "")
        if not name and _HEADING.fullmatch(line):
            heading = line
        elif name.startswith("test_") and name not in passages:
            passages[name] = [heading, line]
        else:
            passages.setdefault(name, []).append(line)
    for name, lines in passages.items():
        yield name, "\n".join(lines)


def _owners(source: str) -> dict[int, str]:
    """Which function, or method of a class, each line is part of, with the comment right above it."""
    lines, owners = source.splitlines(), dict[int, str]()

    def own(body: list[ast.stmt], prefix: str) -> None:
        for node in body:
            if isinstance(node, ast.ClassDef):
                own(node.body, f"{prefix}{node.name}.")
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                first = min([node.lineno, *(it.lineno for it in node.decorator_list)])
                while first > 1 and re.match(r" *#(?! ---)", lines[first - 2]):
                    first -= 1
                for number in range(first, (node.end_lineno or node.lineno) + 1):
                    owners[number] = prefix + node.name

    own(ast.parse(source).body, "")
    return owners


# --- the document -------------------------------------------------------------------------------------------------

_INVARIANTS = "5"
"""The section of I1 to I10, which have a part of their own."""

_INTRODUCTION = """\
# The tests of each rule

This page leads from each rule of [PROTOCOL.md](PROTOCOL.md) to the tests that cite it. The rules are the invariants
[I1 to I10](PROTOCOL.md#5-invariants), the promises [R1 to R3](PROTOCOL.md#81-snapshot) of a snapshot, and the numbered
sections. Other tests may depend on a rule without citing it.

Paths are relative to `tests/`. Below each test file are the tests and helper functions that cite the rule. "The whole
file" means that the file cites the rule outside of functions, as in the docstring of the module. For other files, such
as the model and the mutations of the simulation, a number says how many functions cite the rule.
"""


def titles(text: str) -> dict[str, str]:
    """The headings of the specification's sections, by number."""
    return dict(re.findall(r"^#{2,3} (\d+(?:\.\d+)?)\.? (.+)$", text, re.MULTILINE))


def rules(text: str) -> dict[str, str]:
    """The invariants and promises of the specification, by number: the first sentence of each."""
    found = re.findall(r"^- \*\*([IR]\d+)\*\* (.+(?:\n  .+)*)", text, re.MULTILINE)
    return {number: re.split(r"(?<=[.:]) ", _unwrapped(rule))[0].rstrip(":.") + "." for number, rule in found}


def page() -> str:
    """The index of the specification."""
    text, citations = SPECIFICATION.read_text(), find_citations()
    parts = [_INTRODUCTION, "## Invariants and promises\n"]
    for number, rule in rules(text).items():
        parts += [f"### {number}\n", f"{fill(rule, 120)}\n", _listed(citations.get(number, set()))]
    headings = titles(text)
    del headings[_INVARIANTS]
    parts.append("## Sections\n")
    for number in filter(citations.get, headings):
        parts += [f"### {number} {headings[number]}\n", _listed(citations[number])]
    others = ", ".join(number for number in headings if number not in citations)
    parts.append(f"No test cites these sections by number: {others}.\n")
    return "\n".join(parts)


def _listed(citations: set[Citation]) -> str:
    names: dict[str, list[str]] = {}
    for path, name in sorted(citations):
        names.setdefault(path, []).append(name)
    lines = list[str]()
    for path, found in names.items():
        link, functions = f"- [{path}](../tests/{path})", [name for name in found if name]
        if not Path(path).name.startswith("test_"):
            lines.append(f"{link}: {len(functions)}" if functions else link)
        else:
            lines.append(f"{link}: the whole file" if "" in found else link)
            lines += [f"  - `{name}`" for name in functions]
    return "\n".join(lines) + "\n"
