"""Random histories: each statement by SQL on one table, by the functions on another, and on rows in plain Python."""

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

import dbio_commit as dbio
from tests.spark_tables import configured

Row = tuple[Any, ...]
"""The values of COLUMNS."""
COLUMNS = ("id", "kind", "n", "inside", "day")
DDL = "id bigint, kind string, n int, inside struct<a: int, b: string>, day string"
Truth = bool | None


# --- conditions: as text, and on rows -------------------------------------------------------------------------------


@dataclass(frozen=True)
class Condition:
    """`sql` may have subqueries. `plain` is the same for the functions, which refuse these. `holds` gets both sides."""

    sql: str
    plain: str
    holds: Callable[[Row, Row], Truth]


TARGET, SOURCE = "target", "source"
NO_ROW: Row = (None,) * len(COLUMNS)


def condition(chance: random.Random, sides: Sequence[str], seen: Sequence[Row], depth: int = 2) -> Condition:
    """On columns of these sides. `seen` are the rows of the view `seen`, which subqueries read."""
    if depth and chance.random() < 0.5:
        left, right = (condition(chance, sides, seen, depth - 1) for _ in range(2))
        return chance.choice([_both, _either, _negated])(left, right)
    side = chance.choice(sides)

    def value(name: str, target: Row, source: Row) -> Any:
        return (target if side == TARGET else source)[COLUMNS.index(name)]

    column = chance.choice(["id", "n", "kind", "day"])
    literal = chance.randint(-1, 14) if column in ("id", "n") else f"{column[0]}{chance.randint(0, 14) % 4}"
    shown, name = repr(literal), f"{side}.{column}"
    match chance.randrange(6):
        case 0:
            text = f"{name} IS NULL"
            return Condition(text, text, lambda t, s: value(column, t, s) is None)
        case 1:
            some = [row[0] for row in seen if row[2] is not None and row[2] > 3 and row[0] is not None]
            listed = ", ".join(map(str, some)) or "NULL"
            query = "(SELECT id FROM seen WHERE n > 3 AND id IS NOT NULL)"
            return Condition(
                f"{side}.id IN {query}",
                f"{side}.id IN ({listed})" if some else "false",
                lambda t, s: None if value("id", t, s) is None and some else value("id", t, s) in some,
            )
        case 2 if side == TARGET and sides == [TARGET]:
            most = max((row[2] for row in seen if row[2] is not None), default=None)
            return Condition(
                f"{side}.n < (SELECT max(n) FROM seen)",
                f"{side}.n < {'NULL' if most is None else most}",
                lambda t, s: None if t[2] is None or most is None else t[2] < most,
            )
        case 3:
            text = f"{side}.inside.a = {literal if isinstance(literal, int) else 3}"
            wanted = literal if isinstance(literal, int) else 3

            def inside(t: Row, s: Row) -> Truth:
                it = value("inside", t, s)
                return None if it is None or it[0] is None else it[0] == wanted

            return Condition(text, text, inside)
    operator = chance.choice(["=", "<", ">=", "<>"])

    def compared(t: Row, s: Row) -> Truth:
        own = value(column, t, s)
        if own is None:
            return None
        return bool({"=": own == literal, "<": own < literal, ">=": own >= literal, "<>": own != literal}[operator])

    return Condition(f"{name} {operator} {shown}", f"{name} {operator} {shown}", compared)


def _both(left: Condition, right: Condition) -> Condition:
    def holds(t: Row, s: Row) -> Truth:
        found = left.holds(t, s), right.holds(t, s)
        return False if False in found else None if None in found else True

    return Condition(f"({left.sql} AND {right.sql})", f"({left.plain} AND {right.plain})", holds)


def _either(left: Condition, right: Condition) -> Condition:
    def holds(t: Row, s: Row) -> Truth:
        found = left.holds(t, s), right.holds(t, s)
        return True if True in found else None if None in found else False

    return Condition(f"({left.sql} OR {right.sql})", f"({left.plain} OR {right.plain})", holds)


