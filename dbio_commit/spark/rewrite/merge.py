"""Merges a source into a table: joins the rows of both, and writes the rows that the clauses make of them."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, reduce
from operator import and_

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql import types as t

from dbio_commit.base.errors import InvalidInputError, SchemaMismatchError
from dbio_commit.commit.write.clauses import Clause, RowKind, check_clauses
from dbio_commit.protocol.commits import Commit
from dbio_commit.protocol.state import DataFile
from dbio_commit.spark.read.located import FILE, PLACE
from dbio_commit.spark.rewrite.base import RESERVED, Rewrite
from dbio_commit.spark.rewrite.by_condition import columns_named, misfits
from dbio_commit.spark.rewrite.keys import Keys
from dbio_commit.spark.session import schema as schemas
from dbio_commit.spark.session.conf import is_connect
from dbio_commit.spark.sql.conditions import NOTHING, SOURCE, TARGET, all_of, any_of, check, holds, target_part
from dbio_commit.spark.sql.name_resolution import read_as
from dbio_commit.spark.sql.planned import Named, Planned, Sql, as_they_are, read, text_of
from dbio_commit.spark.sql.values import Assigned, Fitted, SqlValue, assign, refuse_no_texts
from dbio_commit.spark.transfer.kept import Keep, keeping
from dbio_commit.spark.write.actions import ACTION, RowAction, row_action
from dbio_commit.spark.write.constraints import with_defaults


def merge_rows(
    rewrite: Rewrite,
    source: DataFrame,
    on: Sql | Sequence[str],
    clauses: Sequence[Clause],
    *,
    named: Named = as_they_are,
) -> Commit:
    """Merges the source into the table, as one commit.

    `named` gives rows of the source the column ids that `Planned` expressions use.

    Raises InvalidInputError for impossible clauses, for rows of the table that match several rows of the source, and
    for values that do not fit their columns; SchemaMismatchError, CommitConflictError, and as a write does.
    """
    checked = check_clauses(clauses)
    return keeping(lambda keep: _merge(rewrite, _Merge(rewrite, source, on, checked, named, keep)))


def _merge(rewrite: Rewrite, merge: "_Merge") -> Commit:
    if merge.has_nothing_to_do:
        return rewrite.commit_nothing(_metrics(Counter()))
    files, where = merge.files
    with rewrite.begin(where, changes=bool(files) and merge.changes_rows) as rewriting:
        counts = Counter[RowAction]()
        if files:
            located = rewrite.locate(files)
            counts = rewriting.write_over(
                merge.rows(located.frame), located, merge.sets, new_rows=merge.most_new_rows, twice=merge.twice
            )
        elif merge.inserts:
            counts = rewriting.write(merge.new_rows())
        if wrong := counts[RowAction.WRONG]:
            rewriting.refuse(misfits(wrong, merge.fitted))
        return rewriting.commit(_metrics(counts))


def _metrics(counts: Counter[RowAction]) -> Mapping[str, int]:
    return {
        "numTargetRowsInserted": counts[RowAction.INSERTED],
        "numTargetRowsUpdated": counts[RowAction.UPDATED],
        "numTargetRowsDeleted": counts[RowAction.DELETED],
        "numTargetRowsCopied": counts[RowAction.KEPT],
    }


_IS_SOURCE, _CLAUSE = "_dbio_source", "_dbio_clause"
_NO_CLAUSE = -1


class _Merge:
    """A merge whose clauses are checked against the columns of the table and of the source."""

    def __init__(
        self,
        rewrite: Rewrite,
        source: DataFrame,
        on: Sql | Sequence[str],
        clauses: Sequence[Clause],
        named: Named,
        keep: Keep,
    ) -> None:
        if clash := set(RESERVED).intersection(map(str.lower, source.columns)):
            raise InvalidInputError(
                f"the source has a column {min(clash)}, a name that dbio uses itself in a merge; rename the column"
            )
        self._rewrite, self._clauses, self._named = rewrite, clauses, named
        self._columns: dict[str, Column] = {}
        self._given = source
        of_target = [_name_of(TARGET, name) for name in rewrite.schema.fieldNames()]
        of_source = [_name_of(SOURCE, name) for name in source.columns]
        self._seen: Mapping[RowKind, Sequence[str]] = {
            "matched": [*of_target, *of_source],
            "not_matched": of_source,
            "not_matched_by_source": of_target,
        }
        self._asked_on: object = on
        self._keys_match: Column | None
        if isinstance(on, Planned):
            on.check(name="on")
            self._on, self._keys_match = on.text or "true", on.column
        else:
            self._on, self._keys_match = _match_on(on, rewrite.schema, source)
            self._asked_on = self._on
        if self._keys_match is None:
            check(self._scopes["matched"], self._on, name="on")
        elif not isinstance(on, Planned):
            self._scopes["matched"].where(self._keys_match).schema  # noqa: B018  (as in `check`)
        for clause in clauses:
            if isinstance(clause.where, Planned):
                clause.where.check(name=f"when_{clause.rows}")
            elif clause.where is not None:
                for rows in self._asked(clause):
                    check(self._scopes[rows], clause.where, name=f"when_{clause.rows}")
        if rewrite.with_default and any(clause.action == "insert" for clause in clauses):
            source = with_defaults(source, rewrite.plan, {name: _default(name) for name in rewrite.with_default})
        self._with_defaults = source
        keys = Keys.of(self._on, rewrite.schema, source)
        if self._keys_match is not None and not isinstance(on, Planned):
            keys.refuse_inexact()
        self._values = [self._assign(clause, source, keys.names) for clause in clauses]
        self._source = keep(source)  # its rows must not change between the search for matches and the write
        self._keys = Keys.of(self._on, rewrite.schema, self._source)

    @cached_property
    def _scopes(self) -> Mapping[RowKind, DataFrame]:
        """By the rows of a clause: an empty DataFrame with the columns that its texts may use."""
        target, source = self._rewrite.no_rows().alias(TARGET), self._nothing_of(self._given)
        return {"matched": target.crossJoin(source), "not_matched": source, "not_matched_by_source": target}

    def _nothing_of(self, source: DataFrame) -> DataFrame:
        return self._named(self._rewrite.spark.createDataFrame([], source.schema)).alias(SOURCE)

    def _of_source(self, name: str) -> Column:
        """The column of the source; always the same object for the same name, for `Assigned.is_as`."""
        if name not in self._columns:
            self._columns[name] = _of_side(SOURCE, name)
        return self._columns[name]

    def _asked(self, clause: Clause) -> Iterable[RowKind]:
        """The rows against which texts of the clause are checked: its own kind; over Connect, also matched pairs."""
        return dict.fromkeys((clause.rows, "matched")) if is_connect(self._rewrite.spark) else (clause.rows,)

    def _assign(self, clause: Clause, source: DataFrame, keys: Collection[str]) -> dict[str, Assigned]:
        """By column: the value that this clause gives it, and whether the value can fail to fit.

        An inserted row must match the source row that it comes from, or the next merge would insert it again. So the
        keys of an insert must keep their exact value.
        """
        if clause.action == "delete":
            return {}
        schema = self._rewrite.schema
        filled: dict[str, Column | None] = dict.fromkeys(self._rewrite.generated)
        if clause.action == "insert":
            filled |= {it: _of_side(SOURCE, _default(it)) for it in self._rewrite.with_default}
        given: Mapping[str, SqlValue] | None = clause.values
        if given is None:
            known = _by_name(source.columns)
            lacking = [name for name in schema.fieldNames() if not known.keys() & {name, name.lower()}]
            if missing := [name for name in lacking if name not in filled]:
                raise SchemaMismatchError(
                    f"the source has no column {missing[0]!r}, so {clause.action}() cannot set all columns; give "
                    "values for the columns that it shall set"
                )
            given = {
                name: self._of_source(known.get(name) or known[name.lower()])
                for name in schema.fieldNames()
                if name not in lacking
            }
        fields = columns_named(schema, given)
        refuse_no_texts(clause.values or {})
        named = {field.name for field in fields.values()}
        for name, value in filled.items():
            if value is not None and name not in named:
                fields[name], given = schema[name], {**given, name: value}
        texts = [(value, fields[name]) for name, value in given.items() if isinstance(value, str)]
        columns = [(value, fields[name]) for name, value in given.items() if not isinstance(value, str)]
        exact = keys if clause.action == "insert" else ()
        values = {
            **assign(lambda: self._scopes[clause.rows], texts, exact=exact),
            **assign(lambda: self._nothing_of(self._with_defaults), columns, exact=exact),
        }
        for rows in self._asked(clause) if texts else ():
            self._scopes[rows].select(*(f.expr(text) for text, _ in texts)).schema  # noqa: B018  (as in `check`)
        return values

    def _has(self, *rows: RowKind) -> bool:
        return any(clause.rows in rows for clause in self._clauses)

    # --- which files ----------------------------------------------------------------------------------------------

    @cached_property
    def files(self) -> tuple[Sequence[DataFile], str | None]:
        """The files that may hold rows which the merge needs, and a condition for these rows; None: all rows."""
        where = self._matching
        if self._has("not_matched_by_source"):
            conditions = [clause.where for clause in self._clauses if clause.rows == "not_matched_by_source"]
            texts = [text_of(it) for it in conditions]
            own = any_of([it and target_part(it, self._names, ()) for it in texts])
            where = any_of([own, where])
        return self._rewrite.files(where), where

    @property
    def _names(self) -> list[str]:
        return self._rewrite.schema.fieldNames()

    @cached_property
    def _matching(self) -> str | None:
        """A condition that holds for all rows of the table that match a row of the source; None: any row may match."""
        asked = target_part(self._on, self._names, self._source.columns)
        between = None if self._rewrite.snapshot is None else self._keys.between()
        return NOTHING if between == NOTHING else all_of(it for it in (asked, between) if it)

    # --- which rows -----------------------------------------------------------------------------------------------

    def rows(self, target: DataFrame) -> DataFrame:
        """The new rows and their actions, from rows of the table with FILE and PLACE, and from the source."""
        # `toDF` gives the source new column ids: Spark renames a source that is in the plan twice. The column that is
        # added after the alias is not part of `source.*`.
        source = self._named(self._source.toDF(*self._source.columns)).alias(SOURCE)
        source = source.withColumn(_IS_SOURCE, f.lit(True))
        left, right = self._has("not_matched_by_source"), self.inserts
        how = "full_outer" if left and right else "left_outer" if left else "right_outer" if right else "inner"
        if not left and self._keys.are_few(self._rewrite.known_rows(self.files[0])):
            # First drop the rows that match nothing, so that they are not shuffled.
            few = self._named(self._source).alias(SOURCE)
            target = target.alias(TARGET)
            target = target.join(f.broadcast(few), self._match(target, few), "left_semi")
        target = target.alias(TARGET).withColumns({FILE: f.col(FILE), PLACE: f.col(PLACE)})  # no part of `target.*`
        both = target.join(source, self._match(target, source), how)
        in_target, in_source = f.col(PLACE).isNotNull(), f.col(_IS_SOURCE).isNotNull()
        kinds: Mapping[RowKind, Column] = {
            "matched": in_target & in_source,
            "not_matched": ~in_target,
            "not_matched_by_source": ~in_source,
        }
        conditions = self._conditions(both, {i: it.where for i, it in enumerate(self._clauses) if it.where is not None})
        numbers = f.lit(_NO_CLAUSE)
        for i, clause in reversed([*enumerate(self._clauses)]):
            is_it = kinds[clause.rows] & holds(conditions[i]) if i in conditions else kinds[clause.rows]
            numbers = f.when(is_it, i).otherwise(numbers)
        both = both.withColumn(_CLAUSE, numbers)
        # This means `>= 0`, written so that Spark cannot infer it. Else Spark would evaluate conditions for other rows,
        # too, and fail on them, such as on a division by zero.
        both = both.where(f.col(_CLAUSE) >= f.least(f.lit(0), f.spark_partition_id()))
        by_clause = {i: f.col(_CLAUSE) == i for i in range(len(self._clauses))}
        given = self._fitted(both)
        actions = f.lit(int(RowAction.KEPT))
        for i, (clause, values) in enumerate(zip(self._clauses, given, strict=True)):
            own = f.lit(int(_ACTIONS[clause.action]))
            for _, misfit in values.values():
                own = own if misfit is None else f.when(misfit, int(RowAction.WRONG)).otherwise(own)
            # Nested: for one condition "clause and misfit", Spark would compute values for rows of other clauses.
            actions = f.when(by_clause[i], own).otherwise(actions)
        left_out = set() if self.inserts else {*self._names} - self.sets
        checks = bool(self._rewrite.plan.constraints)
        fields = [it for it in self._rewrite.schema.fields if checks or it.name not in left_out]
        columns = [self._value(field, by_clause, given) for field in fields]
        written = [(i, values) for i, values in enumerate(self._values) if self._clauses[i].action != "delete"]
        computed = {
            name: f.col(_CLAUSE).isin([i for i, values in written if name not in values])
            for name in self._rewrite.generated
        }
        # One call names all columns: each call from Python to the JVM takes time.
        names = [it.name for it in fields]
        rows = both.select(*columns, row_action(actions), FILE, PLACE, _CLAUSE).toDF(
            *names, ACTION, FILE, PLACE, _CLAUSE
        )
        return self._rewrite.checked(rows, computed).drop(*left_out.intersection(names), _CLAUSE)

    def _match(self, target: DataFrame, source: DataFrame) -> Column:
        """Whether a row of the target matches a row of the source."""
        if self._keys_match is not None:
            return self._keys_match
        return read_as(target.crossJoin(source), self._seen["matched"], [self._on])[0]

    def _conditions(self, both: DataFrame, given: Mapping[int, Sql]) -> Mapping[int, Column]:
        """The conditions of clauses, by number of the clause, as columns of the joined rows."""
        found: dict[int, Column] = {}
        for rows, seen in self._seen.items():
            numbers = [i for i in given if self._clauses[i].rows == rows]
            found |= zip(numbers, read(both, seen, [given[i] for i in numbers]), strict=True)
        return found

    def _fitted(self, both: DataFrame) -> Sequence[Mapping[str, Fitted]]:
        """By clause and column: the values, as columns of the joined rows."""
        fitted: list[Mapping[str, Fitted]] = []
        for clause, values in zip(self._clauses, self._values, strict=True):
            if fitted:  # then `_value` takes those of the first clause
                values = {name: it for name, it in values.items() if not self._is_one_column(name)}
            texts = {name: it.value for name, it in values.items() if isinstance(it.value, str)}
            read = dict(zip(texts, read_as(both, self._seen[clause.rows], [*texts.values()]), strict=True))
            fitted.append({name: it.fitted(read.get(name)) for name, it in values.items()})
        return fitted

    def _value(
        self, field: t.StructField, by_clause: Mapping[int, Column], given: Sequence[Mapping[str, Fitted]]
    ) -> Column:
        """The value of a column after the merge; null if the task takes it from the file, so Spark need not read it."""
        is_asked = field.name in self.sets or bool(self._rewrite.plan.constraints)
        if self._is_one_column(field.name):
            return given[0][field.name][0]
        value: Column | None = None
        for i, (clause, values) in enumerate(zip(self._clauses, given, strict=True)):
            if field.name in values:
                new = values[field.name][0]
            elif clause.action == "update" and is_asked:
                new = _of_side(TARGET, field.name)
            else:
                continue
            value = f.when(by_clause[i], new) if value is None else value.when(by_clause[i], new)
        return f.lit(None).cast(field.dataType) if value is None else value

    def _is_one_column(self, name: str) -> bool:
        """Whether all clauses give the column the value of one column of the source."""
        return all(name in values and values[name].is_as(self._values[0][name]) for values in self._values)

    def new_rows(self) -> DataFrame:
        """As `rows`, of the source alone: for a merge that needs no row of the table."""
        nowhere = self._rewrite.no_rows().select(
            "*", f.lit(None).cast("long").alias(FILE), f.lit(None).cast("long").alias(PLACE)
        )
        return self.rows(nowhere).select(*map(schemas.quoted, self._names), ACTION)

    @property
    def has_nothing_to_do(self) -> bool:
        return not self._has("not_matched_by_source") and self._keys.count == 0

    @property
    def inserts(self) -> bool:
        return self._has("not_matched")

    @property
    def most_new_rows(self) -> int:
        return self._keys.count if self.inserts else 0

    @property
    def changes_rows(self) -> bool:
        """Whether it may change existing rows."""
        return self._has("matched", "not_matched_by_source")

    @cached_property
    def sets(self) -> set[str]:
        """The columns that an update may change."""
        updates = [
            values for clause, values in zip(self._clauses, self._values, strict=True) if clause.action == "update"
        ]
        return {name for values in updates for name in (*values, *self._rewrite.generated)}

    @property
    def twice(self) -> str | None:
        """The message for rows of the table that match several rows of the source. None if such rows are deleted,
        however many rows they match."""
        if [(it.action, it.where) for it in self._clauses if it.rows == "matched"] == [("delete", None)]:
            return None
        return (
            f"rows of the table match more than one row of the source by on={self._asked_on!r:.200}, so it is not "
            "clear which of them counts: give the source one row for each row of the table"
        )

    @property
    def fitted(self) -> set[str]:
        """The columns that may be given a value which they cannot hold."""
        return {name for values in self._values for name, it in values.items() if it.can_misfit}


def _default(column: str) -> str:
    """The name of the column that `with_defaults` adds to the source for this column of the table."""
    return f"_dbio_default_{column}"


_ACTIONS = {"update": RowAction.UPDATED, "delete": RowAction.DELETED, "insert": RowAction.INSERTED}


# --- the two sides ----------------------------------------------------------------------------------------------------


def _name_of(side: str, column: str) -> str:
    """The column of this side of the join, in Spark's SQL."""
    return f"{side}.{schemas.quoted(column)}"


