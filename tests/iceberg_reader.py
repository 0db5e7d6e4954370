"""What readers of Iceberg see of a publication on a store in memory: another reading of its files than dbio's own."""

import io
import json
import re
from typing import Any

import fastavro

from dbio_commit.testing import MemoryStore

DIRECTORY = "_iceberg/metadata"


def numbers(store: MemoryStore) -> list[int]:
    """The numbers of all versions, in order."""
    found = (re.fullmatch(rf"{DIRECTORY}/v(\d+)\.metadata\.json", path) for path in store.objects)
    return sorted(int(match[1]) for match in found if match)


def hinted(store: MemoryStore) -> int:
    """The number that the hint names."""
    return int(store.objects[f"{DIRECTORY}/version-hint.text"][0])


def metadata(store: MemoryStore, number: int | None = None) -> Any:
    """The body of a version, by default of the last one."""
    last = numbers(store)[-1] if number is None else number
    return json.loads(store.objects[f"{DIRECTORY}/v{last}.metadata.json"][0])


def avro(store: MemoryStore, url: str) -> list[Any]:
    """The records of the Avro file at a URL of the metadata."""
    body, _ = store.objects[f"{DIRECTORY}/{url.rpartition('/')[2]}"]
    return list(fastavro.reader(io.BytesIO(body)))


def manifests(store: MemoryStore, number: int | None = None) -> list[Any]:
    """The records of the manifest list of a version's snapshot."""
    body = metadata(store, number)
    (current,) = [it for it in body["snapshots"] if it["snapshot-id"] == body["current-snapshot-id"]]
    return avro(store, current["manifest-list"])


def entries(store: MemoryStore, number: int | None = None) -> list[Any]:
    """The live entries of a version."""
    every = [entry for it in manifests(store, number) for entry in avro(store, it["manifest_path"])]
    return [entry for entry in every if entry["status"] != 2]


def paths(store: MemoryStore, number: int | None = None) -> set[str]:
    """The paths of the live files of a version, each of which it must name once."""
    location = metadata(store, number)["location"].removesuffix("/_iceberg")
    found = [entry["data_file"]["file_path"].removeprefix(f"{location}/") for entry in entries(store, number)]
    assert len(found) == len(set(found))
    return set(found)
