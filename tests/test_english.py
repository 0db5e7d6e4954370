"""Plain English: words that documents, docstrings, comments and messages of the product do not use.

docs/CONTRIBUTING.md has all rules. Names in code are not checked, and neither are the tests.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]

INSTEAD = {
    "told|tells": "records, shows, says; distinguishes",
    "whoever": "anyone; the process that; the caller; the writer",
    "where there (is|are|was|were)": "if there is",
    "tables? of ours": "a dbio table",
    "of ours|of theirs": "of this package; the name of the owner",
    "strangers?": "another tool",
    "nothing but": "only",
    "what is so|that which": "the name of the thing",
    "not so here": "a sentence that begins with its subject",
    "go(es)? by": "uses",
}
"""What not to write, as regular expressions of whole words, and what to write."""

_GAP = r"[\s#*>]+"  # also over the end of a line, with the sign of a comment or quotation at the next
_WORDS = {
    re.compile(rf"\b({words})\b".replace(" ", _GAP), re.IGNORECASE): instead for words, instead in INSTEAD.items()
}


def product_files() -> Iterator[Path]:
    yield from (ROOT / "README.md", ROOT / "CHANGELOG.md")
    kinds = {".py", ".md", ".java", ".css", ".jinja", ".toml", ".yaml", ".env", ".dockerignore"}
    for room in ("bench", "dbio_commit", "docker", "docs", "vacuum"):
        files = sorted((ROOT / room).rglob("*"))
        yield from (path for path in files if path.suffix in kinds or path.name == "Dockerfile")


def prose(path: Path) -> Iterator[tuple[int, str]]:
    """What is checked of a file: parts of its text, each with the number of its first line."""
    text = path.read_text()
    if path.suffix == ".py":
        yield from comments(text)
        yield from literals(text)
    elif path.suffix == ".md":
        text = re.sub(r"\]\([^)]*\)", "]", text)  # names of files stay when titles change
        if path.name == "CONTRIBUTING.md":
            text = re.sub(r"(?<=\n## Plain English\n).*?(?=\n## )", blank, text, flags=re.DOTALL)  # it quotes the words
        yield 1, text
    else:
        yield 1, text


def blank(match: re.Match[str]) -> str:
    return "\n" * match[0].count("\n")


def comments(source: str) -> Iterator[tuple[int, str]]:
    """Comments on consecutive lines are one."""
    block: list[tokenize.TokenInfo] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            if block and token.start[0] > block[-1].start[0] + 1:
                yield block[0].start[0], "\n".join(it.string for it in block)
                block = []
            block.append(token)
    if block:
        yield block[0].start[0], "\n".join(it.string for it in block)


def literals(source: str) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield node.lineno, node.value


def violations(path: Path) -> Iterator[str]:
    for first, text in prose(path):
        for words, instead in _WORDS.items():
            for match in words.finditer(text):
                line = first + text.count("\n", 0, match.start())
                yield f"{path.relative_to(ROOT)}:{line}: {' '.join(match[0].split())!r}; write: {instead}"


@pytest.mark.parametrize("path", [*product_files()], ids=lambda it: it.relative_to(ROOT).as_posix())
def test_a_file_of_the_product_is_in_plain_words(path: Path) -> None:
    assert not [*violations(path)]


@pytest.mark.parametrize(
    ("name", "text", "found"),
    [
        ("a.md", "Vacuum takes it\nwhere there\nis none.", ["a.md:2: 'where there is'"]),
        ("a.md", "[A title](0021-the-start-marker-tells.md)", []),
        ("a.py", "told = 1  # as the caller said\n", []),
        ("a.py", "# Nothing\n# but a line.\n\n# Whoever\n", ["a.py:1: 'Nothing # but'", "a.py:4: 'Whoever'"]),
        ("a.py", 'f"{told} by a file "\\\n "of ours"\n', ["a.py:1: 'of ours'"]),
        ("a.py", 'def f():\n    """One.\n\n    What is so.\n    """\n', ["a.py:4: 'What is so'"]),
        ("a.java", "/** Strangers\n * told us. */", ["a.java:2: 'told'", "a.java:1: 'Strangers'"]),
        (
            "CONTRIBUTING.md",
            "# A\n\n## Plain English\n\nNot: told.\n\n## B\n\nIt tells.\n",
            ["CONTRIBUTING.md:9: 'tells'"],
        ),
    ],
)
def test_words_are_found_in_prose_and_not_in_code(
    name: str, text: str, found: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(f"{__name__}.ROOT", tmp_path)
    path = tmp_path / name
    path.write_text(text)
    assert [it.partition("; write: ")[0] for it in violations(path)] == found
