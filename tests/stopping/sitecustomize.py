"""Python imports this where it starts with this directory in PYTHONPATH: in all of Spark's processes, there is no other
way into those that plan and commit a batch (tests/integration/test_streams_killed.py)."""

import os
from pathlib import Path

from tests.stops import stop_at

stop_at(os.environ["DBIO_TEST_STOP"], Path(os.environ["DBIO_TEST_FLAGS"]))
