"""The wheel: that it holds the packages and nothing else, and works where it is installed, with what it asks for."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping, Sequence
from email import message_from_bytes
from email.message import Message
from pathlib import Path
from zipfile import ZipFile

import pytest

ROOT = Path(__file__).parents[1]
CLI = ("jinja2", "rich", "typer")
OPTIONAL = (
    *CLI,
    "adlfs",
    "apscheduler",
    "fsspec",
    "prometheus_client",
    "pydantic",
    "pyspark",
    "s3fs",
    "structlog",
    "tenacity",
)


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(out), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True, text=True)
    (found,) = out.glob("dbio_commit-*.whl")
    return found


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel alone; what it needs comes from the environment of the tests."""
    target = tmp_path_factory.mktemp("installed")
    command = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--target", str(target), str(wheel)]
    subprocess.run(command, check=True)
    return target


def metadata(wheel: Path) -> Message:
    with ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        return message_from_bytes(archive.read(name))


def run(
    installed: Path, without: Sequence[str], arguments: Sequence[str], tmp_path: Path
) -> subprocess.CompletedProcess[str]:
    """Python on the installed wheel, as if those modules were not installed, in Spark's workers either."""
    for module in without:
        (tmp_path / f"{module}.py").write_text(f"raise ModuleNotFoundError('no module {module}', name='{module}')")
    env = os.environ | {"PYTHONPATH": f"{tmp_path}{os.pathsep}{installed}"}
    command = [sys.executable, *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, env=env, cwd=tmp_path)


