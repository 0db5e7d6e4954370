"""Checks the files that a transaction adds: their names, partitions, columns and rows.

Pure: the footers of the files were read before.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import cached_property, lru_cache
from typing import Any

from dbio_commit.base.arguments import check_partition
from dbio_commit.base.errors import CorruptMarkerError, InvalidInputError, SchemaMismatchError
from dbio_commit.commit.operations import RULES
from dbio_commit.commit.request import Terms
from dbio_commit.data.conditions.proof import refuse_unproven
from dbio_commit.data.conditions.pruning import value_of
from dbio_commit.data.fitting import fit
from dbio_commit.data.footers import Footer
from dbio_commit.protocol import names
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.markers.files import Bounds, FileInfo
from dbio_commit.protocol.partition_values import Given, kind_of, read, spell
from dbio_commit.protocol.partitions import Types, find_problem, partition_types, widest_types
from dbio_commit.protocol.settings import change
from dbio_commit.protocol.types import is_partition


def check_new_path(path: str, tid: str) -> str:
    """Returns the path if transaction `tid` may add a data file there. An abort deletes the file, so its name must hold
    the tid.

    Raises InvalidInputError.
    """
    try:
        names.check_path(path, where="a new file")
    except CorruptMarkerError:
        raise InvalidInputError(f"{path[:200]!r} is no path inside the table; give another name") from None
    if names.is_pattern(path):
        raise InvalidInputError(f"{path[:200]!r} holds one of * ? [ ] {{, a pattern to other tools; give another name")
    if not names.is_data_file(path) or names.parse_data_file(names.split(path)[1]) != tid:
        raise InvalidInputError(f"{path!r} cannot be a data file of transaction {tid}: its name must hold that tid")
    return path


class FileChecks:
    """The checks of one transaction, with the types of the partition values that were given."""

    def __init__(self, terms: Terms, url: str) -> None:
        self._terms, self._url = terms, url
        self.keeps_partitions = False
        """Whether the files lie in partitions that the table has, or had. Then their directories keep their names."""
        self.taken: set[str] = set()
        """The paths that were taken by `new_file`."""
        self._given: dict[str, set[str]] = {}  # partition column -> types of the values that were given

    # --- partition values -----------------------------------------------------------------------------------------

    def spell_partition(self, partition: Mapping[str, Given | None]) -> names.Partition:
        """The canonical texts of the values. Raises InvalidInputError for other columns than the partition columns."""
        check_partition(partition)
        columns = self._terms.partition_columns
        if partition.keys() != set(columns):
            raise InvalidInputError(f"the partition columns are {list(columns)}, but got values for {list(partition)}")
        return {column: self.spell(column, partition[column]) for column in columns}

    def spell(self, column: str, value: Given | None) -> str | None:
        """The canonical text of a value. Raises InvalidInputError.

        An overwrite may write values of another type than the column has now.
        """
        kind = self._types_before.get(column)
        if value is None or (isinstance(value, str) and (self.keeps_partitions or self._sets_schema)):
            self._given.setdefault(column, set()).update([] if value is None else ["string"])
            return value
        try:
            if kind is None and not self._terms.is_table and kind_of(value) in ("timestamp", "timestamp_ntz"):
                raise ValueError(
                    f"{value!r:.200} has a time, and nothing says in which zone this directory names times"
                )
            text = self._spell_as(value, kind)
            self._given.setdefault(column, set()).add(kind_of(value))
        except ValueError as error:
            raise InvalidInputError(f"partition column {column!r} of {self._url}: {error}") from None
        return text

    def _spell_as(self, value: Given, kind: str | None) -> str:
        if self._sets_schema and kind is not None:
            with suppress(ValueError):
                return spell(value, kind)
            return spell(value, None)
        return spell(value, kind)

    def _types_after(self, schema: Mapping[str, Any] | None) -> Types:
        """The types of the partition columns by this schema; those of before if it is None."""
        is_known = schema and self._terms.is_table
        return partition_types(schema, self._terms.partition_columns) if is_known else self._types_before

    @cached_property
    def _types_before(self) -> Types:
        """The types of the partition columns when the transaction began. None are known in the directory scope."""
        known = self._terms.metadata.schema if self._terms.is_table else None
        return partition_types(known, self._terms.partition_columns)

    @property
    def _sets_schema(self) -> bool:
        """Whether the table's columns after the commit may differ from its current ones."""
        return RULES[self._terms.operation].sets_schema

    # --- when files are added -------------------------------------------------------------------------------------

    def check_added(self, files: Sequence[FileInfo]) -> None:
        """Raises InvalidInputError for partitions whose text is no value of any type that the column may get."""
        if not self.keeps_partitions and not self._sets_schema:
            self._check_texts(files, widest_types(self._types_before))

    def check_facts(self, added: FileInfo | None, footer: Footer) -> None:
        """Raises InvalidInputError if a file was added with another size or number of rows than it has."""
        sizes, rows = (footer.size, added and added.size), (footer.rows, added and added.rows)
        for what, (found, given) in ("bytes", sizes), ("rows", rows):
            if found is not None and given is not None and found != given:
                raise InvalidInputError(
                    f"{self._url_of(footer.path)} holds {found} {what}, but was added with {given}. Nothing was "
                    "committed, and the transaction is aborted: add each file as it was written"
                )

    # --- when it commits ------------------------------------------------------------------------------------------

    def check_partitions(
        self, files: Sequence[FileInfo], schema: Mapping[str, Any] | None, footers: Mapping[str, Footer]
    ) -> None:
        """Raises InvalidInputError unless all readers find the same values in the partition columns of the files."""
        if not self._terms.is_table or not self._terms.partition_columns or self.keeps_partitions:
            return
        types, before = self._types_after(schema), self._types_before
        for column, kind in types.items():
            if kind is not None and not is_partition(kind) and before.get(column) != kind:
                raise InvalidInputError(
                    f"partition column {column!r} of {self._url} cannot be {kind}, whose values tools write in "
                    "different ways: partition by text, whole numbers, decimals, booleans, dates or timestamps"
                )
            if {kind, *self._given.get(column, ())} >= {"timestamp", "timestamp_ntz"}:  # which have the same texts
                raise InvalidInputError(
                    f"partition column {column!r} of {self._url} is {kind}, and new_file was given a datetime "
                    f"{'without' if kind == 'timestamp' else 'with'} a zone; give one that is of the column's type"
                )
        self._check_texts(files, types)
        for file in files:
            if refusal := columns_inside(file, footers.get(file.path), self._terms.partition_columns, url=self._url):
                raise InvalidInputError(refusal)

    def check_rows(self, files: Sequence[FileInfo], schema: Mapping[str, Any] | None) -> None:
        """Raises an error unless the statistics of the files prove that all rows keep the table's constraints."""
        metadata = self._terms.metadata
        constraints = Constraints.of(change(metadata.settings, self._terms.sets))
        if files and constraints and self._terms.changes_rows:
            constraints.refuse_unsafe(where=self._url)
            refuse_unproven(files, constraints, schema or metadata.schema, where=self._url)

    def schema_after(
        self, schema: Mapping[str, Any] | None, footers: Iterable[Footer], staged: Collection[FileInfo]
    ) -> Mapping[str, Any] | None:
        """The table's columns after the commit: `schema`, or the table's columns with what the files' columns change.

        Raises SchemaMismatchError if the columns of the files do not fit, InvalidInputError if the values of a
        partition column are of several types.
        """
        footers = [footer for footer in footers if footer.columns is not None]
        if not self._terms.is_table or not footers:
            return schema
        columns, where = self._terms.partition_columns, self._url
        if schema is None and self._sets_schema:
            try:
                found = fit(footers, self._terms.metadata.schema, partition_columns=columns, where=where)
            except SchemaMismatchError:
                found = fit(footers, None, partition_columns=columns, where=where)  # an overwrite sets columns
            return self._with_partition_types(found, staged)
        known = self._terms.metadata.schema if schema is None else schema
        found = fit(footers, known, partition_columns=columns, where=where)
        return found if known is not None else self._with_partition_types(found, staged)

    def _with_partition_types(self, schema: Mapping[str, Any], staged: Iterable[FileInfo]) -> Mapping[str, Any]:
        """The columns that `fit` took from files, with types for the partition columns, which files do not have.

        A column keeps its type if all values fit it. Otherwise the types of the given values decide. The default is a
        text.
        """
        types: dict[str, str] = {}
        before, partitions = self._types_before, [file.partition for file in staged]
        for column in self._terms.partition_columns:
            own, kinds = before.get(column), self._given.get(column, set())
            if own is not None and find_problem(partitions, {column: own}) is None:
                types[column.lower()] = own
            elif len(kinds) > 1:
                raise InvalidInputError(
                    f"the values of partition column {column!r} of {self._url} are of several types, "
                    f"{', '.join(sorted(kinds))}; give values of one type, or pass the columns as commit(schema=…)"
                )
            elif own is not None or kinds:
                types[column.lower()] = next(iter(kinds), "string")
        fields = [{**field, "type": types.get(field["name"].lower(), field["type"])} for field in schema["fields"]]
        return {**schema, "fields": fields}

    def _check_texts(self, files: Sequence[FileInfo], types: Types) -> None:
        found = find_problem((file.partition for file in files), types)
        if found is not None:
            partition, why = found
            path = next(file.path for file in files if file.partition == partition)
            step = (
                "Give new_file(partition=…) a value of that type, or the column another type by commit(schema=…)"
                if path in self.taken
                else "Take its path from new_file(partition=…), which also takes dates and numbers as they are"
            )
            raise InvalidInputError(
                f"{self._url_of(path)} lies in a partition that not all readers would find: {why}. {step}"
            )

    def _url_of(self, path: str) -> str:
        return f"{self._url}/{path}"


