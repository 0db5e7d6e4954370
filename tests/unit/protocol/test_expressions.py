"""Which expressions of settings a writer evaluates. What Spark makes of them is in test_stored_sql.py.

Rules: PROTOCOL.md 9.8.
"""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.base.errors import InvalidInputError
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.expressions import FUNCTIONS, MAX_CHARACTERS, MAX_DEPTH, problem_of
from dbio_commit.protocol.settings import check_changes

GOOD = [
    "n > 0",
    "kind IN ('click', 'view')",
    "a NOT IN (1, 2) OR b IN ('x') AND NOT c",
    "CAST(ts AS DATE)",
    "TRY_CAST(n AS decimal(10, 2)) = round(n, 2)",
    "cast(a as struct<x: int, `y z` array<map<string, decimal(10,2)>>>)",
    "'it''s'",
    "'\\'quoted\\''",
    "note RLIKE '^\\\\d+$'",
    "kind LIKE 'b!%' ESCAPE '!'",
    "degrees > -273.15",
    "1.5BD + 2L * .5e-3 - 1E5",
    "a <=> b AND a <> c AND !d",
    "~a & 1 | 2 ^ 3",
    "a IS NOT NULL AND b IS DISTINCT FROM c AND d IS TRUE",
    "NOT (a BETWEEN 1 AND 2) AND a NOT BETWEEN 3 AND 4",
    "CASE WHEN a > 1 THEN 'x' ELSE y END = 'x'",
    "CASE a WHEN 1 THEN 2 WHEN 2 THEN 3 END",
    "transform(tags, t -> t || '!')",
    "zip_with(xs, ys, (x, y) -> x + y)[0] > 3",
    "lpad(id, 8, '0') = rpad(id, +8, '0') AND round(n, -2) = ceil(n)",
    "sha2(concat_ws('|', " + ", ".join(f"coalesce(trim(lower(c{i})), '')" for i in range(60)) + "), 256)",
    " AND ".join(f"c{i} BETWEEN 1 AND 2" for i in range(100)),
    "regexp_replace(regexp_replace(lower(name), '[^a-z ]', ''), ' +', ' ')",
    "upper(trim(coalesce(nullif(regexp_replace(lower(name), '[0-9]', ''), ''), right(other, 3))))",
    "CASE kind WHEN 'a' THEN 1 WHEN 'b' THEN 2 WHEN 'c' THEN 3 ELSE 4 END",
    "CASE WHEN a THEN 1 ELSE " * 12 + "2" + " END" * 12,
    "forall(tags, t -> t <> '')",
    "exists(tags, t -> exists(t.`inside`, u -> u = t.first))",
    "EXTRACT(YEAR FROM d) = 2026",
    "TRIM(BOTH 'x' FROM y)",
    "TRIM(LEADING FROM y)",
    "trim(a, b)",
    "d + INTERVAL 1 DAY 2 HOURS > DATE'3000-01-01' - INTERVAL '1' DAY",
    "INTERVAL '1-2' YEAR TO MONTH",
    "d + INTERVAL -1 DAY + INTERVAL '2' HOURS - INTERVAL '1 day'",
    "map('a', 1)['a'] + array(1, 2)[0]",
    "`select` > 1 AND s.`x y`.z = 1",
    "(a, b) = (1, 2)",
    "named_struct('a', 1).a",
    "x'1F' = b",
    "left(a, 2) = 'x'",
    "current_date",
    "current_timestamp()",
    "uuid()",
    "concat('$', '{')",
]