def _negated(one: Condition, _: Condition) -> Condition:
    def holds(t: Row, s: Row) -> Truth:
        found = one.holds(t, s)
        return None if found is None else not found

    return Condition(f"NOT ({one.sql})", f"NOT ({one.plain})", holds)


# --- values ---------------------------------------------------------------------------------------------------------

Values = Mapping[str, tuple[str, Callable[[Row, Row], Any]]]
"""By column, or field: the expression, and its value for a row of the target and one of the source."""


def values_of(chance: random.Random, *, has_source: bool) -> Values:
    k = chance.randint(1, 3)
    known: list[tuple[str, str, Callable[[Row, Row], Any]]] = [
        ("n", f"target.n + {k}", lambda t, s: None if t[2] is None else t[2] + k),
        ("n", "length(target.kind)", lambda t, s: None if t[1] is None else len(t[1])),
        ("kind", f"concat(target.kind, '{k}')", lambda t, s: None if t[1] is None else f"{t[1]}{k}"),
        ("kind", "NULL", lambda t, s: None),
        ("day", f"'d{k}'", lambda t, s: f"d{k}"),
        ("id", f"target.id + {k}", lambda t, s: None if t[0] is None else t[0] + k),
        ("inside", f"named_struct('a', {k}, 'b', target.kind)", lambda t, s: (k, t[1])),
        ("inside", "NULL", lambda t, s: None),
    ]
    if has_source:
        known += [
            ("kind", "source.kind", lambda t, s: s[1]),
            ("n", f"source.n + {k}", lambda t, s: None if s[2] is None else s[2] + k),
            ("inside", "source.inside", lambda t, s: s[3]),
        ]
    chosen = chance.sample(known, 2)
    return {name: (text, of) for name, text, of in chosen}


def updated(values: Values, target: Row, source: Row) -> Row:
    new = {name: of(target, source) for name, (_, of) in values.items()}
    return tuple(new.get(name, old) for name, old in zip(COLUMNS, target, strict=True))


def texts(values: Values) -> dict[str, str]:
    return {name: text for name, (text, _) in values.items()}


def sets(values: Values) -> str:
    return ", ".join(f"{name} = {text}" for name, (text, _) in values.items())


# --- statements -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Statement:
    sql: str
    """With {} for the table."""
    function: Callable[[str], object]
    """Gets the path of the other table."""
    after: list[Row]
    """What the rows are then."""


def some_rows(chance: random.Random, *, unique: bool = False) -> list[Row]:
    count = chance.randint(1, 6)
    ids = chance.sample(range(14), count) if unique else [chance.choice([*range(14), None]) for _ in range(count)]
    return [
        (
            id,
            chance.choice([None, f"k{chance.randrange(4)}"]),
            chance.choice([None, chance.randrange(10)]),
            chance.choice([None, (chance.randrange(5), None), (None, "b")]),
            chance.choice([None, "d0", "d1", "d2"]),
        )
        for id in ids
    ]


def delete(spark: SparkSession, chance: random.Random, rows: Sequence[Row]) -> Statement:
    where = condition(chance, [TARGET], rows)
    return Statement(
        f"DELETE FROM {{}} AS target WHERE {where.sql}",
        lambda path: dbio.delete(spark, path, where.plain.replace("target.", "")),
        [row for row in rows if where.holds(row, NO_ROW) is not True],
    )


def update(spark: SparkSession, chance: random.Random, rows: Sequence[Row]) -> Statement:
    where, values = condition(chance, [TARGET], rows), values_of(chance, has_source=False)
    given = {name: text.replace("target.", "") for name, text in texts(values).items()}
    return Statement(
        f"UPDATE {{}} AS target SET {sets(values)} WHERE {where.sql}",
        lambda path: dbio.update(spark, path, given, where.plain.replace("target.", "")),
        [updated(values, row, NO_ROW) if where.holds(row, NO_ROW) else row for row in rows],
    )


