"""Bodies that want to blow up: what a parser takes is limited from outside, so that native code counts too."""

import subprocess
import sys
import zlib
from collections.abc import Callable, Iterable

import pytest

from tests.fuzz import bodies, properties, service
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


def unpacked_at_once(body: bytes) -> None:
    bodies.unpack(body)


COMMIT, DESCRIPTOR, TURN, CHECKPOINT = properties.commit, properties.descriptor, properties.turn, properties.checkpoint

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
    "unbounded": (unpacked_at_once, lambda: packed([bytes(MEGABYTE)] * 400)),
}


def run(name: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", __name__, name]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("name", [*filter("unbounded".__ne__, LARGE)])
def test_a_body_that_wants_to_blow_up_is_read_or_refused_in_bounded_memory(name: str) -> None:
    ran = run(name)
    assert ran.returncode == 0, ran.stderr[-2000:]


def test_what_takes_more_than_that_fails() -> None:
    assert "MemoryError" in run("unbounded").stderr


if __name__ == "__main__":
    check, make = LARGE[sys.argv[1]]
    made = make()
    body = made if isinstance(made, bytes) else made.encode()
    del made
    limit_memory(LIMIT_BYTES)
    check(body)