# --- partition columns inside of files --------------------------------------------------------------------------------


def columns_inside(file: FileInfo, footer: Footer | None, columns: Sequence[str], *, url: str) -> str:
    """Why a file is refused that has a partition column whose values differ from the directory's, or may differ, as
    text; empty if it is not.

    Readers of tables take the value from the directory, and tools that read single files take it from the file. The
    statistics of the file must prove that both are the same.

    `footer` is the file's, if it was read. `url` is the table's.
    """
    parts = frozenset(column.lower() for column in columns)
    kinds = {it["name"]: it["type"] for it in footer.columns["fields"]} if footer and footer.columns else {}
    for name in _in(parts, (*kinds, *(file.statistics or ()))):
        text = next(text for column, text in file.partition.items() if column.lower() == name.lower())
        bounds, kind = (file.statistics or {}).get(name, Bounds()), kinds.get(name)
        if file.rows != 0 and not _is_alike(text, bounds, file.rows, kind if isinstance(kind, str) else ""):
            return (
                f"{url}/{file.path} holds the partition column {name!r}, too, and its statistics do not prove that "
                f"the column is {text!r:.200} in all rows, as in the name of its directory: some readers would "
                "find one value, others another. Write the file without that column"
            )
    return ""


@lru_cache(maxsize=256)  # most files have the same columns
def _in(parts: frozenset[str], names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name for name in dict.fromkeys(names) if name.lower() in parts)


def _is_alike(text: str | None, bounds: Bounds, rows: int | None, kind: str) -> bool:
    if text is None:
        return bounds.nulls is not None and bounds.nulls == rows
    try:
        value = read(text, kind)
    except ValueError:
        return False
    least, most = value_of(bounds.min, kind), value_of(bounds.max, kind)
    return bounds.nulls == 0 and least is not None and least == most == value