def update_field(spark: SparkSession, chance: random.Random, rows: Sequence[Row]) -> Statement:
    """Of a struct that is null, it makes a struct."""
    where = condition(chance, [TARGET], rows)
    function = {"inside": "named_struct('a', n, 'b', inside.b)"}
    return Statement(
        f"UPDATE {{}} AS target SET target.inside.a = target.n WHERE {where.sql}",
        lambda path: dbio.update(spark, path, function, where.plain.replace("target.", "")),
        [
            (*row[:3], (row[2], row[3][1] if row[3] else None), row[4]) if where.holds(row, NO_ROW) else row
            for row in rows
        ],
    )


def insert(spark: SparkSession, chance: random.Random, rows: Sequence[Row]) -> Statement:
    news = some_rows(chance)
    frame = spark.createDataFrame(news, DDL)
    frame.createOrReplaceTempView("news")
    return Statement("INSERT INTO {} SELECT * FROM news", lambda path: dbio.write(frame, path), [*rows, *news])


def insert_from_itself(spark: SparkSession, chance: random.Random, rows: Sequence[Row]) -> Statement:
    return Statement(
        "INSERT INTO {0} (day, id, kind, n, inside) SELECT day, id + 1, NULL, NULL, NULL FROM {0} WHERE n > 5",
        lambda path: dbio.write(
            dbio.read(spark, path).where("n > 5").selectExpr("id + 1 AS id", "CAST(NULL AS string) kind",
                "CAST(NULL AS int) n", "CAST(NULL AS struct<a: int, b: string>) inside", "day"), path
        ),
        [*rows, *((None if r[0] is None else r[0] + 1, None, None, None, r[4]) for r in rows if (r[2] or 0) > 5)],
    )  # fmt: skip


def overwrite(spark: SparkSession, chance: random.Random, rows: Sequence[Row]) -> Statement:
    news = [(*row[:4], "d1") for row in some_rows(chance)]
    frame = spark.createDataFrame(news, DDL)
    frame.createOrReplaceTempView("news")
    return Statement(
        "INSERT INTO {} REPLACE WHERE day = 'd1' SELECT * FROM news",
        lambda path: dbio.write(frame, path, mode="overwrite", replace_where="day = 'd1'"),
        [*(row for row in rows if row[4] != "d1"), *news],
    )


def merge(spark: SparkSession, chance: random.Random, rows: Sequence[Row]) -> Statement:
    news = some_rows(chance, unique=True)
    frame = spark.createDataFrame(news, DDL)
    frame.createOrReplaceTempView("news")
    sql = ["MERGE INTO {} AS target USING news AS source ON target.id = source.id"]
    given: list[Any] = []
    acts: dict[str, list[tuple[Condition, Callable[[Row, Row], list[Row]]]]] = {"both": [], "new": [], "old": []}
    always = Condition("true", "true", lambda t, s: True)

    def add(which: str, rows_of: str, begin: Callable[[str], Any], sides: Sequence[str]) -> None:
        where = condition(chance, sides, rows, 1) if chance.random() < 0.7 else always
        sql.append(f"WHEN {rows_of} AND {where.sql} THEN")
        clause = begin(where.plain)
        if which == "new":
            sql.append("INSERT (id, kind, day) VALUES (source.id, source.kind, concat('d', source.id % 3))")
            given.append(clause.insert({"id": "source.id", "kind": "source.kind", "day": "concat('d', source.id % 3)"}))
            acts[which].append((where, lambda t, s: [(s[0], s[1], None, None, f"d{s[0] % 3}")]))
        elif chance.random() < 0.3:
            sql.append("DELETE")
            given.append(clause.delete())
            acts[which].append((where, lambda t, s: []))
        else:
            values = values_of(chance, has_source=which == "both")
            sql.append(f"UPDATE SET {sets(values)}")
            given.append(clause.update(texts(values)))
            acts[which].append((where, lambda t, s: [updated(values, t, s)]))

    for _ in range(chance.randint(1, 2)):
        add("both", "MATCHED", dbio.when_matched, [TARGET, SOURCE])
    if chance.random() < 0.7:
        add("new", "NOT MATCHED", dbio.when_not_matched, [SOURCE])
    if chance.random() < 0.5:
        add("old", "NOT MATCHED BY SOURCE", dbio.when_not_matched_by_source, [TARGET])

    def act(which: str, target: Row, source: Row) -> list[Row]:
        for where, of in acts[which]:
            if where.holds(target, source):
                return of(target, source)
        return [] if which == "new" else [target]

    by_id = {row[0]: row for row in news}
    after: list[Row] = []
    for row in rows:
        matched = by_id.get(row[0]) if row[0] is not None else None
        after += act("both", row, matched) if matched else act("old", row, NO_ROW)
    for row in news:
        if row[0] not in {it[0] for it in rows}:
            after += act("new", NO_ROW, row)
    return Statement(" ".join(sql), lambda path: dbio.merge(spark, path, frame, "target.id = source.id", given), after)


