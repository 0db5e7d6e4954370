"""Bodies that want to blow up: what a parser takes is limited from outside, so that native code counts too."""

import io
import json
import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from multiprocessing import get_context
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.fuzz import bodies, properties, publications, service
from tests.fuzz.guided import ROOT, limit_memory

MEGABYTE = 1 << 20
LIMIT_BYTES = 256 * MEGABYTE
"""Many times what any of these bodies has, and less than what some unpack to."""
INFO = (
    '{"added":[],"removed":[],"dbio_commit":{"operation":"append","commit_id":"c","timestamp":"2026-11-20T10:00:00Z",'
)
HEADER = '{"number":1,"created":"2026-11-20T10:00:00Z","commits":0,"apps":{%s},"schemas":[%s],"schema_turn":0}\n'
START = '{"id":"t","created":"2026-11-20T10:00:00Z",'


def keys(value: str) -> str:
    """The inside of a large object."""
    return ",".join(f'"{i:07x}":{value}' for i in range(2 * MEGABYTE // (11 + len(value))))


def items(value: str) -> str:
    """The inside of a large list."""
    return ",".join([value] * (2 * MEGABYTE // (1 + len(value))))


def packed(pieces: Iterable[bytes]) -> bytes:
    packer = zlib.compressobj(1, wbits=31)
    return b"".join([*map(packer.compress, pieces), packer.flush()])


def delta_checkpoint(paths: Any) -> bytes:
    """With these rows, packed as well as Parquet can: equal ones are one in a dictionary."""
    add = pa.StructArray.from_arrays([paths], names=["path"])
    body = io.BytesIO()
    pq.write_table(pa.table({"add": add}), body, compression="zstd")
    return body.getvalue()


def equal_paths(length: int, rows: int) -> Any:
    zeros = pa.Array.from_buffers(pa.int32(), rows, [None, pa.py_buffer(bytes(4 * rows))])
    return pa.DictionaryArray.from_arrays(zeros, pa.array(["x" * length]))


def parquet_read_at_once(body: bytes) -> None:
    pq.read_table(io.BytesIO(body))["add"].to_pylist()


def unpacked_at_once(body: bytes) -> None:
    bodies.unpack(body)


COMMIT, DESCRIPTOR, TURN, CHECKPOINT = properties.commit, properties.descriptor, properties.turn, properties.checkpoint
VERSION, LIST, PARQUET = publications.version, publications.spark_list, publications.delta_checkpoint
MARK = '{"commitInfo":{"dbio_commit":{"table_id":"t"}}}\n'

LARGE: dict[str, tuple[Callable[[bytes], object], Callable[[], str | bytes]]] = {
    "metrics": (COMMIT, lambda: INFO + '"metrics":{' + keys("1") + "}}}"),
    "metrics, all wrong": (COMMIT, lambda: INFO + '"metrics":{' + keys("[]") + "}}}"),
    "settings": (COMMIT, lambda: INFO + '"settings":{' + keys('"a"') + "}}}"),
    "settings, all wrong": (COMMIT, lambda: INFO + '"settings":{' + keys("[]") + "}}}"),
    "a long setting": (COMMIT, lambda: INFO + '"settings":{"a":"' + "é" * 8 * MEGABYTE + '"}}}'),
    "statistics of many columns": (
        COMMIT,
        lambda: INFO + '"files":{"size":[],"rows":[],"statistics":{' + keys('{"min":[],"max":[],"nulls":[]}') + "}}}}",
    ),
    "a schema of small objects": (COMMIT, lambda: INFO + '"schema":{"a":[' + items('{"a":1}') + "]}}}"),
    "unknown keys": (COMMIT, lambda: '{"added":[],"removed":[],"x":[' + items('{"a":{}}') + "]}"),
    "a long path": (COMMIT, lambda: '{"removed":[],"added":["' + "a" * 8 * MEGABYTE + '"]}'),
    "a long number": (COMMIT, lambda: INFO + '"turn":' + "9" * 8 * MEGABYTE + "}}"),
    "deep lists": (COMMIT, lambda: '{"added":' + "[" * 8 * MEGABYTE),
    "properties": (DESCRIPTOR, lambda: START + '"properties":{' + keys('"a"') + "}}"),
    "no tid": (TURN, lambda: '{"tid":"' + "é" * 8 * MEGABYTE + '"}'),
    "zeros": (CHECKPOINT, lambda: packed([bytes(MEGABYTE)] * 400)),
    "one line": (CHECKPOINT, lambda: packed([b'{"number":1,"x":"', *[b"a" * MEGABYTE] * 400])),
    "schemas": (CHECKPOINT, lambda: packed([(HEADER % ("", items("{}"))).encode()])),
    "applications": (CHECKPOINT, lambda: packed([(HEADER % (keys("1"), "")).encode()])),
    "deep TOML": (service.config, lambda: "a = " + "[" * MEGABYTE),
    "long TOML": (service.config, lambda: 'cron = "' + "*" * 8 * MEGABYTE + '"'),
    "a Delta version of short paths": (
        VERSION,
        lambda: MARK + "".join(f'{{"add":{{"path":"{i}"}}}}\n' for i in range(100_000)),
    ),
    "a Delta version of one line": (VERSION, lambda: MARK + '{"x":[' + "[]," * 8 * MEGABYTE),
    "a Delta version of zeros": (VERSION, lambda: bytes(64 * MEGABYTE)),
    "a Delta version of columns": (VERSION, lambda: MARK + '{"metaData":{"partitionColumns":[' + items('"ab"') + "]}}"),
    "a list of short paths": (
        LIST,
        lambda: "v1\n" + "".join(f'{{"path":"{publications.ROOT}/{i}"}}\n' for i in range(100_000)),
    ),
    "a Delta checkpoint of equal paths": (PARQUET, lambda: delta_checkpoint(equal_paths(300, 1_500_000))),
    "a Delta checkpoint of a long path": (PARQUET, lambda: delta_checkpoint(equal_paths(16 * MEGABYTE, 1000))),
    "a Delta checkpoint of nothing": (PARQUET, lambda: delta_checkpoint(pa.nulls(10_000_000, pa.string()))),
    "unbounded": (unpacked_at_once, lambda: packed([bytes(MEGABYTE)] * 400)),
    "unbounded Parquet": (parquet_read_at_once, lambda: delta_checkpoint(equal_paths(300, 1_500_000))),
}


def trouble(name: str) -> str | None:
    """What becomes of a body, in a process that may take no more; None where it is read or refused."""
    check, make = LARGE[name]
    made = make()
    body = made if isinstance(made, bytes) else made.encode()
    del made
    limit_memory(LIMIT_BYTES)
    try:
        check(body)
    except BaseException as error:
        return f"{type(error).__name__}: {error}"[:2000]
    return None


@pytest.fixture(scope="module")
def troubles() -> dict[str, str | None]:
    """Of each body. All processes are forks of one: to import everything takes longer than most bodies."""
    ran = subprocess.run([sys.executable, "-m", __name__], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    found: dict[str, str | None] = json.loads(ran.stdout)
    return found


UNBOUNDED = ("unbounded", "unbounded Parquet")


@pytest.mark.slow("hostile bodies of 400 MB in 256 MB")
@pytest.mark.parametrize("name", [it for it in LARGE if it not in UNBOUNDED])
def test_a_body_that_wants_to_blow_up_is_read_or_refused_in_bounded_memory(
    name: str, troubles: dict[str, str | None]
) -> None:
    assert troubles[name] is None


@pytest.mark.parametrize("name", UNBOUNDED)
def test_what_takes_more_than_that_fails(name: str, troubles: dict[str, str | None]) -> None:
    assert "MemoryError" in (troubles[name] or "").partition(":")[0]


def main() -> None:
    found: dict[str, str | None] = {}
    for name in LARGE:
        with ProcessPoolExecutor(1, mp_context=get_context("fork")) as one:
            try:
                found[name] = one.submit(trouble, name).result()
            except BrokenProcessPool as error:
                found[name] = str(error)
    print(json.dumps(found))


if __name__ == "__main__":
    main()
