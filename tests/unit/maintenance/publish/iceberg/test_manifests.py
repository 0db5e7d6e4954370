"""Manifests are read as they were written, by dbio and by PyIceberg; bodies from outside are bounded and strict; small
manifests become few."""

import io
import json
import random
import zlib
from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.base.errors import CorruptMarkerError
from dbio_commit.maintenance.publish.iceberg import avro
from dbio_commit.maintenance.publish.iceberg.avro import entry_schema
from dbio_commit.maintenance.publish.iceberg.manifests import (
    ADDED,
    DELETED,
    EXISTING,
    ColumnMetrics,
    Form,
    Manifest,
    ManifestWriter,
    Span,
    as_deleted,
    as_existing,
    decode_list,
    encode_list,
    new_entry,
    paths_in,
    read_entries,
)
from dbio_commit.maintenance.publish.iceberg.writing import to_merge

pytest.importorskip("pyiceberg", reason="the lowest versions do not go together with it")
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import read_manifest_list

KINDS = ["date", "decimal(9, 2)", "timestamptz", "string", "boolean", "decimal(9, 2)"]
FORM = Form(
    {"type": "struct", "schema-id": 3, "fields": [{"id": i, "name": f"c {i}", "required": False, "type": kind}
                                                  for i, kind in enumerate(KINDS, 1)]},
    2,
    [({"name": f"c {i}", "transform": "identity", "source-id": i, "field-id": 999 + i}, kind)
     for i, kind in enumerate(KINDS, 1)],
)  # fmt: skip
TOKEN = "0" * 32


def entries(count: int) -> list[Any]:
    values = [-3, Decimal("-1.50"), 1_600_000_000_000_001, "é %", True, None]
    partition = dict(zip(FORM.partition_names, values, strict=True))
    counts = ColumnMetrics({1: 0}, {1: b"a"}, {1: b"b"})
    return [
        new_entry(f"s3://t/p-{i}", size=i, rows=2, partition=partition, counts=counts, snapshot_id=7)
        for i in range(count)
    ]


def written(some: Sequence[Any], *, snapshot_id: int = 7, sequence_number: int = 5) -> tuple[Manifest, bytes]:
    writer = ManifestWriter(FORM, snapshot_id=snapshot_id, sequence_number=sequence_number)
    for i, entry in enumerate(some):
        writer.add(entry, Span(10 + i, 20 + i))
    return writer.finish(TOKEN)


def test_a_manifest_is_read_as_it_was_written() -> None:
    manifest, body = written(entries(3))
    assert manifest.name == f"dbio-10-22-{TOKEN}.avro"
    assert (manifest.span, manifest.live, manifest.files, manifest.rows) == (Span(10, 22), 3, (0, 3, 0), (0, 6, 0))
    found = [*read_entries(body, FORM, where="it")]
    assert [it["data_file"]["partition"] for it in found] == [it["data_file"]["partition"] for it in entries(3)]
    assert paths_in(found, "s3://t", where="it") == {"p-0", "p-1", "p-2"}
    again = [as_existing(found[0], manifest), as_deleted(found[1], manifest, 8)]
    later, other = written(again, snapshot_id=8, sequence_number=6)
    assert (later.files, later.live, later.min_sequence_number, later.sequence_number) == ((1, 0, 1), 1, 5, 6)
    records = [*fastavro.reader(io.BytesIO(other))]
    told = [(it["status"], it["snapshot_id"], it["sequence_number"], it["file_sequence_number"]) for it in records]
    assert told == [(EXISTING, 7, 5, 5), (DELETED, 8, 5, 5)]
    assert [it["data_file"]["file_path"] for it in read_entries(other, FORM, where="it")] == ["s3://t/p-0"]


def test_a_list_is_read_as_it_was_written_also_by_pyiceberg(tmp_path: Path) -> None:
    manifest, body = written(entries(3))
    (tmp_path / manifest.name).write_bytes(body)
    directory = f"file://{tmp_path}"
    told = encode_list([manifest], directory, snapshot_id=7, parent_id=6, sequence_number=5)
    assert decode_list(told, directory, where="it") == [manifest]
    (tmp_path / "list.avro").write_bytes(told)
    io = PyArrowFileIO()
    (theirs,) = read_manifest_list(io.new_input(f"{directory}/list.avro"))
    assert (theirs.added_files_count, theirs.sequence_number, theirs.partition_spec_id) == (3, 5, 2)
    assert [it.contains_null for it in theirs.partitions or []] == [False] * 5 + [True]
    found = theirs.fetch_manifest_entry(io)
    assert [(it.status.value, it.snapshot_id, it.sequence_number) for it in found] == [(ADDED, 7, 5)] * 3
    partition: Any = found[0].data_file.partition
    assert [*partition][1:4] == [Decimal("-1.50"), 1_600_000_000_000_001, "é %"]
    assert (found[0].data_file.lower_bounds, found[0].data_file.record_count) == ({1: b"a"}, 2)


