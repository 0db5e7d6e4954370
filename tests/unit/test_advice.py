"""No message and no document advises to delete an object of the log that may be valid."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

OBJECTS = r"(?:the |this |these )?(?:commit |start )?(?:markers?|checkpoints?|objects?)\b"
ADVICE = re.compile(
    rf"(?<!not )(?<!cannot )(?<!never )(?<!may )\b(?:remove|delete|erase) (?:(?:it|them|those|this)\b|{OBJECTS})", re.I
)

SURE: dict[str, str] = {
    "decides nothing, but readers may believe it; delete it": "withdrawn: a checkpoint or a purge decides otherwise",
    "delete it, since it names files that are gone": "a marker that came after its transaction was aborted and purged",
    "delete it with the tools of its store": "a directory that is no table, whose user asked to drop it",
    "change or remove it with": "a setting",
    "change it, or remove it with": "a setting",
    "or remove it with": "a table that a failed write created",
    "change or remove those listed, with `dbio set`": "settings",
    "To remove them, use dbio.write(": "partition columns",
    "to remove it with all of its rows": "a table, by its user",
    "other processes delete it": "no advice",
    "may hold such rows: delete it yourself": "behind a link, where no erasure deletes",
    "keep what they have: erase them there, too": "rows that their owner wants to be gone",
}
"""What may be deleted, or is no advice: why."""


def texts_of(path: Path) -> Iterator[str]:
    """The texts in the code that a user may see, and not its docstrings."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    inner = {id(it) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for it in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(it.value) if isinstance(it, ast.Constant) else "…" for it in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings | inner:
            yield node.value


def bad_advice(text: str) -> list[str]:
    for sure in SURE:
        text = text.replace(sure, "")
    return ADVICE.findall(text)


@pytest.mark.parametrize("package", ["dbio_commit", "vacuum"])
def test_no_message_advises_to_delete_what_may_be_valid(package: str) -> None:
    texts = ((path, text) for path in sorted((ROOT / package).rglob("*.py")) for text in texts_of(path))
    found = [(path.name, text) for path, text in texts if bad_advice(text)]
    assert not found


def test_what_is_looked_for_is_found() -> None:
    assert bad_advice("inspect it: bring back what its writer wrote, or remove it if no writer can have made it")
    assert bad_advice("inspect 3 corrupt markers, and remove those that no dbio writer wrote")
    assert bad_advice("inspect it with `dbio show`, and remove the marker if that commit was a mistake")
    assert not bad_advice("do not delete it: bring back what its writer wrote")
