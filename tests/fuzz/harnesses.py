"""The parsers as functions of bytes, for the coverage-guided fuzzer, and what it starts from.

What must hold is in `properties`, `service` and `directories`; how the fuzzer runs is in `guided`.
"""

import json
import random
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from itertools import islice, pairwise
from pathlib import Path
from typing import Any, TypeVar

from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from pyarrow import ArrowException

from dbio_commit.protocol import names
from tests.fuzz import bodies, expressions, properties, publications, service, stores, tables, written
from tests.fuzz.directories import AGES, Hostile, directories
from tests.unit.protocol.test_expressions import GOOD
from vacuum import VacuumOptions

GOLDEN = Path(__file__).parents[1] / "golden"
VACUUM = VacuumOptions(retention_hours=1.0, untracked=True, checkpoint_after=0)
_T = TypeVar("_T")


@dataclass(frozen=True, slots=True)
class Harness:
    """A parser and what must hold of it."""

    check: Callable[[bytes], object]
    """None where the input was refused; raises where a property does not hold."""
    seeds: Callable[[], Iterable[bytes]]
    """Good inputs to start from, and some that are refused."""
    max_bytes: int = 8192


# --- directories as bytes: an age, a path and a body each ---------------------------------------------------------

Objects = Mapping[str, tuple[bytes, timedelta]]


def to_bytes(objects: Objects) -> bytes:
    """Checkpoints are unpacked, or no change to one would survive."""
    parts = []
    for path, (body, age) in objects.items():
        with suppress(OSError, EOFError, ArrowException):  # not packed
            is_delta = path.endswith(_DELTA_CHECKPOINT.decode())
            body = publications.unpack_checkpoint(body) if is_delta else bodies.unpack(body)
        parts.append(b"%d%s\1%s" % (AGES.index(age), path.encode(errors="surrogateescape"), body))
    return b"\0\0".join(parts)


def to_objects(data: bytes) -> Objects:
    objects: dict[str, tuple[bytes, timedelta]] = {}
    for part in islice(filter(None, data.split(b"\0\0")), 100):
        path, _, body = part[1:].partition(b"\1")
        if path.endswith(_DELTA_CHECKPOINT):
            body = publications.pack_checkpoint(body)
        elif b"_checkpoint_" in path:
            body = bodies.pack(body)
        if path:
            objects[_text(path)] = (body, AGES[(part[0] - ord("0")) % len(AGES)])
    return objects


_DELTA_CHECKPOINT = b".checkpoint.parquet"


def _directory(data: bytes) -> object:
    """Read, then vacuumed."""
    hostile = Hostile(to_objects(data))
    found = hostile.check_read()
    hostile.check_vacuum(VACUUM)
    return found


def _golden_directories() -> Iterator[bytes]:
    for table in sorted(GOLDEN.glob("*/table")):
        found = {path.relative_to(table).as_posix(): path for path in sorted(table.rglob("*")) if path.is_file()}
        bodies_of = {it: path.read_bytes() if path.name[0] == "_" else b"rows" for it, path in found.items()}
        yield to_bytes({it: (body, AGES[3]) for it, body in bodies_of.items()})


# --- seeds --------------------------------------------------------------------------------------------------------


def _golden(pattern: str) -> list[bytes]:
    return sorted({path.read_bytes() for path in GOLDEN.glob(f"*/table/{pattern}")})


def examples(strategy: st.SearchStrategy[_T]) -> list[_T]:
    """The same ones each time."""
    found: list[_T] = []

    @settings(settings.get_profile("ci"), max_examples=20, phases=[Phase.generate])
    @given(strategy)
    def collect(value: _T) -> None:
        found.append(value)

    collect()
    return found


def _json(values: st.SearchStrategy[Any], golden: str) -> Callable[[], list[bytes]]:
    return lambda: [*map(bodies.to_json, examples(values)), *_golden(golden)]


def _checkpoints() -> list[bytes]:
    golden = [body for body in _golden("_checkpoint_*") if body.startswith(b"\x1f\x8b")]
    made = [*examples(bodies.checkpoints()), *examples(bodies.roots())]
    return [*map(bodies.pack, map(bodies.to_lines, made)), *golden]


def _lines() -> Iterator[bytes]:
    for body in _checkpoints():
        with suppress(EOFError):  # one is cut off
            yield bodies.unpack(body)


def _published() -> Iterator[bytes]:
    for times in range(4):
        yield to_bytes(publications.really_published(times))
    yield from map(to_bytes, examples(publications.directories()))


def _configs() -> list[bytes]:
    """Whole, and of one table."""
    return [service.GOOD_CONFIG, *(b'[[tables]]\npath = "%s"\n' % url for url in _encoded(URLS))]


def _paths() -> list[str]:
    listed = {path.relative_to(table).as_posix() for table in GOLDEN.glob("*/table") for path in table.rglob("*")}
    return [*sorted(listed), *bodies.PATHS, *bodies.HOSTILE_PATHS]


def _encoded(texts: Iterable[str]) -> list[bytes]:
    return [text.encode(errors="surrogatepass") for text in texts]