KINDS = [delete, update, update_field, insert, insert_from_itself, overwrite, merge, merge, merge]


# --- histories ------------------------------------------------------------------------------------------------------


def in_order(rows: Sequence[Row]) -> list[Row]:
    return sorted(rows, key=repr)


def selected(spark: SparkSession, name: str) -> list[Row]:
    found = spark.sql(f"SELECT {', '.join(COLUMNS)} FROM {name}").collect()
    return in_order([(*row[:3], None if row[3] is None else tuple(row[3]), row[4]) for row in found])


def in_python(path: str) -> list[Row]:
    """The rows without Spark."""
    found = dbio.Table(path).snapshot().to_arrow([*COLUMNS]).to_pylist()
    inside = [None if row["inside"] is None else (row["inside"]["a"], row["inside"]["b"]) for row in found]
    return in_order([(row["id"], row["kind"], row["n"], it, row["day"]) for row, it in zip(found, inside, strict=True)])


def counts(path: str) -> Mapping[str, Any]:
    found = dbio.Table(path).history()[0].metrics
    return {name: count for name, count in found.items() if "Rows" in name and name != "numOutputRows"}


def agree(spark: SparkSession, directory: Path, seed: int, steps: int, kinds: Sequence[Any] = KINDS) -> None:
    chance = random.Random(seed)
    by_sql, by_function = str(directory / "by sql"), str(directory / "by function")
    name, rows = f"dbio.`{by_sql}`", some_rows(chance) + some_rows(chance)
    partition_by = chance.choice([[], ["day"]])
    settings = chance.choice([{}, {"change_data": "true"}])
    for path in (by_sql, by_function):
        dbio.write(spark.createDataFrame(rows, DDL).coalesce(2), path, partition_by=partition_by)
        if settings:
            dbio.Table(path).set(settings)
    for step, kind in enumerate(chance.choices(kinds, k=steps)):
        spark.table(name).createOrReplaceTempView("seen")
        statement = kind(spark, chance, rows)
        context = f"seed {seed}, step {step}: {statement.sql}"
        try:
            spark.sql(statement.sql.format(name))
            statement.function(by_function)
        except Exception as error:
            error.add_note(context)
            raise
        rows = in_order(statement.after)
        assert selected(spark, name) == rows, context
        assert in_python(by_function) == rows, context
        assert counts(by_sql) == counts(by_function), context
        known = spark.sql(f"SELECT count(*), count(id), count(n), max(id), max(day) FROM {name}").collect()[0]
        ids, days = ([row[i] for row in rows if row[i] is not None] for i in (0, 4))
        numbers = [row[2] for row in rows if row[2] is not None]
        most = max(ids, default=None), max(days, default=None)
        assert tuple(known) == (len(rows), len(ids), len(numbers), *most), context


def test_a_random_history_by_sql_is_that_of_the_functions_and_of_plain_rows(
    spark: SparkSession, tmp_path: Path
) -> None:
    dbio.enable(spark)
    with configured(spark, {"spark.sql.shuffle.partitions": "1"}):
        agree(spark, tmp_path, 1, steps=5)
    spark.catalog.dropTempView("seen")
    spark.catalog.dropTempView("news")


@pytest.mark.long
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(60))
def test_random_histories_by_sql_are_those_of_the_functions_and_of_plain_rows(
    spark: SparkSession, tmp_path: Path, seed: int
) -> None:
    dbio.enable(spark)
    with configured(spark, {"spark.sql.shuffle.partitions": "1"}):
        agree(spark, tmp_path, seed, steps=20)