def test_the_wheel_holds_both_packages_and_nothing_else(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        tops = {name.split("/")[0] for name in archive.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"dbio_commit", "vacuum"}


def test_the_wheel_says_that_both_packages_have_types(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        assert {"dbio_commit/py.typed", "vacuum/py.typed"} <= {*archive.namelist()}


def test_the_wheel_has_all_that_a_page_is_made_of(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        assert {"dbio_commit/maintenance/report/page.html.jinja", "dbio_commit/maintenance/report/page.css"} <= {
            *archive.namelist()
        }


def test_the_wheel_has_its_licence(wheel: Path) -> None:
    with ZipFile(wheel) as archive:
        (text,) = (archive.read(name).decode() for name in archive.namelist() if name.endswith("/LICENSE"))
    assert text == (ROOT / "LICENSE").read_text()
    assert text.split()[:4] == ["Apache", "License", "Version", "2.0,"]
    assert metadata(wheel)["License-Expression"] == "Apache-2.0"


def test_the_wheel_offers_an_extra_for_each_store_for_spark_and_for_each_command(wheel: Path) -> None:
    about = metadata(wheel)
    assert {"cli", "s3", "azure", "gcs", "spark", "local", "vacuum"} <= {*about.get_all("Provides-Extra", [])}
    assert about["Requires-Python"] == ">=3.11"


def for_extras(wheel: Path, *extras: str) -> set[str]:
    """The packages that the extras ask for, by name."""
    found = set()
    for line in metadata(wheel).get_all("Requires-Dist", []):
        if any(f"extra == '{extra}'" in line for extra in extras):
            found.add(re.split(r"[^\w-]", line)[0])
    return found


def test_one_extra_alone_brings_pyspark(wheel: Path) -> None:
    assert {"pyspark", "pandas", "sqlglot", "tenacity"} == for_extras(wheel, "local")
    others = {*metadata(wheel).get_all("Provides-Extra", [])} - {"local", "demo"}  # which has local in it
    assert {"pyspark", "py4j"}.isdisjoint(for_extras(wheel, *others))
    assert for_extras(wheel, "spark") == {"pandas", "sqlglot", "tenacity"}


@pytest.mark.parametrize(
    "platform",
    [{"pyspark": "3.5.0", "numpy": "1.23.5", "pandas": "1.5.3"}, {"pyspark": "4.0.5", "pandas": "2.2.3"}],
    ids=lambda it: it["pyspark"],
)
def test_an_installation_leaves_the_spark_that_is_there(
    wheel: Path, tmp_path: Path, platform: Mapping[str, str]
) -> None:
    """pip resolves without an index. What the platform lacks is in the environment of the tests."""
    venv.create(tmp_path, with_pip=False)
    (own,) = tmp_path.glob("lib/python*/site-packages")
    (own / "rest.pth").write_text(f"import site; site.addsitedir({sysconfig.get_path('purelib')!r})")
    for name, version in platform.items():
        about = own / f"{name}-{version}.dist-info"
        about.mkdir()
        (about / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
    extras = ",".join({*metadata(wheel).get_all("Provides-Extra", [])} - {"bench", "demo", "dev"})
    command = [str(tmp_path / "bin/python"), "-m", "pip", "install", "--dry-run", "--no-index", "--quiet"]
    command += ["--report", "-", f"{wheel}[{extras}]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert {it["metadata"]["name"] for it in json.loads(done.stdout)["install"]} <= {"dbio-commit"}


def test_without_an_extra_the_wheel_needs_cachetools_msgspec_and_pyarrow_only(
    wheel: Path, installed: Path, tmp_path: Path
) -> None:
    needed = [line for line in metadata(wheel).get_all("Requires-Dist", []) if "extra ==" not in line]
    assert [line.split(">")[0] for line in needed] == ["cachetools", "msgspec", "pyarrow"]
    program = """
import sys
import dbio_commit as dbio
assert dbio.__file__.startswith(sys.argv[1])
table = dbio.Table("table")
for operation in ("append", "overwrite"):
    with table.begin(operation) as transaction:
        path = f"part-0-tid-{transaction.tid}-0-0-c000.parquet"
        open(f"table/{path}", "wb").write(b"12345")
        transaction.add([dbio.FileInfo(path=path, size=5)], looked_at=True)
assert [file.tid for file in table.snapshot().files] == [transaction.tid]
assert table.check().ok
assert [it.size for it in dbio.vacuum("table", 0, force=True).deleted] == [5]
"""
    done = run(installed, OPTIONAL, ["-c", program, str(installed)], tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.long
def test_spark_writes_and_reads_where_the_command_line_is_not_installed(installed: Path, tmp_path: Path) -> None:
    program = """
import sys
from pyspark.sql import SparkSession
import dbio_commit as dbio
assert dbio.__file__.startswith(sys.argv[1])
builder = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false")
spark = builder.config("spark.sql.shuffle.partitions", "1").getOrCreate()
dbio.enable(spark)
dbio.write(spark.range(3), "table")
spark.range(4).write.format("dbio").mode("overwrite").save("table")
assert dbio.read(spark, "table").count() == 4
assert len(dbio.vacuum("table", 0, force=True, spark=spark).deleted) > 0
assert not {"typer", "rich"} & sys.modules.keys()
print("done")
"""
    done = run(installed, CLI, ["-c", program, str(installed)], tmp_path)
    assert done.stdout.splitlines()[-1:] == ["done"], done.stderr


def test_the_command_needs_spark_only_for_spark(installed: Path, tmp_path: Path) -> None:
    done = run(installed, ["pyspark"], ["-m", "dbio_commit.cli", "files", "nothing"], tmp_path)
    assert done.returncode == 1
    assert done.stderr.startswith("dbio: there is no table at ")


def not_installed(package: str, extra: str) -> str:
    return f'needs the package {package}, which is not installed; run `pip install "dbio-commit[{extra}]"`'


@pytest.mark.parametrize("missing", CLI)
def test_the_command_without_its_extra_says_what_to_install(installed: Path, tmp_path: Path, missing: str) -> None:
    done = run(installed, [missing], ["-m", "dbio_commit.cli", "files", "table"], tmp_path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == f"dbio: the command line {not_installed(missing, 'cli')}\n"


@pytest.mark.parametrize("missing", ["apscheduler", "prometheus_client", "structlog", "jinja2", "typer"])
def test_the_service_without_its_extra_says_what_to_install(installed: Path, tmp_path: Path, missing: str) -> None:
    (tmp_path / "vacuum.toml").write_text('[[tables]]\npath = "table"\n')
    done = run(installed, [missing], ["-m", "vacuum", "once", "--config", "vacuum.toml"], tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"vacuum: the schedule {not_installed(missing, 'vacuum')}\n"


# --- what tests and images are made of ----------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["azurite", "s3rver"])
def test_each_package_of_npm_is_locked_by_its_hash_and_by_no_registry(name: str) -> None:
    place = ROOT / ".ci/npm" / name
    lock = json.loads((place / "package-lock.json").read_text())
    asked = json.loads((place / "package.json").read_text())["dependencies"]
    assert lock["packages"][""]["dependencies"] == asked
    assert lock["packages"][f"node_modules/{name}"]["version"] == asked[name]
    packages = {path: it for path, it in lock["packages"].items() if path}
    assert all(it["integrity"].startswith("sha512-") for it in packages.values())
    assert not any("resolved" in it for it in packages.values())


def test_what_make_installs_from_npm_is_what_the_lockfiles_say() -> None:
    text = (ROOT / "Makefile").read_text()
    assert "npm ci --prefix $(@D) --ignore-scripts" in text
    assert not re.search(r"npm (install|i|exec)\b", text)