def test_names_of_partition_fields_are_ones_that_avro_has_and_differ() -> None:
    def names(*columns: str) -> list[str]:
        return Form({}, 0, [({"name": it, "field-id": i}, "int") for i, it in enumerate(columns)]).partition_names

    assert names("a b", "1", "é", "ok_1") == ["a_x20b", "_1", "_xE9", "ok_1"]
    assert names("a b", "a_x20b") == ["_0", "_1"]


@given(st.binary(max_size=300), st.integers(0, 400))
def test_bodies_from_outside_are_read_or_refused(noise: bytes, at: int) -> None:
    _, body = written(entries(2))
    for damaged in (noise, body[:at], body[:at] + noise + body[at + len(noise) :]):
        try:
            paths_in(read_entries(damaged, FORM, where="it"), "s3://t", where="it")
        except CorruptMarkerError as error:
            assert "it" in str(error)  # noqa: PT017


def test_a_manifest_that_unpacks_to_much_is_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro, "_MOST_UNPACKED_BYTES", 1024)
    _, body = written(entries(100))
    with pytest.raises(CorruptMarkerError, match="has more than any publisher writes"):
        [*read_entries(body, FORM, where="it")]
    huge = written(entries(1))[1]
    sync = huge[-16:]
    packer = zlib.compressobj(wbits=-15)
    packed = packer.compress(bytes(10**7)) + packer.flush()
    header = huge[: huge.index(sync) + 16]
    size = io.BytesIO()
    fastavro.schemaless_writer(size, "long", len(packed))
    with pytest.raises(CorruptMarkerError, match="has more than any publisher writes"):
        [*read_entries(header + b"\x02" + size.getvalue() + packed + sync, FORM, where="it")]


def test_another_schema_is_refused() -> None:
    told = io.BytesIO()
    fastavro.writer(told, {"type": "array", "items": "null"}, [[None] * 3], codec="deflate")
    with pytest.raises(CorruptMarkerError, match="another schema"):
        [*read_entries(told.getvalue(), FORM, where="it")]
    for name in (b'"name": "file_path"', b'"type": "record"', b'"fields"'):  # what fastavro itself refuses
        body = written(entries(1))[1]
        assert name in body
        with pytest.raises(CorruptMarkerError, match="another schema"):
            [*read_entries(body.replace(name, name[:1] + b"x" + name[2:]), FORM, where="it")]
    other = FORM._replace(partition=FORM.partition[:1])
    with pytest.raises(CorruptMarkerError, match="another schema"):
        [*read_entries(written(entries(1))[1], other, where="it")]


@pytest.mark.parametrize("url", ["s3://other/p", "s3://t/../p", "s3://t//p", "s3://t"])
def test_a_manifest_cannot_name_what_is_outside_of_the_table(url: str) -> None:
    entry = new_entry(
        url,
        size=1,
        rows=1,
        partition=entries(1)[0]["data_file"]["partition"],
        counts=ColumnMetrics({}, {}, {}),
        snapshot_id=7,
    )
    with pytest.raises(CorruptMarkerError):
        paths_in([entry], "s3://t", where="it")


@pytest.mark.parametrize("path", ["s3://other/dbio-1-2-{}.avro", "s3://t/x.avro", "s3://t/../dbio-1-2-{}.avro"])
def test_a_list_cannot_name_other_manifests(path: str) -> None:
    manifest, _ = written(entries(1))
    body = encode_list([manifest], "s3://t", snapshot_id=7, parent_id=None, sequence_number=5)
    records: list[Any] = [*fastavro.reader(io.BytesIO(body))]
    records = [{**it, "manifest_path": path.format(TOKEN)} for it in records]
    told = io.BytesIO()
    schema = json.loads(fastavro.reader(io.BytesIO(body)).metadata["avro.schema"])
    fastavro.writer(told, schema, records, codec="deflate")
    with pytest.raises(CorruptMarkerError, match="names the manifest"):
        decode_list(told.getvalue(), "s3://t", where="it")


def test_the_schema_is_one_that_names_no_type_twice() -> None:
    fastavro.parse_schema(entry_schema(FORM.partition))


# --- merging ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [1, 30, 3000])
def test_each_file_is_written_a_few_times_and_manifests_stay_few(most: int) -> None:
    chance, manifests, rewritten, total = random.Random(most), list[Manifest](), 0, 0
    for _ in range(3000):
        new = chance.randint(1, most)
        merged = to_merge(manifests, new)
        rewritten += sum(it.live for it in merged)
        total += new
        live = new + sum(it.live for it in merged)
        length = 150 * live
        one = Manifest("x", length, 0, 0, 0, 0, (0, live, 0), (0, live, 0), ())
        manifests = [*(it for it in manifests if it not in merged), one]
        if len(merged) > 0:
            assert len(merged) >= 9
    assert rewritten < 5 * total
    assert len(manifests) < 60 + total * 150 / (2 * 1024**2)
