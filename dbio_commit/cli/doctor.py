"""`dbio doctor`: looks at a store and at this machine, and prints what was found."""

from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from typing import Any

from dbio_commit.base.errors import DbioError
from dbio_commit.cli.output import Column, in_pipe, one_line, plain, print_lines, say
from dbio_commit.maintenance.doctor import Finding, Verdict, look_at_packages, look_at_store, problem
from dbio_commit.store import parse_location
from dbio_commit.table import Table


def look_around(path: str) -> Iterator[Finding]:
    """What was found, one after the other. Raises InvalidInputError for a text that is neither a path nor a URL."""
    location = parse_location(path)
    yield look_at_packages(location.scheme)
    try:
        table = Table(path)
        table.refuse_partition()
        yield from look_at_store(table.store, table.clock, location.scheme)
    except DbioError as error:
        yield problem("store", one_line(error), "do what the message says, and run this again")
    if find_spec("pyspark") is None:
        yield Finding(what="spark", verdict=Verdict.UNKNOWN, text="PySpark is not installed, and not needed here")
        return
    from dbio_commit.spark.doctor import look_at_spark

    yield from look_at_spark()


def print_findings(findings: Sequence[Finding]) -> None:
    if in_pipe():
        print_lines(_FINDING, findings)
        return
    for it in findings:
        style = {Verdict.OK: "green", Verdict.PROBLEM: "bold red", Verdict.UNKNOWN: "dim"}[it.verdict]
        say(f"{it.verdict:<8} {it.what}: {it.text}", style=style)
        if it.advice:
            say(f"         what to do: {it.advice}")
    problems = sum(it.verdict is Verdict.PROBLEM for it in findings)
    say("")
    say(f"{problems} of {len(findings)} things need attention" if problems else "nothing needs attention", style="bold")


def findings_json(path: str, findings: Sequence[Finding]) -> dict[str, Any]:
    return {"path": path, "ok": all(it.verdict is not Verdict.PROBLEM for it in findings), "findings": plain(findings)}


_FINDING: list[Column[Finding]] = [
    Column("verdict", lambda it: it.verdict),
    Column("what", lambda it: it.what),
    Column("text", lambda it: it.text),
    Column("what to do", lambda it: it.advice),
]
