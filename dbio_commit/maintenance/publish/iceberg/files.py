"""Makes entries of Iceberg's manifests from the live files of a table and what markers record of them.

Files are not opened, except the footers of a few: those whose rows nobody counted, those that no dbio writer made to
fit the table, and those whose decimals may have another scale. Readers of Iceberg would take such decimals for other
numbers without an error.
"""

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from dbio_commit.base.errors import InvalidInputError, ObjectNotFoundError
from dbio_commit.data.fitting import misfit, without
from dbio_commit.data.footers import Footer
from dbio_commit.log.schema_drift import find_doubtful, look_at_all
from dbio_commit.log.snapshot import Snapshot
from dbio_commit.maintenance.publish.delta_log import to_ms
from dbio_commit.maintenance.publish.iceberg.manifests import ColumnMetrics, Form, ManifestEntry, Span, new_entry
from dbio_commit.maintenance.publish.iceberg.schema import IcebergSchema, fits_iceberg, spellings_in
from dbio_commit.maintenance.publish.iceberg.values import bound_bytes, partition_value, scale_of
from dbio_commit.maintenance.publish.live import Described, describe
from dbio_commit.protocol.field_ids import FieldIds
from dbio_commit.protocol.markers.schema import FieldPath
from dbio_commit.protocol.names import split
from dbio_commit.protocol.types import decimal_digits, leaf_types
from dbio_commit.store import Store


class NewEntry(NamedTuple):
    """The entry of a file that the publication adds."""

    path: str
    entry: ManifestEntry
    span: Span
    """The time of the commit that added the file."""