def _of_side(side: str, column: str) -> Column:
    return f.col(_name_of(side, column))


def _match_on(on: str | Sequence[str], schema: t.StructType, source: DataFrame) -> tuple[str, Column | None]:
    """`on` as a text; and, if `on` is a list of columns, the condition that they are equal, else None."""
    if isinstance(on, str):
        if on.strip().lower() in {*map(str.lower, schema.fieldNames())} & {*map(str.lower, source.columns)}:
            raise InvalidInputError(
                f"on={on!r:.100} is a column, not a condition; to match rows by this column, give [{on!r:.100}]"
            )
        return on, None
    if not isinstance(on, Sequence) or not on or not all(isinstance(name, str) for name in on):
        raise InvalidInputError(
            f'on={on!r:.200} is neither a condition, such as "target.id = source.id", nor a list of columns'
        )
    named: list[list[str]] = []
    for columns, whose in ((schema.fieldNames(), "table"), (source.columns, "source")):
        own = _by_name(columns)
        if missing := [name for name in on if not own.keys() & {name, name.lower()}]:
            raise InvalidInputError(f"on={list(on)!r:.200}: the {whose} has no column {missing[0]!r}")
        named.append([own.get(name) or own[name.lower()] for name in on])
    pairs = [*zip(*named, strict=True)]
    text = " AND ".join(f"{_name_of(TARGET, it)} = {_name_of(SOURCE, other)}" for it, other in pairs)
    return text, reduce(and_, (_of_side(TARGET, it) == _of_side(SOURCE, other) for it, other in pairs))


def _by_name(columns: Iterable[str]) -> Mapping[str, str]:
    """The columns by their exact names and by their names in lower case: a session may tell names apart by case."""
    columns = [*columns]
    return {name.lower(): name for name in columns} | {name: name for name in columns}
