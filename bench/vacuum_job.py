"""What cases_vacuum.py measures: one vacuum, or one read, in a process of its own, whose peak memory is that alone.

Takes a job, a URL, storage options and a number of days as JSON, and prints what it found as JSON.
"""

import json
import re
import sys
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from time import perf_counter
from typing import Any


class _Measured:
    """Seconds since it was made. What is imported before does not count, what is opened after does."""

    def __init__(self) -> None:
        self._began_s = perf_counter()

    def found(self, **more: Any) -> dict[str, Any]:
        seconds = perf_counter() - self._began_s
        peak = re.search(r"^VmHWM:\s*(\d+)", Path("/proc/self/status").read_text(), re.M)
        assert peak is not None
        return {"seconds": seconds, "peak_mb": int(peak[1]) >> 10, **more}


def vacuum(url: str, options: Mapping[str, str], days: float) -> dict[str, Any]:
    """Ours, so many days from now."""
    import dbio_commit as dbio
    from tests.later import vacuum_later
    from vacuum import VacuumOptions

    measured = _Measured()
    report = vacuum_later(dbio.Table(url, options), VacuumOptions(), by=timedelta(days=days))
    assert report.ok, report.failed
    return measured.found(deleted=[deletion.path for deletion in report.deleted])


def snapshot(url: str, options: Mapping[str, str], days: float) -> dict[str, Any]:
    import dbio_commit as dbio

    measured = _Measured()
    table = dbio.Table(url, options).snapshot()
    return measured.found(files=len(table.files), commits=len(table.tids))


def delta(url: str, options: Mapping[str, str], days: float) -> dict[str, Any]:
    """deltalake's vacuum of what its log says was removed; it lists nothing."""
    return _delta(url, options, full=False)


def delta_full(url: str, options: Mapping[str, str], days: float) -> dict[str, Any]:
    """deltalake's vacuum that lists the whole table, as ours does."""
    return _delta(url, options, full=True)


def _delta(url: str, options: Mapping[str, str], *, full: bool) -> dict[str, Any]:
    from deltalake import DeltaTable

    secrets = {
        "AWS_ENDPOINT_URL": options["endpoint_url"],
        "AWS_ACCESS_KEY_ID": options["key"],
        "AWS_SECRET_ACCESS_KEY": options["secret"],
        "AWS_REGION": "us-east-1",
        "AWS_ALLOW_HTTP": "true",
    } if options else {}  # fmt: skip
    measured = _Measured()
    table = DeltaTable(url, storage_options=secrets)
    deleted = table.vacuum(retention_hours=0, dry_run=False, enforce_retention_duration=False, full=full)
    return measured.found(deleted=deleted)


JOBS: Mapping[str, Callable[[str, Mapping[str, str], float], dict[str, Any]]] = {
    job.__name__.replace("_", "-"): job for job in (vacuum, snapshot, delta, delta_full)
}

if __name__ == "__main__":
    job, *arguments = json.loads(sys.argv[1])
    print(json.dumps(JOBS[job](*arguments)))
