"""The wheel: that it holds the packages and nothing else, and works where it is installed."""

import subprocess
import sys
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (found,) = out.glob("dbio_commit-*.whl")
    return found


def test_the_wheel_holds_both_packages_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dbio_commit", "vacuum"}


def test_the_wheel_offers_an_extra_for_each_store_and_for_spark(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        (metadata,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        lines = archive.read(metadata).decode().splitlines()
    assert {"s3", "azure", "spark"} <= {line.removeprefix("Provides-Extra: ") for line in lines}
    assert "Requires-Python: >=3.11" in lines


def test_an_installed_wheel_has_the_command_and_needs_spark_only_for_spark(wheel: Path, tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(tmp_path), str(wheel)],
        check=True,
    )
    program = (
        "import sys; sys.path.insert(0, sys.argv[1]); sys.modules['pyspark'] = None\n"
        "import dbio_commit, dbio_commit.cli, vacuum\n"
        "assert dbio_commit.__file__.startswith(sys.argv[1])\n"
        "dbio_commit.cli.app(['files', sys.argv[1] + '/nothing'], standalone_mode=True)"
    )
    run = subprocess.run([sys.executable, "-c", program, str(tmp_path)], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr.startswith("dbio: there is no table at ")