class EntryMaker:
    """Makes the entries of one publication, and collects how the files spell columns."""

    def __init__(
        self,
        store: Store,
        columns: Mapping[str, Any],
        partition_columns: tuple[str, ...],
        schema: IcebergSchema,
        form: Form,
        *,
        root: str,
        snapshot_id: int,
    ) -> None:
        """`columns` are the table's, as Spark's JSON, and `root` is its absolute URL."""
        self._store, self._columns, self._partition_columns = store, columns, partition_columns
        self._form, self._root, self._snapshot_id = form, root, snapshot_id
        self._fields = {it["name"].lower(): it for it in schema.fields if isinstance(it["type"], str)}
        self._kinds = schema.kinds
        self._own = without(columns, partition_columns)
        self._decimals = _scales(self._own)
        self._has_inner_decimals = any(
            not isinstance(it["type"], str) and _has_decimals(it["type"]) for it in self._own["fields"]
        )
        self._partitions: dict[str, Mapping[str, Any]] = {}
        self._names = form.partition_names
        self.spellings: dict[FieldPath, set[str]] = {}

    def of(self, part: Snapshot) -> Iterator[NewEntry]:
        """The entries of a slice. Raises InvalidInputError for a file that readers of Iceberg would read wrongly, and
        ObjectNotFoundError for a file that is absent; StoreError.
        """
        described = describe(part)
        footers = self._look(part, described)
        for it in described:
            self._spell(((name.lower(),), name) for name in it.bounds)
            rows = it.rows
            if footer := footers.get(it.file.path):
                rows = footer.rows
                self._spell(spellings_in(footer.columns or {}))
            assert rows is not None
            yield NewEntry(it.file.path, self._entry(it, rows), Span(to_ms(it.modified), to_ms(it.modified)))

    def _spell(self, names: Iterator[tuple[FieldPath, str]]) -> None:
        for path, name in names:
            self.spellings.setdefault(path, set()).add(name)

    def _entry(self, it: Described, rows: int) -> ManifestEntry:
        nulls, lower, upper = dict[int, int](), dict[int, bytes](), dict[int, bytes]()
        for name, bounds in it.bounds.items():
            field = self._fields.get(name.lower())
            if field is None:
                continue
            number, kind, own = field["id"], field["type"], self._kinds[field["name"]]
            if bounds.nulls is not None:
                nulls[number] = bounds.nulls
            if (least := bound_bytes(bounds.min, kind, own, up=False)) is not None:
                lower[number] = least
            if (most := bound_bytes(bounds.max, kind, own, up=True)) is not None:
                upper[number] = most
        partition = self._partition(it)
        for (spec, _), name in zip(self._form.partition, self._names, strict=True):
            if partition[name] is None:
                nulls[spec["source-id"]] = rows  # Trino takes null for less than any partition value
        return new_entry(
            f"{self._root}/{it.file.path}",
            size=it.file.size,
            rows=rows,
            partition=partition,
            counts=ColumnMetrics(nulls, lower, upper),
            snapshot_id=self._snapshot_id,
        )

    def _partition(self, it: Described) -> Mapping[str, Any]:
        directory = split(it.file.path)[0]
        if (found := self._partitions.get(directory)) is None:
            kinds = [self._kinds[field["name"]] for field, _ in self._form.partition]
            texts = it.file.partition.values()  # in the order of the partition columns
            each = zip(self._names, texts, kinds, strict=True)
            found = self._partitions[directory] = {name: partition_value(text, kind) for name, text, kind in each}
        return found

    # --- footers --------------------------------------------------------------------------------------------------

    def _look(self, part: Snapshot, described: list[Described]) -> Mapping[str, Footer]:
        """The footers that must be read, by path. Raises InvalidInputError for a file that Iceberg's readers refuse."""
        wanted = {*find_doubtful(part, self._columns)}
        for it in described:
            if it.rows is None or self._has_inner_decimals or self._may_have_other_decimals(it):
                wanted.add(it.file.path)
        found = {}
        for path, footer in look_at_all(self._store, sorted(wanted)):
            where = self._store.url_of(path)
            if footer is None:
                raise ObjectNotFoundError(f"{where} is live and was not found; `dbio check` lists what is missing")
            if refusal := footer.refusal(where):
                raise InvalidInputError(f"{refusal}. Nothing was published; write its rows anew, and remove the file")
            inside = without(footer.columns or {}, self._partition_columns)
            if footer.ids is FieldIds.OTHER:
                raise InvalidInputError(
                    f"{where} has field ids of another table in its footer, by which readers of Iceberg would find its "
                    f"columns; nothing was published. {_REWRITE}"
                )
            if other := misfit(inside, self._own, fits_iceberg):
                raise self._refused(where, other)
            found[path] = footer
        return found

    def _may_have_other_decimals(self, it: Described) -> bool:
        """Whether only the footer shows the scale of a column. Raises InvalidInputError if a bound shows another."""
        by_lower = {name.lower(): bounds for name, bounds in it.bounds.items()}
        for name, (shown, scale) in self._decimals.items():
            bounds = by_lower.get(name)
            if bounds is None:
                return True
            scales = {scale_of(bounds.min), scale_of(bounds.max)} - {None}
            if scales and scales != {scale}:
                other = f"{shown} with {', '.join(map(str, sorted(scales, key=str)))} digits after the point"
                raise self._refused(self._store.url_of(it.file.path), f"{other}, not {scale}")
            if not scales and bounds.nulls != it.rows:
                return True
        return False

    def _refused(self, where: str, what: str) -> InvalidInputError:
        return InvalidInputError(
            f"{where} has {what}, which readers of Iceberg do not read as the table's type; nothing was published. "
            "`dbio compact --rewrite-types` writes such files anew; then publish again, or publish in another format"
        )


_REWRITE = (
    "Rewrite the file with the types of the table (`dbio compact` with a large --target-size does that), then publish "
    "again, or publish in another format"
)


def _scales(columns: Mapping[str, Any]) -> dict[str, tuple[str, int]]:
    """The decimal columns with a scale, in lower case, with their names and scales. A scale only grows, from 0 on."""
    digits = ((it["name"], decimal_digits(it["type"])) for it in columns["fields"] if isinstance(it["type"], str))
    return {name.lower(): (name, found[1]) for name, found in digits if found and found[1]}


def _has_decimals(kind: Any) -> bool:
    """Whether it is, or has inside, a type of decimals with a scale."""
    digits = (decimal_digits(it) for it in leaf_types(kind) if isinstance(it, str))
    return any(found and found[1] for found in digits)
