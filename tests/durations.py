"""What is slow in `make test`: `python -m tests.durations REPORT` writes the table of docs/TESTING.md.

REPORT is a file of pytest's `--junitxml`. A test function is slow if its cases, with their fixtures, take 10 s or more
together. Its marker `slow` says what that is worth. If slow functions have no marker, the program names them and exits
with 1.
"""

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
DOCUMENT = ROOT / "docs/TESTING.md"
SLOW_S = 10
HEAD = "| test | seconds | what they are worth |\n|---|--:|---|\n"
_LINES = re.compile(r"\A(\|.*\n)*")
_ROW = re.compile(r"\| `(?P<test>\w+)` \| (?P<seconds>\d+|\?) \| (?P<why>.+) \|")


def declared() -> dict[str, str]:
    """The functions that have the marker, each with its reason."""
    found: dict[str, str] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef):
                for reason in map(_reason, node.decorator_list):
                    if reason is not None:
                        assert node.name not in found, f"two tests are called {node.name}"
                        found[node.name] = reason
    return found


def _reason(decorator: ast.expr) -> str | None:
    if isinstance(decorator, ast.Call) and ast.unparse(decorator.func) == "pytest.mark.slow":
        (reason,) = decorator.args
        return str(ast.literal_eval(reason))
    return None


def measured(report: Path) -> dict[str, float]:
    """Seconds by function, the slowest first."""
    seconds: dict[str, float] = defaultdict(float)
    for case in ElementTree.parse(report).iter("testcase"):
        seconds[case.attrib["name"].partition("[")[0]] += float(case.attrib["time"])
    return dict(sorted(seconds.items(), key=lambda it: -it[1]))


def rows(document: str) -> dict[str, tuple[str, str]]:
    """Of the table: seconds and reason by function."""
    _, _, table = document.partition(HEAD)
    lines = table.partition("\n\n")[0].splitlines()
    return {it["test"]: (it["seconds"], it["why"]) for it in map(_ROW.fullmatch, lines) if it}


def written(document: str, reasons: Mapping[str, str], seconds: Mapping[str, float]) -> str:
    """The document with a row for each reason, the slowest first. What was not measured keeps its seconds."""
    before, head, after = document.partition(HEAD)
    assert head, "the table is not there"
    old = rows(document)
    known = {test: str(round(seconds[test])) if test in seconds else old.get(test, ("?", ""))[0] for test in reasons}
    order = sorted(reasons, key=lambda test: (-int(known[test].replace("?", "0")), test))
    table = "".join(f"| `{test}` | {known[test]} | {reasons[test]} |\n" for test in order)
    return before + head + table + _LINES.sub("", after, count=1)


def main(report: Path) -> None:
    reasons, seconds = declared(), measured(report)
    DOCUMENT.write_text(written(DOCUMENT.read_text(), reasons, seconds))
    for test in sorted(reasons.keys() & seconds.keys()):
        if seconds[test] < SLOW_S:
            print(f"{test} takes {seconds[test]:.0f} s: it needs no marker")
    silent = [f"{test} takes {s:.0f} s" for test, s in seconds.items() if s >= SLOW_S and test not in reasons]
    if silent:
        sys.exit("\n".join([*silent, "make them faster, or mark them with pytest.mark.slow('what that is worth')"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
