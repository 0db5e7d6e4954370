"""CREATE, REPLACE and ALTER TABLE in SQL: new tables, columns, comments and settings."""

import json
import os
from collections.abc import Iterator, Mapping, Sequence

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import ArrayType, CharType, DataType, MapType, StructType, VarcharType

from dbio_commit.base.errors import InvalidInputError, TableExistsError, TableNotFoundError
from dbio_commit.base.options import Mode
from dbio_commit.commit.options import CommitOptions
from dbio_commit.commit.write.options import WriteOptions
from dbio_commit.maintenance.settings import change_comments
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.settings import CHECK, Settings, check_changes
from dbio_commit.spark.committer.writes import note_of
from dbio_commit.spark.read.infer import table_schema
from dbio_commit.spark.read.states import NO_READS, Reads
from dbio_commit.spark.rewrite.frame import write_frame
from dbio_commit.spark.session.conf import open_table
from dbio_commit.spark.write.constraints import constrain
from dbio_commit.store import parse_location
from dbio_commit.store.location import is_plain

_OF_SPARK = {"provider", "owner", "location", "external", "is_managed_location", "path"}
"""Properties that Spark gives to each new table."""
FACTS = "dbio."
"""The properties whose names begin so say how large a table is. They cannot be set."""
_NO_SETTINGS = (FACTS, "option.")
_REQUIRED = "\0"
"""The text of a setting that a statement removes, and that must be there."""


def staged(path: str, mode: Mode, partition_by: Sequence[str], properties: Mapping[str, str]) -> str:
    """The token of a table that will be written in this mode. Raises InvalidInputError for what cannot be set."""
    settings = check_changes(settings_of(path, properties))
    return json.dumps({"path": path, "mode": mode, "by": [*partition_by], "sets": settings})


def is_staged(token: str) -> bool:
    return token.startswith("{")


def write_staged(
    spark: SparkSession, token: str, data: DataFrame, options: WriteOptions, reads: Reads = NO_READS
) -> Commit:
    """Writes the rows of a table that `staged` has named, which creates or replaces the table.

    If the rows are read from the table that they replace, it must not have changed since: `reads` has all that is read.
    """
    given = json.loads(token)
    return _write(spark, given["path"], data, given["mode"], given["by"], options, given["sets"], reads)


def create(
    spark: SparkSession,
    path: str,
    schema: StructType,
    partition_by: Sequence[str],
    properties: Mapping[str, str],
    mode: Mode,
) -> None:
    """Creates a table without rows, or replaces one, with its settings, in one commit."""
    settings = settings_of(path, properties)
    _refuse_promises(schema)
    try:
        _write(spark, path, spark.createDataFrame([], schema), mode, partition_by, WriteOptions(), settings)
    except TableExistsError as error:
        raise TableExistsError(
            f"there is a dbio table at {path!r:.200} already. SQL names it dbio.`{path}`; in Spark's own catalog, "
            "CREATE TABLE … USING dbio LOCATION … without columns gives it a name"
        ) from error


def check_named(spark: SparkSession, path: str, partition_by: Sequence[str], properties: Mapping[str, str]) -> None:
    """Checks that there is a table, to which CREATE TABLE without columns gives a name. Raises InvalidInputError."""
    try:
        snapshot = open_table(spark, path, None).snapshot()
    except TableNotFoundError:
        snapshot = None
    if snapshot is None or (snapshot.tid is None and not snapshot.files):
        raise InvalidInputError(
            f"there is no table at {path!r:.200}, to which CREATE TABLE without columns gives a name: give columns for "
            "a new table, or check the path"
        )
    if partition_by or settings_of(path, properties):
        raise InvalidInputError(
            f"{snapshot.url} is a table already, and CREATE TABLE without columns only gives it a name: leave "
            "PARTITIONED BY and TBLPROPERTIES out"
        )


def location_of(name: str, given: str | None, known: str | None) -> str:
    """Where a table with a name in Spark's own catalog is. `known` is where the name is already."""
    if given is not None and is_plain(given) and not os.path.isabs(given):
        raise InvalidInputError(f"LOCATION {given!r:.200} is no absolute path: Spark's catalog needs one, or a URL")
    if known is not None and given is not None and parse_location(known) != parse_location(given):
        raise InvalidInputError(
            f"{name} is a name of {known!r:.200}, and LOCATION is {given!r:.200}: leave LOCATION out, or first remove "
            "the name with DROP TABLE"
        )
    found = known or given
    if found is None:
        raise InvalidInputError(
            f"{name} needs a place: add LOCATION '…', such as 's3a://bucket/lake/orders'. Spark's catalog gets the "
            "name, and removes no rows when the name is dropped"
        )
    location = parse_location(found)
    return location.url if location.scheme == "file" else found


