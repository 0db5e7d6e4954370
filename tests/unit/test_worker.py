"""What tasks do to the Python worker that they share."""

import subprocess
import sys

PROGRAM = """
import gc

import dbio_commit.spark.task
from dbio_commit.spark.worker import spare_imports

spare_imports("write")
left = len(gc.get_objects())
first = gc.get_freeze_count()
kept = [[] for _ in range(10_000)]
spare_imports("write")
print(left, first > 30_000, gc.get_freeze_count() <= first)
"""


def test_the_collector_has_nothing_to_do_with_what_was_imported_and_with_all_that_comes_later() -> None:
    """Rows of later tasks must not stay for ever."""
    ran = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, check=True)
    left, *told = ran.stdout.split()
    assert int(left) < 100
    assert told == ["True", "True"]
