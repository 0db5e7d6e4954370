"""Which expressions of settings a writer evaluates. What Spark makes of them is in test_stored_sql.py."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dbio_commit.errors import InvalidInputError
from dbio_commit.protocol.constraints import Constraints
from dbio_commit.protocol.expressions import FUNCTIONS, MAX_CHARACTERS, MAX_DEPTH, problem_of
from dbio_commit.protocol.settings import check_changes

GOOD = [
    "n > 0",
    "kind IN ('click', \"view\")",
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
    "aggregate(xs, 0, (total, x) -> total + x) > 3",
    "forall(tags, t -> t <> '')",
    "exists(tags, t -> exists(t.inside, u -> u = t.first))",
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
        ("`java_method`('a')", "whose name stands in quotes"),
        ("\"java_method\"('a')", "whose name stands in quotes"),
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
    extract both identifier 1 'x' "y" `z` 1.5 x'1F' ( ) [ ] , . -> - * = < > | || : ! ~ ${ -- /* ; ? \\
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


def test_the_functions_have_no_word_of_the_grammar_for_a_name() -> None:
    assert not FUNCTIONS & {"select", "values", "table", "from", "with", "reduce", "cast", "extract", "identifier"}
