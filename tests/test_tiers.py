"""`make test` and `make test-long`: together they have every test, and none twice. `make check` has some of the first.

What neither runs is skipped there, and says which target runs it.
"""

import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests import conftest, durations, tiers

ROOT = Path(__file__).parents[1]


def pytest_arguments(target: str) -> list[str]:
    """Those of a target of the Makefile, without those that say how many run at once."""
    command = ["make", "--dry-run", "--no-print-directory", target]
    said = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    (arguments,) = re.findall(r"-m pytest -n \d+ --dist loadfile --no-loadscope-reorder (.*)", said)
    return shlex.split(arguments)


def test_every_test_is_in_one_of_two_tiers(pytestconfig: pytest.Config) -> None:
    assert pytest_arguments("test") == ["-m", "not long"]
    assert pytest_arguments("test-long") == ["-m", "long"]
    assert not {"-k", "-m", "--ignore", "--deselect"} & {*pytestconfig.getini("addopts")}
    assert pytestconfig.getini("testpaths") == ["tests"]


def test_check_has_no_test_that_is_not_in_test() -> None:
    assert pytest_arguments("check")[:2] == ["-m", "not long and not server"]


def test_what_is_skipped_here_names_the_target_that_runs_it() -> None:
    targets = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    skipped = [re.findall(r'reason="make ([^"]+)"', path.read_text()) for path in (ROOT / "tests").rglob("test_*.py")]
    named = {target for found in skipped for target in found if target[0].isalpha()}
    assert {"test-rgw", "test-browser"} <= named <= targets


def test_what_is_marked_as_long_is_a_case(pytestconfig: pytest.Config) -> None:
    if conftest.WITHOUT_CASES not in pytestconfig.stash:
        pytest.skip("not all tests were collected; make test collects them")
    assert pytestconfig.stash[conftest.WITHOUT_CASES] == set()


@pytest.mark.parametrize(
    ("case", "part"), [("s3", "s3"), ("gcs-incremental-2", "incremental-2"), ("tiny parts", "tiny parts")]
)
def test_a_case_has_the_parts_of_its_id(case: str, part: str) -> None:
    assert tiers.has_part(case, part)
    assert not tiers.has_part(f"{case}0", part)


@pytest.mark.parametrize(
    ("cases", "spare"),
    [("", ""), ("a", ""), ("ab", ""), ("abc", "b"), ("abcde", "bcd")],
)
def test_the_first_and_the_last_case_of_a_test_with_spark_are_not_spare(cases: str, spare: str) -> None:
    assert tiers.spare_cases(cases) == [*spare]


def test_what_is_slow_is_named_with_its_worth_or_as_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    report = tmp_path / "report.xml"
    cases = {"test_a[1]": 2.4, "test_a[2]": 9.4, "test_b": 3, "test_new": 11, "test_c": 1}
    lines = [f'<testcase classname="tests.x" name="{name}" time="{seconds}"/>' for name, seconds in cases.items()]
    report.write_text(f"<testsuites><testsuite>{''.join(lines)}</testsuite></testsuites>")
    monkeypatch.setattr(durations, "declared", lambda: {"test_a": "all a", "test_b": "all b"})

    with pytest.raises(SystemExit, match=r"\Atest_new takes 11 s\nmake them faster"):
        durations.main(report)

    assert capsys.readouterr().out.splitlines() == [
        "test_a takes 12 s: all a",
        "test_b takes 3 s: it needs no marker",
    ]


def test_every_slow_test_says_what_it_is_worth() -> None:
    assert all(durations.declared().values())