@pytest.mark.parametrize("sql", GOOD)
def test_what_rows_are_checked_by_is_evaluated(sql: str) -> None:
    assert problem_of(sql) is None
    assert check_changes({"check.a": f" {sql}\n"}) == {"check.a": sql}


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("java_method('java.lang.System', 'exit', 0)", r"java_method\(\) is none of the functions"),
        ("REFLECT('java.lang.System', 'getenv', 'A')", "is none of the functions"),
        ("try_reflect('a', 'b')", "is none of the functions"),
        ("a IN (1, input_file_name())", "is none of the functions"),
        ("xpath_string(a, b)", "is none of the functions"),
        ("repeat('x', 1000000000)", "is none of the functions"),
        ("rand() > 0.5", "is none of the functions"),
        ("sum(n) > 1", "is none of the functions"),
        ("explode(a)", "is none of the functions"),
        ("my_udf(a)", "is none of the functions"),
        ("IDENTIFIER('java_method')('a')", "is none of the functions"),
        ("system.builtin.java_method('a')", "by a name with dots"),
        ("db.upper(a)", "by a name with dots"),
        ("`java_method`('a')", "and its name stands in backticks"),
        ("\"java_method\"('a')", "texts stand in single quotes"),
        ('kind = "click"', "texts stand in single quotes"),
        ("größe > 0", "put a name that is not ASCII in backticks"),
        ("(\u017felect -1)", "is no part of an expression"),
        ("value\u017f", "put a name that is not ASCII"),
        ("1\u017f", "is no part of an expression"),
        ("1e300000000 > 0", "is no part of an expression"),
        ("1e30BD > 0", "is no part of an expression"),
        ("lpad('x', 2000000000, 'y')", r"second argument of lpad\(\) must be a number of at most four digits"),
        ("rpad(x, n, 'y')", r"second argument of rpad\(\)"),
        ("round(1.5D, 300000000)", r"second argument of round\(\)"),
        ("round(1.5D, 9 * 9999)", r"second argument of round\(\)"),
        ("format_number(1.5, 99999)", r"second argument of format_number\(\)"),
        ("format_string('%1$1000000000d', 1)", "is none of the functions"),
        ("array_insert(array(1), 2000000000, 1)", "is none of the functions"),
        ("aggregate(a, 'x', (y, z) -> concat(y, y))", "is none of the functions"),
        ("nullif(" * 12 + "a" + ", 1)" * 12, "that is too large"),
        ("decode(" * 8 + "a" + ", 1, 2, 3, 4)" * 8, "that is too large"),
        ("(" * 12 + "a" + " BETWEEN 1 AND 2)" * 12, "that is too large"),
        ("case " * 6 + "a" + " when 1 then 2 when 2 then 3 when 3 then 4 when 4 then 5 end" * 6, "that is too large"),
        ("replace(" * 4 + "'aaaa'" + ", 'a', 'aaaaaaaaaaaaaaaa')" * 4, "that is too large"),
        ("transform(a, x -> " * 3 + "1" + ")" * 3, "nests more than 2 lambda functions"),
        ("system.`java_method`('a')", "by a name with dots"),
        ("(SELECT 1)", "'select', at character 2"),
        ("(SELECT -1)", "'select', at character 2"),
        ("(" * 20 + "select secret from t" + ")" * 20, "'select'"),
        ("(TABLE t)", "'table', at character 2"),
        ("(FROM t SELECT x)", "'from', at character 2"),
        ("(VALUES ('x'))", "is none of the functions"),
        ("(VALUES -1)", "'values'"),
        ("(WITH a AS (SELECT 1) SELECT 1)", "'with'"),
        ("(MAP a USING 'sh')", "'map'"),
        ("(REDUCE -a USING 'sh')", "'reduce'"),
        ("EXISTS (SELECT 1)", "'select'"),
        ("a IN (SELECT 1)", "'select'"),
        ("(a UNION b)", "'union', at character 4"),
        ("a AS b", "'as', at character 3"),
        ("lag(a) OVER (ORDER BY b)", "is none of the functions"),
        ("upper(a) OVER (ORDER BY b)", "'over', at character 10"),
        ("upper(a) FILTER (WHERE b)", "'filter'"),
        ("'${env:HOME}'", "variables of the writer"),
        ("`${spark.x}`", "variables of the writer"),
        ("(sel${env:NOPE}ect 1)", "variables of the writer"),
        ("a -- b", "is no part of an expression"),
        ("a /* b */", "is no part of an expression"),
        ("a; b", "is no part of an expression"),
        ("a = ?", "is no part of an expression"),
        ("a = :b", "':', at character 5"),
        ("a = @b", "is no part of an expression"),
        ("r'\\'", "is no part of an expression"),
        ("r'a'", "\"'a'\", at character 2"),
        ("'a", "is no part of an expression"),
        ("`a", "is no part of an expression"),
        ("a\x00", "is no part of an expression"),
        ("ä = 1", "is no part of an expression"),
        ("1a", "is no part of an expression"),
        ("a b", "'b', at character 3"),
        ("'a' 'b'", "\"'b'\", at character 5"),
        ("a |> b", "'>', at character 4"),
        ("x -> x", "'->', at character 3"),
        ("upper(select -> 1)", "not expected there"),
        ("n >", "ends too early"),
        (")", r"'\)', at character 1"),
        ("a)", r"'\)', at character 2"),
        ("f(a", "is none of the functions"),
        ("upper(a", "ends too early"),
        ("cast(a as secret)", "'secret'"),
        ("cast(a as int, b)", "','"),
        ("INTERVAL", "ends too early"),
        ("(" * (MAX_DEPTH + 1) + "1" + ")" * (MAX_DEPTH + 1), f"nests more than {MAX_DEPTH} deep"),
        ("struct(" * 40 + "1" + ")" * 40, f"nests more than {MAX_DEPTH} deep"),
        ("NOT " * 40 + "a", f"nests more than {MAX_DEPTH} deep"),
        ("- " * 40 + "1", f"nests more than {MAX_DEPTH} deep"),
        ("case when " * 40 + "1", f"nests more than {MAX_DEPTH} deep"),
        ("cast(a as " + "array<" * 40 + "int" + ">" * 40 + ")", f"nests more than {MAX_DEPTH} deep"),
        ("a" * (MAX_CHARACTERS + 1), f"has {MAX_CHARACTERS + 1} characters"),
    ],
)
def test_what_is_more_than_an_expression_of_one_row_is_refused_with_what_is_wrong(sql: str, problem: str) -> None:
    with pytest.raises(InvalidInputError, match=rf"(?s)check\.a=.* cannot be set: .*{problem}"):
        check_changes({"check.a": sql})
    for kind in ("check.a", "generated.a", "default.a"):
        with pytest.raises(InvalidInputError, match=rf"(?s)setting {kind}=.* of it is not evaluated: .*{problem}"):
            Constraints.of({kind: sql}).refuse_unsafe(where="it")