def alter(
    spark: SparkSession,
    path: str,
    added: StructType,
    settings: Mapping[str, str],
    comments: Mapping[str, str],
) -> None:
    """Adds columns, changes comments, and changes settings. Each kind is one commit; a statement has one kind."""
    table = open_table(spark, path, None)
    _refuse_promises(added)
    if added.fields:
        own = table_schema(table.store, table.snapshot()) or StructType()
        write_frame(
            spark.createDataFrame([], StructType([*own.fields, *added.fields])),
            table,
            mode="append",
            partition_by=None,
            options=WriteOptions(merge_schema=True),
            commit=CommitOptions(**note_of(spark)),
        )
    if comments:
        given = {tuple(it.split("\0")): text for it, text in comments.items()}
        change_comments(table.store, table.clock, given, note=table.note(**note_of(spark)))
    if settings:
        _refuse_comment(settings)
        constrain(spark, table, _changes(table.settings(), settings), note=table.note(**note_of(spark)))


def new_checks(known: Settings, given: Mapping[str, str]) -> dict[str, str]:
    """The checks of an ADD CONSTRAINT. Raises InvalidInputError if the table has a check of this name."""
    for name in given:
        if taken := next((it for it in known if it.lower() == name.lower()), None):
            raise InvalidInputError(
                f"the table has the constraint {taken.partition('.')[2]!r:.100} ({known[taken]:.300}) already; drop it "
                "first, or give another name"
            )
    return dict(given)


def _changes(known: Settings, given: Mapping[str, str]) -> dict[str, str]:
    """The changes, with the names of checks as they were set: SQL compares them without regard to case.

    Raises InvalidInputError if a constraint is to be removed that is not there.
    """
    spelled = {name.lower(): name for name in known if name.startswith(f"{CHECK}.") and name not in given}
    found = {}
    for name, text in given.items():
        own = name if name in known else spelled.get(name.lower(), name)
        if text == _REQUIRED and own not in known:
            raise InvalidInputError(
                f"the table has no constraint {name.partition('.')[2]!r:.100}; SHOW TBLPROPERTIES lists them"
            )
        found[own] = "" if text == _REQUIRED else text
    return found


def settings_of(path: str, properties: Mapping[str, str]) -> dict[str, str]:
    """The settings in the properties of a new table. Raises InvalidInputError for a location that is not its path."""
    given = dict(properties)
    location = given.get("location")
    if location is not None and parse_location(location) != parse_location(path):
        raise InvalidInputError(
            f"the name means the path {path!r:.200}, and LOCATION is {location!r:.200}; name the table by that path, "
            f"as in CREATE TABLE dbio.`{location}`"
        )
    if given.get("provider", "dbio") not in ("dbio", "parquet"):  # `saveAsTable` gives parquet if nothing is given
        raise InvalidInputError(f"the catalog dbio creates tables USING dbio, and not USING {given['provider']!r:.100}")
    _refuse_comment(given)
    return {name: value for name, value in given.items() if name not in _OF_SPARK and not name.startswith(_NO_SETTINGS)}


def _refuse_comment(properties: Mapping[str, str]) -> None:
    """Raises InvalidInputError for COMMENT, of which Spark makes a property."""
    if "comment" in properties:
        raise InvalidInputError(
            "a dbio table keeps comments of columns, and none of its own: leave COMMENT out, or comment a column by "
            "ALTER TABLE … ALTER COLUMN … COMMENT"
        )


def _refuse_promises(schema: StructType) -> None:
    """Raises InvalidInputError for what a definition asks for, and nothing would check: a table does not keep it.

    These are the lengths of char(n) and varchar(n), and NOT NULL inside of a column.
    """
    for field in schema.fields:
        for kind in _inside(field.dataType):
            if isinstance(kind, CharType | VarcharType):
                raise InvalidInputError(
                    f"column {field.name!r:.200} has the type {kind.simpleString()}, and a table keeps no length of "
                    "texts; nothing was written: use STRING, and a constraint such as CHECK (length(name) <= 10)"
                )
            if what := _never_null(kind):
                raise InvalidInputError(
                    f"{what} of column {field.name!r:.200} is NOT NULL, and a table keeps that only of whole columns; "
                    "nothing was written: leave it out, and use a constraint such as CHECK (place.city IS NOT NULL) or "
                    "CHECK (forall(names, x -> x IS NOT NULL))"
                )


def _never_null(kind: DataType) -> str | None:
    """A part of this type that may not be null, directly in it."""
    match kind:
        case StructType():
            return next((f"the field {it.name!r:.200}" for it in kind.fields if not it.nullable), None)
        case ArrayType():
            return None if kind.containsNull else "an element"
        case MapType():
            return None if kind.valueContainsNull else "a value"
    return None


def _inside(kind: DataType) -> Iterator[DataType]:
    """The type, and the types in it."""
    yield kind
    match kind:
        case StructType():
            for field in kind.fields:
                yield from _inside(field.dataType)
        case ArrayType():
            yield from _inside(kind.elementType)
        case MapType():
            yield from _inside(kind.keyType)
            yield from _inside(kind.valueType)


def schema_of_json(schema: str) -> StructType:
    return StructType.fromJson(json.loads(schema))


def _write(
    spark: SparkSession,
    path: str,
    data: DataFrame,
    mode: Mode,
    partition_by: Sequence[str],
    options: WriteOptions,
    settings: Settings,
    reads: Reads = NO_READS,
) -> Commit:
    return write_frame(
        data,
        open_table(spark, path, None),
        mode=mode,
        partition_by=partition_by,
        options=options,
        commit=CommitOptions(**note_of(spark)),
        reads=reads,
        sets=settings,
    )