def _text(data: bytes) -> str:
    """As Python takes the names of files."""
    return data.decode(errors="surrogateescape")


def _encoded_names(names: Iterable[str]) -> list[bytes]:
    return [name.encode(errors="surrogateescape") for name in names]


def _stores() -> Iterator[bytes]:
    for url in stores.URLS:
        for one, other in pairwise(stores.OPTIONS):
            yield stores.to_bytes(url, one, other)


TIMES = [bodies.STAMP, "2026-11-01", "2026-11-02T00:00+01:00", "20261102T000000Z", "2026-W45-1T00:00:00Z", "1", "2"]
URLS = ["/data/t", "t", "file:///t", "s3://b/t", "s3a://b/a//b/", "az://c/t", "abfss://c@a.dfs.core.windows.net/t"]

# --- all of them --------------------------------------------------------------------------------------------------

HARNESSES: Mapping[str, Harness] = {
    "commit": Harness(properties.commit, _json(bodies.commits() | bodies.queues(), "**/_committed_*")),
    "turn": Harness(properties.turn, _json(bodies.turns(), "_serial_*"), max_bytes=1024),
    "descriptor": Harness(properties.descriptor, _json(bodies.descriptors(), "_dbio_table")),
    "checkpoint": Harness(lambda data: properties.checkpoint(bodies.pack(data)), _lines),
    "packed": Harness(properties.checkpoint, _checkpoints),
    "name": Harness(
        lambda data: properties.name(_text(data)),
        lambda: _encoded(names.split(path)[1] for path in _paths()),
        max_bytes=512,
    ),
    "path": Harness(lambda data: properties.path(_text(data)), lambda: _encoded(_paths()), max_bytes=1024),
    "partition": Harness(
        lambda data: properties.partition(_text(data)),
        lambda: _encoded(names.split(path)[0] for path in _paths()),
        max_bytes=1024,
    ),
    "directory": Harness(
        _directory, lambda: [*_golden_directories(), *map(to_bytes, examples(directories()))], max_bytes=16384
    ),
    "expression": Harness(
        lambda data: expressions.expression(_text(data)),
        lambda: _encoded([*GOOD, "(SELECT 1)", "(SELECT -a)", "java_method('a')"]),
        max_bytes=256,
    ),
    "published": Harness(lambda data: publications.directory(to_objects(data)), _published, max_bytes=16384),
    "version": Harness(
        publications.version, lambda: [*map(bodies.to_lines, examples(publications.versions()))], max_bytes=4096
    ),
    "list": Harness(
        publications.spark_list, lambda: [*map(publications.to_list, examples(publications.lists()))], max_bytes=4096
    ),
    "parquet": Harness(
        publications.delta_checkpoint, lambda: [*map(publications.pack_checkpoint, publications.CHECKPOINTS)]
    ),
    "number": Harness(
        lambda data: publications.name(_text(data)),
        lambda: _encoded(names.split(path)[1] for path in examples(publications.paths())),
        max_bytes=128,
    ),
    "config": Harness(service.config, _configs, max_bytes=4096),
    "url": Harness(lambda data: service.location(_text(data)), lambda: _encoded(URLS), max_bytes=512),
    "written": Harness(
        lambda data: written.written(_text(data)), lambda: _encoded_names([*written.NAMES, "no\0name"]), max_bytes=256
    ),
    "stores": Harness(stores.stores, _stores, max_bytes=1024),
    "table": Harness(tables.check, lambda: [b"%d" % number for number in range(10)], max_bytes=8),
    "as_of": Harness(
        lambda data: properties.as_of(_text(data)), lambda: _encoded([*TIMES, *map(str, bodies.TEXTS)]), max_bytes=128
    ),
}

# --- what the fuzzer changes --------------------------------------------------------------------------------------


def mutate(data: bytes, max_bytes: int, seed: int, change_bytes: Callable[[bytes, int], bytes]) -> bytes:
    """A change to a piece that is JSON, of what it says, in half of the cases; else of bytes."""
    chance = random.Random(seed)
    pieces = re.split(rb"([\n\1]|\0+)", data)
    at = chance.randrange(0, len(pieces), 2)
    with suppress(ValueError, RecursionError):
        value = json.loads(pieces[at]) if chance.random() < 0.5 else None
        if value is not None:
            pieces[at] = bodies.to_json(bodies.changed(chance, value))
            return b"".join(pieces)[:max_bytes]
    return change_bytes(data, max_bytes)


def tokens(seeds: Iterable[bytes]) -> set[bytes]:
    """Words to put in: those of the seeds, and hostile ones; at most 64 bytes each, as libFuzzer has it."""
    words = {word for seed in seeds for word in re.findall(rb"[\w-]+|\"\w+\":", seed)}
    hostile = {
        *_encoded(it for it in (*bodies.HOSTILE_PATHS, *map(str, bodies.TEXTS + bodies.NUMBERS))),
        *bodies.SPLICES,
    }
    return {word for word in {*words, *hostile, *_encoded(names.Kind)} if 0 < len(word) <= 64}
