"""Acts on tables by the version of the package that this Python has: see fleet.py. It uses what all versions have."""

import json
import sys
from collections.abc import Callable, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

import dbio_commit as dbio
from dbio_commit.commit import checkpoints

_pending: list[Any] = []


def code() -> dict[str, Any]:
    """What runs here: where the package and its modules lie, how it was installed, and the versions of libraries."""
    modules = [module for name, module in sys.modules.items() if name.partition(".")[0] in ("dbio_commit", "vacuum")]
    return {
        "package": str(Path(dbio.__file__).parent),
        "modules": sorted(str(module.__file__) for module in modules if getattr(module, "__file__", None)),
        "path": sys.path,
        "installed from": metadata.distribution("dbio-commit").read_text("direct_url.json"),
        "pyarrow": pa.__version__,
        "libraries": str(Path(pa.__file__).parents[1]),
    }


def tiny_parts() -> None:
    """From now on, checkpoints put the state into parts."""
    checkpoints.LARGE_FILES = 0


def begin(path: str, operation: str, ids: list[int]) -> int:
    """Writes rows with these ids, and leaves the transaction pending. Returns its number in this process."""
    transaction = dbio.Table(path).begin(operation, partition_by=["day"])  # type: ignore[arg-type]
    for day in sorted({id % 2 for id in ids}):
        rows = pa.table({"id": pa.array([id for id in ids if id % 2 == day], pa.int64())})
        pq.write_table(rows, transaction.new_file(partition={"day": f"d{day}"}))
    _pending.append(transaction)
    return len(_pending) - 1


def commit(number: int) -> str:
    """Returns the tid."""
    return str(_pending[number].commit().tid)


def write(path: str, operation: str, ids: list[int]) -> str:
    return commit(begin(path, operation, ids))


def remove(path: str, day: str) -> str:
    """A rewrite that removes the files of a partition."""
    table = dbio.Table(path)
    transaction = table.begin("rewrite")
    transaction.remove([file.path for file in table.snapshot().files if file.partition["day"] == day])
    return str(transaction.commit().tid)


def ids(path: str, as_of: str | None = None) -> list[int]:
    """Of the rows of all files, in order, each checked against its partition."""
    rows = dbio.Table(path).snapshot(as_of).to_arrow().to_pylist()
    assert all(row["day"] == f"d{row['id'] % 2}" for row in rows), rows
    return sorted(row["id"] for row in rows)


def history(path: str) -> list[list[Any]]:
    """Of each commit the tid, the operation, and how many files it added."""
    return [[it.tid, it.operation, len(it.added)] for it in dbio.Table(path).history()]


def checkpoint(path: str) -> str | None:
    return dbio.Table(path).checkpoint()


def vacuum(path: str) -> list[str]:
    """With no retention. Returns what failed."""
    report = dbio.Table(path).vacuum(0, force=True, checkpoint_after=1)
    return [str(it) for it in report.failed]


def restore(path: str, tid: str) -> str:
    return str(dbio.Table(path).restore(tid).tid)


def settle(path: str, name: str, value: str) -> None:
    dbio.Table(path).set({name: value})


def sound(path: str) -> bool:
    """Whether `dbio check` finds the table sound."""
    return dbio.Table(path).check().ok


def joint(home: str, other: str, ids: list[int], *, is_decided: bool) -> None:
    """A joint transaction whose writer dies with its turns: before it is decided, or right after that."""
    from unittest.mock import patch

    from dbio_commit.commit.joint import JointCommit
    from dbio_commit.commit.table_root import TableRoot

    def die(*args: object) -> None:
        raise KeyboardInterrupt

    dies = patch.object(JointCommit, "_carry_out", die) if is_decided else patch.object(TableRoot, "decide", die)
    rows = pa.table({"id": pa.array(ids, pa.int64()), "day": [f"d{id % 2}" for id in ids]})
    try:
        with patch.object(JointCommit, "abort", lambda self: None), dies, dbio.transaction() as tx:
            tx.write(rows, home)
            tx.write(rows, other)
    except KeyboardInterrupt:
        return
    raise AssertionError("the writer has not died")


def decided(home: str, other: str, ids: list[int]) -> None:
    joint(home, other, ids, is_decided=True)


def undecided(home: str, other: str, ids: list[int]) -> None:
    joint(home, other, ids, is_decided=False)


ACTS: Mapping[str, Callable[..., Any]] = {
    "code": code,
    "tiny_parts": tiny_parts,
    "begin": begin,
    "commit": commit,
    "write": write,
    "remove": remove,
    "ids": ids,
    "history": history,
    "checkpoint": checkpoint,
    "vacuum": vacuum,
    "restore": restore,
    "settle": settle,
    "sound": sound,
    "decided": decided,
    "undecided": undecided,
}


def main() -> None:
    for line in sys.stdin:
        act, *arguments = json.loads(line)
        try:
            answer = {"answer": ACTS[act](*arguments)}
        except dbio.DbioError as error:
            answer = {"error": [type(error).__name__, str(error)]}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
