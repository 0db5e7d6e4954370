"""The coverage-guided fuzzer: a short run of each harness, always the same one; and that it finds what is wrong."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.fuzz.directories import directories
from tests.fuzz.guided import ROOT, Outcome, fuzz
from tests.fuzz.harnesses import HARNESSES, examples, to_bytes, to_objects

pytest.importorskip("atheris", reason="atheris has wheels for Python 3.11 to 3.13 on Linux, x86-64")


RUNS = {
    1000: ("commit", "descriptor", "packed", "path", "directory", "version", "list", "parquet", "expression"),
    2000: tuple(name for name in HARNESSES if name != "table"),
}
"""The harnesses that get so many inputs; the fewer are those of what decides most. Those of whole tables take seconds
when they are instrumented: `test_tables` has them."""


@pytest.fixture(scope="module")
def runs(request: pytest.FixtureRequest) -> int:
    """How many inputs each harness gets."""
    number: int = request.param
    return number


@pytest.fixture(scope="module")
def outcomes(runs: int, tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Outcome]:
    return dict(fuzz(RUNS[runs], tmp_path_factory.mktemp("fuzz"), runs=runs, processes=os.cpu_count() or 1))


@pytest.mark.slow("1,000 inputs from libFuzzer for each of nine parsers")
@pytest.mark.parametrize(
    ("runs", "name"),
    [
        pytest.param(runs, name, marks=pytest.mark.long if runs > 1000 else ())
        for runs, names in RUNS.items()
        for name in names
    ],
    indirect=["runs"],
    scope="module",
)
def test_whatever_the_fuzzer_makes_of_good_inputs_is_read_or_refused(
    name: str, runs: int, outcomes: Mapping[str, Outcome]
) -> None:
    harness = HARNESSES[name]
    seeds = {*harness.seeds()}
    accepted = [seed for seed in seeds if harness.check(seed) is not None]
    assert len(accepted) * 4 > len(seeds), "it does not start from good inputs"
    outcome = outcomes[name]
    assert outcome.failing is None, f"{outcome.error}\n{outcome.failing.read_bytes()!r}"
    assert outcome.executions >= runs
    corpus = {path.read_bytes() for path in outcome.corpus.iterdir()}
    assert corpus - seeds, "nothing reaches further than the seeds: the parser is not instrumented"
    assert any(harness.check(data) is None for data in corpus), "nothing is refused"


def test_a_directory_survives_as_bytes() -> None:
    for objects in examples(directories()):
        again = to_objects(to_bytes(objects))
        for path, (body, age) in objects.items():
            if not any(b"\0" in it for it, _ in objects.values()) and "_checkpoint_" not in path:
                assert again[path] == (body, age)


DEFECTS = {
    "a path outside the table": (
        "path",
        "protocol/names.py",
        "if len(path) <= _MAX_PATH and",
        'if path[:4] == "zq7=" or len(path) <= _MAX_PATH and',
    ),
    "a path outside the table, in one kind of marker": (
        "commit",
        "protocol/markers/commit.py",
        "    names.check_paths(marker.removed, where=where)",
        '    if not marker.dbio_commit or marker.dbio_commit.operation != "rewrite":\n'
        "        names.check_paths(marker.removed, where=where)",
    ),
    "an error of another kind": (
        "descriptor",
        "protocol/markers/descriptor.py",
        "except InvalidInputError as error:",
        "except OSError:",
    ),
    "a query where a value is expected": (
        "expression",
        "protocol/expressions.py",
        '"values when where with"',
        '"values when where with".replace("select ", "")',
    ),
    "metadata that an engine evaluates": (
        "commit",
        "protocol/column_metadata.py",
        'if "metadata" in part:',
        'if "metadata" in part and part.get("name") != "id":',
    ),
    "too much memory": (
        "descriptor",
        "protocol/markers/descriptor.py",
        "    return descriptor\n",
        "    bytearray(len(body) << 18)\n    return descriptor\n",
    ),
}


@pytest.mark.long_for(*DEFECTS.keys() - {"a path outside the table"})
@pytest.mark.parametrize("defect", DEFECTS.values(), ids=DEFECTS)
def test_the_fuzzer_finds(defect: tuple[str, str, str, str], tmp_path: Path) -> None:
    name, module, right, wrong = defect
    shutil.copytree(ROOT / "dbio_commit", tmp_path / "dbio_commit")
    source = tmp_path / "dbio_commit" / module
    assert source.read_text().count(right) == 1
    source.write_text(source.read_text().replace(right, wrong))
    [(_, outcome)] = fuzz([name], tmp_path, runs=100_000, root=tmp_path)
    assert outcome.failing is not None
    HARNESSES[name].check(outcome.failing.read_bytes())  # of the right package: nothing is wrong