_WORDS = """
    select from table values with map reduce using exists in is null case when then else end and or not as cast day
    interval date upper java_method a b transform struct array like escape between distinct all any over lateral trim
    extract both identifier 1 'x' "y" \u017felect `z` 1.5 x'1F' ( ) [ ] , . -> - * = < > | || : ! ~ ${ -- /* ; ? \\
"""
WORDS = _WORDS.split()
"""Of hostile texts, and of honest ones."""
TEXTS = st.lists(st.sampled_from(WORDS), max_size=12).map(" ".join) | st.text(max_size=30)


@given(TEXTS)
def test_no_text_is_taken_in_part(sql: str) -> None:
    """What is accepted is accepted in brackets, too, and calls nothing but FUNCTIONS."""
    if problem_of(sql) is None:
        assert problem_of(f"({sql})") is None
        assert problem_of(f"java_method({sql})") is not None
        assert "java_method (" not in sql
        assert "select" not in sql.split()
        assert problem_of(f"{sql} {sql}") is not None or sql.split()[0] in ("-", "*", "[", "(", ".")


@pytest.mark.parametrize(
    ("sql", "columns", "unknown"),
    [
        ("api_token", ["id"], "'api_token', at character 1"),
        ("session.api_token", ["id"], "'session'"),
        ("system.session.api_token = id", ["id"], "'system'"),
        ("`api_token` = id", ["id"], "'`api_token`'"),
        ("id", (), "'id'"),
        ("_dbio_column_0", (), "'_dbio_column_0'"),
        ("transform(tags, t -> t || api_token)", ["tags"], "'api_token'"),
        ("transform(tags, t -> t) || t", ["tags"], "'t', at character 28"),
        ("`current_date`", ["id"], "'`current_date`'"),
        ("`true`", ["id"], "'`true`'"),
        ("unknown", ["id"], "'unknown'"),
    ],
)
def test_a_name_that_is_no_column_is_refused_where_the_columns_are_known(
    sql: str, columns: list[str], unknown: str
) -> None:
    """Spark takes it for a variable of the session."""
    assert problem_of(sql) is None
    assert str(problem_of(sql, columns)).startswith(unknown)


@pytest.mark.parametrize(
    ("sql", "columns"),
    [
        ("ID > 1 AND s.id = `a``b`.`c`", ["id", "S", "a`b"]),
        ("exists(tags, t -> exists(t.inside, u -> u = t.first AND id > 0))", ["tags", "id"]),
        ("zip_with(xs, xs, (x, y) -> x + y)[0] > 3", ["xs"]),
        ("EXTRACT(YEAR FROM d) = 2026 AND d + INTERVAL 1 DAY > current_date", ["d"]),
        ("current_user", ()),
        ("TRUE OR false AND Null IS NULL", ()),
        ("CASE WHEN b = true THEN 'x' ELSE NULL END", ["b"]),
        ("coalesce(b, false) <> TRUE AND `true` > 1", ["b", "true"]),
    ],
)
def test_columns_parameters_values_and_functions_without_brackets_are_known(sql: str, columns: list[str]) -> None:
    assert problem_of(sql, columns) is None


def test_the_functions_have_no_word_of_the_grammar_for_a_name() -> None:
    assert not FUNCTIONS & {"select", "values", "table", "from", "with", "reduce", "cast", "extract", "identifier"}
