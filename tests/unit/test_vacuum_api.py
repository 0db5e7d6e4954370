"""`dbio.vacuum`: where users find vacuum, and that nothing else comes with the import."""

import subprocess
import sys

import dbio_commit as dbio
import vacuum


def test_dbio_vacuum_is_the_function_of_the_package_vacuum() -> None:
    assert dbio.vacuum is vacuum.vacuum
    assert "vacuum" in dbio.__all__


def test_importing_dbio_commit_loads_nothing_of_vacuum_until_it_is_asked_for() -> None:
    program = (
        "import sys, dbio_commit as dbio\n"
        "before = [name for name in sys.modules if name.split('.')[0] == 'vacuum']\n"
        "assert not before, before\n"
        "assert dbio.vacuum is sys.modules['vacuum'].vacuum\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
