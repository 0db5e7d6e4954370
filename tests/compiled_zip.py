"""Compiles what Spark's Python workers import: `python -m tests.compiled_zip`, once for an environment.

They take PySpark from a zip that has its sources only, and Python keeps nothing of what it compiles there: each process
of Spark's Python would take most of a second to do that again, and tests start hundreds of them.
"""

import compileall
import sys
import warnings
from pathlib import Path
from py_compile import PycInvalidationMode
from tempfile import TemporaryDirectory
from zipfile import ZipFile

import pyspark


def main() -> None:
    warnings.simplefilter("ignore", SyntaxWarning)  # about others' code
    for archive in sorted((Path(pyspark.__file__).parent / "python/lib").glob("*.zip")):
        compile_zip(archive)


def compile_zip(archive: Path) -> None:
    """Puts compiled modules beside the sources; those of an archive that has them already are made again."""
    unfinished = archive.with_suffix(".new")
    with TemporaryDirectory() as directory:
        with ZipFile(archive) as old:
            old.extractall(directory)
        made = compileall.compile_dir(
            directory,
            maxlevels=100,
            quiet=1,
            force=True,
            legacy=True,  # beside the source, where alone it is looked for in a zip
            invalidation_mode=PycInvalidationMode.UNCHECKED_HASH,
            stripdir=directory,
            prependdir=str(archive),
        )
        if not made:
            sys.exit(f"{archive} was left as it is: not all of it could be compiled")
        with ZipFile(unfinished, "w") as new:  # not compressed: it is read more often than written
            for path in sorted(Path(directory).rglob("*")):
                new.write(path, path.relative_to(directory))
    unfinished.replace(archive)


if __name__ == "__main__":
    main()
