"""Publications that others have filled; and that the properties find each hole that was there, once it is put back.

Rules: NOTES.md, Bounds and ownership.
"""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dbio_commit.maintenance import drop
from dbio_commit.maintenance.publish import delta, delta_log, delta_replay, places, spark
from dbio_commit.maintenance.publish.delta_log import DeltaListing
from dbio_commit.maintenance.publish.places import is_published
from dbio_commit.maintenance.publish.remembered import TableKey, find
from dbio_commit.maintenance.vacuum import table as vacuum_module
from dbio_commit.protocol.entry import Entry
from dbio_commit.protocol.settings import Format
from dbio_commit.store import Store
from tests.fuzz import bodies, publications
from tests.fuzz.directories import AGES
from tests.fuzz.test_bodies import NEAR_NAMES

many = settings(max_examples=150, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])


@many
@given(publications.directories())
def test_a_directory_of_publications_is_checked_published_vacuumed_and_dropped(objects: publications.Objects) -> None:
    publications.directory(objects)


def test_the_generator_makes_directories_that_are_published_on() -> None:
    for times in range(4):
        assert publications.directory(publications.really_published(times))


@many
@given(bodies.bodies(publications.versions(), bodies.to_lines))
def test_a_version_is_read_or_refused(body: bytes) -> None:
    publications.version(body)
    publications.spark_list(body)
    publications.delta_checkpoint(body)


@many
@given(bodies.bodies(publications.lists(), publications.to_list))
def test_a_list_is_read_or_refused(body: bytes) -> None:
    publications.spark_list(body)
    publications.version(body)


@given(bodies.damaged(st.sampled_from([publications.pack_checkpoint(it) for it in publications.CHECKPOINTS])))
def test_a_checkpoint_of_a_delta_log_is_read_or_refused(body: bytes) -> None:
    publications.delta_checkpoint(body)


NUMBERS = st.sampled_from(publications.NUMBERS)
NAMES = st.builds(lambda number, form: form.format(number), NUMBERS, st.sampled_from(
    ["{:020d}.json", "{:020d}.checkpoint.parquet", "{}.compact", "0{}.compact", ".dbio-{:020d}", "{}"]
))  # fmt: skip


@many
@given(NAMES | NEAR_NAMES)
def test_a_name_is_of_a_number_that_gives_it_back_or_refused(text: str) -> None:
    publications.name(text)


# --- each hole put back -------------------------------------------------------------------------------------------


def count_to_numbers(store: Store, listing: DeltaListing, table_id: str) -> tuple[int, Any]:
    """As it was: number by number."""
    place, versions = TableKey.of(store, table_id), listing.versions
    for number in range(listing.last, listing.last_checkpoint - 1, -1):
        if number in versions and (state := find(place, versions[number])):
            return number, state
    return -1, None


def clean_any_log(store: Store, to: Format, table_id: str, horizon: Any) -> list[Entry]:
    return delta_log.superseded(delta.look(store), horizon).entries if to is Format.DELTA else []


def all_is_own(store: Store, entries: Iterable[Entry], table_id: str) -> list[list[Entry]]:
    return [[entry for entry in entries if is_published(entry.path)]]


def no_check(paths: Any, *, where: str) -> None:
    pass


STRANGERS = b'{"commitInfo":{"engineInfo":"Delta-Lake"}}\n'
OWN = bodies.to_lines([{"commitInfo": {"dbio_commit": {"table_id": "t", "tid": "1"}}}, {"add": {"path": "../x"}}])

Patches = list[tuple[object, str, object]]

HOLES: dict[str, tuple[Patches, dict[str, bytes]]] = {
    "a number that is counted to": (
        [(delta_replay, "_remembered", count_to_numbers)],
        {delta_log.version_path(10**14): STRANGERS},
    ),
    "a number without a bound": (
        [(places, "LAST_NUMBER", 10**30), (delta_replay, "_remembered", count_to_numbers)],
        {delta_log.version_path(10**20 - 1): b""},
    ),
    "the log of another, cleaned": (
        [(vacuum_module, "find_superseded", clean_any_log)],
        {
            **{delta_log.version_path(number): STRANGERS for number in range(4)},
            delta_log.checkpoint_path(3): publications.pack_checkpoint(b"u\na"),
        },
    ),
    "an empty checkpoint, believed": (
        [(vacuum_module, "find_superseded", clean_any_log)],
        {
            **{path: body for path, (body, _) in publications.really_published(2).items() if ".json" in path},
            delta_log.checkpoint_path(1): b"",
        },
    ),
    "a drop of all that lies there": ([(drop, "find_own", all_is_own)], {"_delta_log/notes.txt": b"a note"}),
    "a drop of a stream's lists": (
        [(spark, "_SPARKS", spark._OURS), (drop, "find_own", all_is_own)],
        {"_spark_metadata/0": b"v1"},
    ),
    "a path outside the table": (
        [("dbio_commit.protocol.names", "check_paths", no_check)],
        {delta_log.version_path(0): OWN},
    ),
    "a claim without a bound": (
        [(places, "LAST_NUMBER", 10**30)],
        {"_symlink_format_manifest/.dbio-" + "9" * 20: b""},
    ),
}  # fmt: skip


@pytest.mark.parametrize("hole", HOLES)
def test_the_properties_find(hole: str, monkeypatch: pytest.MonkeyPatch) -> None:
    patches, found = HOLES[hole]
    objects = {path: (body, AGES[3]) for path, body in found.items()}
    publications.directory(objects)
    for target, name, old in patches:
        if isinstance(target, str):
            monkeypatch.setattr(f"{target}.{name}", old)
        else:
            monkeypatch.setattr(target, name, old)
    with pytest.raises(AssertionError):
        publications.directory(objects)
