"""What is slow in `make test`, and what that is worth: `python -m tests.durations REPORT`.

REPORT is a file of pytest's `--junitxml`. A test function is slow if its cases, with their fixtures, take 10 s or more
together. Its marker `slow` says what that is worth. If slow functions have no marker, the program names them and exits
with 1.
"""

import ast
import sys
from collections import defaultdict
from pathlib import Path
from xml.etree import ElementTree

ROOT = Path(__file__).parents[1]
SLOW_S = 10


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


def main(report: Path) -> None:
    reasons, seconds = declared(), measured(report)
    for test, s in seconds.items():
        if test in reasons and s >= SLOW_S:
            print(f"{test} takes {s:.0f} s: {reasons[test]}")
        elif test in reasons:
            print(f"{test} takes {s:.0f} s: it needs no marker")
    silent = [f"{test} takes {s:.0f} s" for test, s in seconds.items() if s >= SLOW_S and test not in reasons]
    if silent:
        sys.exit("\n".join([*silent, "make them faster, or mark them with pytest.mark.slow('what that is worth')"]))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
